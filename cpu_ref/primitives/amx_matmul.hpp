// SPDX-License-Identifier: Apache-2.0
// Products of bf16 tiles by AMX, where the processor has it: 16 x 16 sums of 32 products each an instruction.
#pragma once

#include <cstddef>
#include <memory>

#include "cpu_ref/primitives/tile_math.hpp"

namespace tilescope {

/// Numbers of the depth that AMX adds to a sum at once.
inline constexpr int kAmxDepth = 32;

/// Whether bf16 is multiplied by AMX: the processor has it beside its products of pairs, and the system lets
/// this process use it, for which it is asked once.
bool multiplies_by_amx();

/// AMX on the thread that makes it, and until it is gone; nothing else there may configure the registers.
class AmxMatmul {
 public:
  /// Precondition: multiplies_by_amx().
  AmxMatmul();
  ~AmxMatmul();
  AmxMatmul(const AmxMatmul&) = delete;
  AmxMatmul& operator=(const AmxMatmul&) = delete;

  /// As bf16_tile_matmul() (bf16_matmul.hpp), summed in another order: of 32 numbers of the depth, products
  /// of the even and of the odd ones apart.
  void operator()(const LeftOperand& a, const float* b, std::ptrdiff_t b_stride, float* c,
                  std::ptrdiff_t c_stride, int rows, int cols, int words, Accumulate accumulate);

 private:
  struct Products;
  std::unique_ptr<Products> products_;
};

}  // namespace tilescope
