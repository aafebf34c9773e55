// SPDX-License-Identifier: Apache-2.0
// The softmax of flash3's forward pass in fp8, beside what Flash3ScaledRows has for every type.
#pragma once

#include "gpu/kernels/flash3/forward/softmax.cuh"
#include "gpu/primitives/sm90/byte_layout.hpp"
#include "gpu/primitives/sm90/pack_bytes.cuh"

namespace tilescope::gpu {

/// Where rescaling is conditional, e5m2's P may grow to 7 times what it is at a maximum before it has to be
/// made again: a bound for accuracy. One key's P may be nearly all of its row. It is exact where that key is
/// the maximum; where the maximum lags behind it, it is rounded by up to a sixteenth (e4m3) or an eighth
/// (e5m2), and so is O, since what O is divided by sums P before it is rounded. As the maximum's own key has
/// a P of 1, a P below 7 is at most 7/8 of its row, and the yardstick of `verify` rounds it as coarsely. (O
/// has the type of P where that has 16 bits, and is rounded so in any case.)
///
/// The power of 2 that a P of 1 is kept as. e4m3 reaches 448 = 14 * 2^5 and loses everything below 2^-10,
/// e5m2 has range enough.
template <sm90::WgmmaType kType>
inline constexpr int kFlash3Fp8Power = kType == sm90::WgmmaType::e5m2 ? 0 : kFlash3E4m3Power;

/// What is added to four bytes of P, which are not negative, so that the sign bit of one is set that is
/// e4m3's largest number, 0x7E, or e5m2's 7, 0x47, or more. No sum carries into the next byte.
template <sm90::WgmmaType kType>
inline constexpr std::uint32_t kToSign = kType == sm90::WgmmaType::e4m3 ? 0x02020202 : 0x39393939;

/// Turns scores into un-normalised probabilities, as the bytes of the operand P, relative to the maxima as
/// they are. @return whether one of them has grown too large: its maximum must be raised
template <sm90::WgmmaType kType, typename Rows, int kScores>
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
      p[byte] = exp2_approx(score_exponent(score, exponent_scale, rows.shift[half]));
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
