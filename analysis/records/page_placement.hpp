// SPDX-License-Identifier: Apache-2.0
// How a run's tensors lie in physical memory. The sets of an L2 go by physical addresses, so that a working
// set near the L2's capacity overflows more of them in one place than in another.
#pragma once

#include <cstdint>
#include <string_view>

namespace tilescope {

/// Each tensor in one piece, as allocators of fresh memory place them, or every page at a random place.
enum class PagePlacement : std::uint8_t { contiguous, random };
std::string_view to_string(PagePlacement pages);
/// Knows "scattered", the former name of random placement, too.
/// @throws BadInput
PagePlacement parse_page_placement(std::string_view text);

}  // namespace tilescope
