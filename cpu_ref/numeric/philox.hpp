// SPDX-License-Identifier: Apache-2.0
// Philox4x32-10, so that dropout masks and random inputs are functions of (seed, position): the same on CPU
// and GPU, for every tile shape and thread count. Source: Salmon, Moraes, Dror, Shaw, "Parallel random
// numbers: as easy as 1, 2, 3", SC 2011.
#pragma once

#include <cstdint>

#include "cpu_ref/schedule/tile_schedule.hpp"  // TILESCOPE_HOST_DEVICE

namespace tilescope {

struct Philox4 {
  std::uint32_t x[4];
};

/// Ten rounds of Philox4x32 on a 128-bit counter with a 64-bit key.
TILESCOPE_HOST_DEVICE constexpr Philox4 philox4x32(std::uint64_t seed, Philox4 counter) {
  std::uint32_t key0 = static_cast<std::uint32_t>(seed);
  std::uint32_t key1 = static_cast<std::uint32_t>(seed >> 32);
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t product0 = std::uint64_t{0xD2511F53u} * counter.x[0];
    const std::uint64_t product1 = std::uint64_t{0xCD9E8D57u} * counter.x[2];
    counter = {{static_cast<std::uint32_t>(product1 >> 32) ^ counter.x[1] ^ key0,
                static_cast<std::uint32_t>(product1),
                static_cast<std::uint32_t>(product0 >> 32) ^ counter.x[3] ^ key1,
                static_cast<std::uint32_t>(product0)}};
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
  return counter;
}

/// Dropout of the attention probabilities: entry (query, key) of head `batch_head` = batch * heads + head is
/// kept when its 32 random bits are at least dropout * 2^32, and is then multiplied by keep_scale.
struct DropoutMask {
  std::uint64_t seed = 0;
  std::uint32_t threshold = 0;  // 0: no dropout
  float keep_scale = 1.0f;

  DropoutMask() = default;
  DropoutMask(std::uint64_t seed, double dropout)
      : seed(seed),
        threshold(static_cast<std::uint32_t>(dropout * 4294967296.0)),
        keep_scale(static_cast<float>(1.0 / (1.0 - dropout))) {}

  TILESCOPE_HOST_DEVICE constexpr bool active() const { return threshold != 0; }
  /// Random bits of the keys 4 * key_quad ... 4 * key_quad + 3.
  TILESCOPE_HOST_DEVICE constexpr Philox4 bits(int batch_head, int query, int key_quad) const {
    return philox4x32(seed, {{static_cast<std::uint32_t>(key_quad), static_cast<std::uint32_t>(query),
                              static_cast<std::uint32_t>(batch_head), 0u}});
  }
  TILESCOPE_HOST_DEVICE constexpr bool keep(int batch_head, int query, int key) const {
    return bits(batch_head, query, key / 4).x[key % 4] >= threshold;
  }
};

}  // namespace tilescope
