// SPDX-License-Identifier: Apache-2.0
// Options, and the numbers that users type behind them: read whole and in range, or refused by field and
// value.
#pragma once

#include <CLI/App.hpp>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cpu_ref/schedule/problem.hpp"
#include "cpu_ref/schedule/tile_schedule.hpp"

namespace tilescope::cli {

inline constexpr std::int64_t kAnyCount = std::numeric_limits<std::int64_t>::max();

/// @throws BadInput unless all of `text` is an integer of 64 bits, also as in 4k (read_count)
std::int64_t parse_integer(const std::string& field, std::string_view text);
/// The same. @throws BadInput also unless it lies in least ... most
std::int64_t parse_integer_in(const std::string& field, std::string_view text, std::int64_t least,
                              std::int64_t most);
/// Adds an option of a value of some type, in a group of the help. `target` must outlive the parsing.
template <typename Target>
CLI::Option* add_value(CLI::App& command, const std::string& flags, Target& target, const std::string& type,
                       const std::string& help, const std::string& group = "") {
  CLI::Option* const option = command.add_option(flags, target, help)->type_name(type);
  return group.empty() ? option : option->group(group);
}
/// Adds an option of such an integer. `target` must outlive the parsing.
template <typename Integer>
CLI::Option* add_integer(CLI::App& command, const std::string& flags, Integer& target, std::int64_t least,
                         std::int64_t most, const std::string& help) {
  const std::string field = flags.substr(0, flags.find(','));
  return command
      .add_option_function<std::string>(
          flags,
          [&target, field, least, most](const std::string& text) {
            target = parse_integer_in(field, text, least, most);
          },
          help)
      ->type_name("N");
}
/// Of bytes: also as in 50MB and 32MiB. @throws BadInput
std::int64_t parse_bytes_in(const std::string& field, std::string_view text, std::int64_t least,
                            std::int64_t most);
/// @throws BadInput unless all of `text` is a decimal integer in 0 ... 2^64 - 1
std::uint64_t parse_unsigned(const std::string& field, std::string_view text);
/// @throws BadInput unless all of `text` is a number. "inf" and "nan" are numbers here: who needs a finite
/// one says so.
double parse_number(const std::string& field, std::string_view text);
/// "yes", "no"; also as "1" and "0", "true" and "false". @throws BadInput
bool parse_yes(const std::string& field, std::string_view text);
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
