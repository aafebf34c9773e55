// SPDX-License-Identifier: Apache-2.0
// The dropout mask on accumulators: four random words come from one Philox call for four neighbouring keys,
// and the lanes that share those keys share the call.
#pragma once

#include <cstdint>

#include "cpu_ref/numeric/philox.hpp"
#include "gpu/primitives/sm80/mma.cuh"

namespace tilescope::sm80 {

/// Bit e: whether accumulator element e is kept.
using KeepBits = std::uint32_t;

/// For an accumulator with queries as rows: its top-left entry is (query, key), both even multiples of 8.
/// Lanes 2 i and 2 i + 1 hold the halves of the same key quad: the even lane draws for row l / 4, the odd one
/// for row l / 4 + 8, and each hands over the half that the other needs.
__device__ __forceinline__ KeepBits keep_queries_by_keys(const DropoutMask& dropout, int batch_head,
                                                         int query, int key, int lane) {
  const int row = query + (lane >> 2);
  const bool odd = lane & 1;
  const Philox4 own = dropout.bits(batch_head, odd ? row + 8 : row, (key >> 2) + ((lane & 2) >> 1));
  const std::uint32_t other0 = __shfl_xor_sync(0xFFFFFFFFu, odd ? own.x[0] : own.x[2], 1);
  const std::uint32_t other1 = __shfl_xor_sync(0xFFFFFFFFu, odd ? own.x[1] : own.x[3], 1);
  const std::uint32_t top0 = odd ? other0 : own.x[0];
  const std::uint32_t top1 = odd ? other1 : own.x[1];
  const std::uint32_t bottom0 = odd ? own.x[2] : other0;
  const std::uint32_t bottom1 = odd ? own.x[3] : other1;
  return (top0 >= dropout.threshold ? 1u : 0u) | (top1 >= dropout.threshold ? 2u : 0u) |
         (bottom0 >= dropout.threshold ? 4u : 0u) | (bottom1 >= dropout.threshold ? 8u : 0u);
}

/// For an accumulator with keys as rows: its top-left entry is (key, query). The four lanes with keys
/// 4 i ... 4 i + 3 and the same two queries draw one of the four (query, key quad) pairs that they share, and
/// transpose the 4 x 4 words among themselves.
__device__ __forceinline__ KeepBits keep_keys_by_queries(const DropoutMask& dropout, int batch_head,
                                                         int query, int key, int lane) {
  const int key_in_quad = (lane >> 2) & 3;  // also the number of this lane's draw
  const int drawn_query = query + 2 * (lane & 3) + (key_in_quad & 1);
  const int drawn_quad = (key >> 2) + (lane >> 4) + (key_in_quad & 2);
  Philox4 words = dropout.bits(batch_head, drawn_query, drawn_quad);
  // Transposes by swapping off-diagonal words with the lane whose number differs in one bit, then the other.
#pragma unroll
  for (int bit = 1; bit <= 2; bit *= 2) {
    const bool upper = key_in_quad & bit;
#pragma unroll
    for (int pair = 0; pair < 2; ++pair) {
      const int low = bit == 1 ? 2 * pair : pair;
      const int high = low + bit;
      const std::uint32_t received =
          __shfl_xor_sync(0xFFFFFFFFu, upper ? words.x[low] : words.x[high], 4 * bit);
      if (upper) {
        words.x[low] = received;
      } else {
        words.x[high] = received;
      }
    }
  }
  // words.x[draw] is now this lane's key in draw (query + draw % 2, quad of key or of key + 8).
  KeepBits keep = 0;
#pragma unroll
  for (int e = 0; e < 4; ++e) keep |= words.x[e] >= dropout.threshold ? 1u << e : 0u;
  return keep;
}

}  // namespace tilescope::sm80
