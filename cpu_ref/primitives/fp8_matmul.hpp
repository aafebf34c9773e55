// SPDX-License-Identifier: Apache-2.0
// Products of fp8 tiles summed as Hopper's tensor cores sum them, to the bit. An instruction adds 32 products
// to the sum so far:
//
//   1. Each of the 33 numbers has an exponent: a product the sum of its factors' exponents, also where it is
//      2 or more (a subnormal factor has the least normal number's). Zeros have none.
//   2. All are cut, toward zero, to multiples of 2^-13 of 2^(the largest exponent), and added exactly.
//   3. The result is cut, toward zero, to 13 bits behind its leading one.
//
// So a term counts for nothing when another is 2^13 times as large, and every cut draws sums toward zero.
// Sources: MMA-Sim, arXiv:2511.10909; "Accurate Models of NVIDIA Tensor Cores", arXiv:2512.07004; "14 bits":
// DeepSeek-V3, arXiv:2412.19437, section 3.5.2. tests/gpu/primitives/sm90/device_fp8_sums_test.cu holds it to
// a device, where eleven other rules (12 or 14 bits, floor, groups of 16, the sum apart ...) did not fit.
#pragma once

#include "cpu_ref/primitives/tile_math.hpp"
#include "cpu_ref/schedule/problem.hpp"

namespace tilescope {

inline constexpr int kFp8SumDepth = 32;         // products that are added at once
inline constexpr int kFp8SumFractionBits = 13;  // kept of each, and of their sum

/// As tile_matmul(), of numbers of the fp8 type `dtype`: c (rows, cols) = or += a (rows, depth) * b (depth,
/// cols), 32 of the depth at a time, from its beginning.
void fp8_tile_matmul(ElementType dtype, const LeftOperand& a, const float* b, std::ptrdiff_t b_stride,
                     float* c, std::ptrdiff_t c_stride, int rows, int cols, int depth, Accumulate accumulate);

}  // namespace tilescope
