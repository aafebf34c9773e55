// SPDX-License-Identifier: Apache-2.0
// SHA-256 (FIPS 180-4), by which records name what they rest on.
#pragma once

#include <string>
#include <string_view>

namespace tilescope {

/// Of the bytes, as 64 hexadecimal digits.
std::string sha256(std::string_view bytes);

}  // namespace tilescope
