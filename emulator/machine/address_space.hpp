// SPDX-License-Identifier: Apache-2.0
// Addresses as kernels see them. Global ones are host pointers; the other spaces lie, for generic addresses,
// in windows that no host pointer reaches. 32-bit addresses of shared memory tell in bits 24 and above whose
// it is: 0 is that of the CTA itself, r + 1 that of rank r of its cluster.
#pragma once

#include <cstdint>

namespace tilescope::gpu::emulator {

inline constexpr std::uint64_t kSharedWindow = 1ull << 56;  // + the 32-bit address
inline constexpr std::uint64_t kParameterWindow = 2ull << 56;
inline constexpr std::uint64_t kLocalWindow = 3ull << 56;
inline constexpr std::uint64_t kWindowBytes = 1ull << 32;

inline constexpr int kRankShift = 24;

constexpr bool in_window(std::uint64_t window, std::uint64_t address) {
  return address - window < kWindowBytes;
}

/// The address, to the whole cluster, of what lies at `address` (with or without a rank) in the CTA of a
/// rank.
constexpr std::uint32_t shared_address_of_rank(std::uint32_t address, unsigned rank) {
  return (address & ((1u << kRankShift) - 1)) | ((rank + 1) << kRankShift);
}
constexpr std::uint32_t offset_of_shared_address(std::uint32_t address) {
  return address & ((1u << kRankShift) - 1);
}

}  // namespace tilescope::gpu::emulator
