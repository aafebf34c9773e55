// SPDX-License-Identifier: Apache-2.0
// Elements of a kernel's arguments: their types by name, what fills arrays, how results are compared.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tilescope::cli {

struct ElementFormat {
  std::string_view name;   // "float32"
  std::string_view descr;  // NumPy's; empty where it has none
  int bytes;
  bool is_float;
  double tolerance;  // of results, where nobody says another: times the larger of 1 and the expected value
  double (*read)(const std::byte*);
  void (*write)(std::byte*, double);
};

/// By its name, NumPy's or the short one ("float16", "fp16"). @throws UnknownName
const ElementFormat& format_named(const std::string& field, std::string_view name);
/// By NumPy's letters; null where none has them.
const ElementFormat* format_of_descr(std::string_view descr);

/// "zeros", "arange", "random" (normal; integers below 100), "none" (bytes that nobody wrote: NaN)
/// @throws UnknownName
void fill(const std::string& field, std::string_view how, const ElementFormat& format,
          std::span<std::byte> elements, std::uint64_t seed);
void fill(double value, const ElementFormat& format, std::span<std::byte> elements);

/// How results differ from what was expected.
struct Comparison {
  std::size_t elements = 0, wrong = 0, first_wrong = 0;
  double got = 0, expected = 0;  // of the first wrong one
};
/// @param expected  as many elements, as numbers
Comparison compare(const ElementFormat& format, std::span<const std::byte> elements,
                   const std::vector<double>& expected, double tolerance);

}  // namespace tilescope::cli
