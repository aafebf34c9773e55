// SPDX-License-Identifier: Apache-2.0
// Sentences as lines of a width.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace tilescope {

/// Lines of at most `width` characters; words that are longer stay whole.
std::vector<std::string> wrap_words(std::string_view text, std::size_t width);

}  // namespace tilescope
