// SPDX-License-Identifier: Apache-2.0
// A tensor map as kernels take it. The driver's function is found through the runtime: nothing links libcuda.
#pragma once

#include <cuda.h>

#include "gpu/primitives/sm90/tensor_map.hpp"

namespace tilescope::gpu::sm90 {

/// @throws std::invalid_argument if the parameters break a rule, std::runtime_error if the driver refuses
CUtensorMap encode_tensor_map(const TensorMapParameters& parameters, const void* base);

}  // namespace tilescope::gpu::sm90
