// SPDX-License-Identifier: Apache-2.0
// A tensor map as kernels take it. The driver's function is found through the runtime: nothing links libcuda.
#pragma once

#include <cuda.h>

#include "gpu/primitives/sm90/tensor_map.hpp"

namespace tilescope::gpu::sm90 {

/// @throws BadInput if the parameters break a rule, MachineLacks where the driver has no maps, DeviceError if
/// it refuses one
CUtensorMap encode_tensor_map(const TensorMapParameters& parameters, const void* base);

}  // namespace tilescope::gpu::sm90
