// SPDX-License-Identifier: Apache-2.0
// Numbers as people type them and as the tables print them: 4k, 50MB, 1.5GiB, 2ms.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace tilescope {

/// A length or a count: "4096", or with k, M or G of 2^10, as lengths are printed: "4k", "1.5M"; also "1m",
/// "1Mi".
/// Nothing unless all of `text` is a whole number of 64 bits.
std::optional<std::int64_t> read_count(std::string_view text);

/// "52428800", "50MB" (10^6), "32 MiB" (2^20). A bare M could be either and is none.
std::optional<std::int64_t> read_bytes(std::string_view text);

/// A number and its unit: B, s, FLOP, or "" where none was typed.
struct Quantity {
  double value = 0;
  std::string_view unit;
};
/// "1e9", "1GB", "2ms", "3GFLOP", in the unit itself. Nothing unless all of `text` is one.
std::optional<Quantity> read_quantity(std::string_view text);

}  // namespace tilescope
