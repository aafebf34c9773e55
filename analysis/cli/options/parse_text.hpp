// SPDX-License-Identifier: Apache-2.0
// Numbers typed by a user: read whole and in range, or refused by field and value.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cpu_ref/schedule/problem.hpp"
#include "cpu_ref/schedule/tile_schedule.hpp"

namespace tilescope::cli {

/// @throws BadInput unless all of `text` is an integer of 64 bits, also as in 4k (read_count)
std::int64_t parse_integer(const std::string& field, std::string_view text);
/// The same. @throws BadInput also unless it lies in least ... most
std::int64_t parse_integer_in(const std::string& field, std::string_view text, std::int64_t least,
                              std::int64_t most);
/// Of bytes: also as in 50MB and 32MiB. @throws BadInput
std::int64_t parse_bytes_in(const std::string& field, std::string_view text, std::int64_t least,
                            std::int64_t most);
/// @throws BadInput unless all of `text` is a decimal integer in 0 ... 2^64 - 1
std::uint64_t parse_unsigned(const std::string& field, std::string_view text);
/// @throws BadInput unless all of `text` is a number. "inf" and "nan" are numbers here: who needs a finite
/// one says so.
double parse_number(const std::string& field, std::string_view text);
/// "128x64". @throws BadInput unless both sides are integers in 1 ... 4096
TileShape parse_tile(const std::string& field, std::string_view text);
/// "128,-1": two integers. @throws BadInput
std::pair<std::int64_t, std::int64_t> parse_window(const std::string& field, std::string_view text);
/// A type by its name, or by that of PyTorch and NumPy: "bf16", "bfloat16".
/// @throws BadInput
ElementType parse_dtype(std::string_view text);

/// "a,b,c": what stands between the commas, empty words too.
std::vector<std::string> words_of_list(std::string_view text);
/// "100,2k,7": integers. @throws BadInput
std::vector<std::int64_t> parse_integers(const std::string& field, std::string_view text);

}  // namespace tilescope::cli
