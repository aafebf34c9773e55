// SPDX-License-Identifier: Apache-2.0
// Finding out before a long allocation whether the memory is there.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace tilescope {

/// Memory that new allocations can have without swapping: what the kernel reports as available, and no more
/// than the limit of this process's control group. Nothing where the system does not say. [bytes]
std::optional<std::int64_t> available_memory_bytes();

/// So little is not asked for: asking takes up to tens of milliseconds, in sandboxes that count pages for it.
inline constexpr std::int64_t kNeverScarceBytes = 64 << 20;

/// @param remedy what would need less
/// @throws MachineLacks naming both figures if `bytes` are more than there are
void require_memory(
    std::int64_t bytes, const std::string& purpose,
    const std::string& remedy = "a smaller batch, fewer heads or a shorter sequence would fit");

}  // namespace tilescope
