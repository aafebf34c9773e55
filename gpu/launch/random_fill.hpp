// SPDX-License-Identifier: Apache-2.0
// Random inputs made on the device, where uploading them would take longer than the kernels that read them.
#pragma once

#include <cstdint>

#include "cpu_ref/schedule/problem.hpp"
#include "cpu_ref/schedule/tile_program.hpp"

struct CUstream_st;  // *cudaStream_t

namespace tilescope {

/// Enqueues the filling of `count` elements with standard normal numbers: those of random_normal
/// (cpu_ref/numeric/random_inputs.hpp) for the same seed, tensor and index, but for the rounding of single
/// precision.
void fill_normal(void* data, std::int64_t count, ElementType type, std::uint64_t seed, TensorName tensor,
                 CUstream_st* stream);

}  // namespace tilescope
