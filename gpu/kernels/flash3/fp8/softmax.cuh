// SPDX-License-Identifier: Apache-2.0
// The softmax of flash3's forward pass in fp8, beside what Flash3ScaledRows has for every type.
#pragma once

#include "gpu/kernels/flash3/forward/softmax.cuh"
#include "gpu/primitives/sm90/byte_layout.hpp"
#include "gpu/primitives/sm90/pack_bytes.cuh"

namespace tilescope::gpu {

/// The power of 2 that a P of 1 is kept as. e4m3 reaches 448 = 2^8.8 and loses everything below 2^-10. Where
/// maxima lag, P may grow by 2^3.8 before it has to be made again.
template <sm90::ProductType kType, bool kLagging>
inline constexpr int kFlash3Fp8Power = kType == sm90::ProductType::e5m2 ? 0
                                       : kLagging                       ? 5
                                                                        : 8;

/// What is added to four bytes of P, which are not negative, so that the sign bit of one that is the type's
/// largest number is set.
template <sm90::ProductType kType>
inline constexpr std::uint32_t kToSign = kType == sm90::ProductType::e4m3 ? 0x02020202 : 0x05050505;

/// Turns scores into un-normalised probabilities, as the bytes of the operand P, relative to the maxima as
/// they are. @return whether one of them has reached the type's largest number: its maximum must be raised
template <sm90::ProductType kType, typename Rows, int kScores>
__device__ __forceinline__ bool exponentiate_to_bytes(const Rows& rows, std::uint32_t (&probs)[kScores / 4],
                                                      const float (&scores)[kScores], float exponent_scale,
                                                      float (&tile_sum)[2]) {
  float chains[2][2] = {};
  std::uint32_t largest = 0;
#pragma unroll
  for (int i = 0; i < kScores / 4; ++i) {
    const int first = i / 4 * 16, half = i % 2;
    float p[4];
#pragma unroll
    for (int byte = 0; byte < 4; ++byte) {
      const float score = scores[first + sm90::accumulator_of_byte(i % 4, byte)];
      p[byte] = exp2_approx(fmaf(score, exponent_scale, rows.shift[half]));
      chains[half][byte % 2] += p[byte];
    }
    asm("mov.b32 %0, {%1, %2};"
        : "=r"(probs[i])
        : "h"(sm90::pack_bytes<kType>(p[0], p[1])), "h"(sm90::pack_bytes<kType>(p[2], p[3])));
    largest |= (probs[i] + kToSign<kType>)&0x80808080u;
  }
  tile_sum[0] = chains[0][0] + chains[0][1];
  tile_sum[1] = chains[1][0] + chains[1][1];
  return largest != 0;
}

}  // namespace tilescope::gpu
