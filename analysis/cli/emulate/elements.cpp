// SPDX-License-Identifier: Apache-2.0
#include "analysis/cli/emulate/elements.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iterator>
#include <numbers>

#include "common/nearest_names.hpp"
#include "cpu_ref/numeric/numeric.hpp"

namespace tilescope::cli {
namespace {

template <class T>
double read_plain(const std::byte* bytes) {
  T value;
  std::memcpy(&value, bytes, sizeof(T));
  return static_cast<double>(value);
}
template <class T>
void write_plain(std::byte* bytes, double value) {
  T converted;
  if constexpr (std::is_integral_v<T>) {
    converted = static_cast<T>(static_cast<std::int64_t>(value));  // wraps as C does
  } else {
    converted = static_cast<T>(value);
  }
  std::memcpy(bytes, &converted, sizeof(T));
}

/// An element that is stored as the bits of a narrow floating-point type.
template <class Bits, float (*widen)(Bits), Bits (*narrow)(float)>
double read_narrow(const std::byte* bytes) {
  Bits bits;
  std::memcpy(&bits, bytes, sizeof(Bits));
  return static_cast<double>(widen(bits));
}
template <class Bits, float (*widen)(Bits), Bits (*narrow)(float)>
void write_narrow(std::byte* bytes, double value) {
  const Bits bits = narrow(static_cast<float>(value));
  std::memcpy(bytes, &bits, sizeof(Bits));
}

template <class T>
constexpr ElementFormat whole(std::string_view name, std::string_view descr) {
  return {name, descr, sizeof(T), false, 0, &read_plain<T>, &write_plain<T>};
}
template <class T>
constexpr ElementFormat real(std::string_view name, std::string_view descr, double tolerance) {
  return {name, descr, sizeof(T), true, tolerance, &read_plain<T>, &write_plain<T>};
}
template <class Bits, float (*widen)(Bits), Bits (*narrow)(float)>
constexpr ElementFormat narrow_real(std::string_view name, std::string_view descr, double tolerance) {
  return {name,
          descr,
          sizeof(Bits),
          true,
          tolerance,
          &read_narrow<Bits, widen, narrow>,
          &write_narrow<Bits, widen, narrow>};
}

const ElementFormat kFormats[] = {
    real<float>("float32", "<f4", 1e-5),
    real<double>("float64", "<f8", 1e-12),
    narrow_real<std::uint16_t, fp16_to_fp32, fp32_to_fp16>("float16", "<f2", 2e-3),
    narrow_real<std::uint16_t, bf16_to_fp32, fp32_to_bf16>("bfloat16", "", 2e-2),
    narrow_real<std::uint8_t, fp8e4m3_to_fp32, fp32_to_fp8e4m3>("float8_e4m3", "", 0.13),
    narrow_real<std::uint8_t, fp8e5m2_to_fp32, fp32_to_fp8e5m2>("float8_e5m2", "", 0.25),
    whole<std::int8_t>("int8", "|i1"),
    whole<std::uint8_t>("uint8", "|u1"),
    whole<std::uint8_t>("bool", "|b1"),
    whole<std::int16_t>("int16", "<i2"),
    whole<std::uint16_t>("uint16", "<u2"),
    whole<std::int32_t>("int32", "<i4"),
    whole<std::uint32_t>("uint32", "<u4"),
    whole<std::int64_t>("int64", "<i8"),
    whole<std::uint64_t>("uint64", "<u8"),
};

struct Alias {
  std::string_view name, stands_for;
};
constexpr Alias kAliases[] = {{"fp32", "float32"},   {"fp64", "float64"},        {"fp16", "float16"},
                              {"half", "float16"},   {"bf16", "bfloat16"},       {"float", "float32"},
                              {"double", "float64"}, {"int", "int32"},           {"i32", "int32"},
                              {"i64", "int64"},      {"fp8e4m3", "float8_e4m3"}, {"fp8e5m2", "float8_e5m2"}};

std::uint64_t mixed(std::uint64_t z) {  // splitmix64
  z += 0x9e3779b97f4a7c15ull;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
  return z ^ (z >> 31);
}

/// In (0, 1).
double uniform(std::uint64_t bits) { return (static_cast<double>(bits >> 11) + 0.5) * 0x1p-53; }

double drawn(std::uint64_t seed, std::size_t i, bool is_float) {
  const std::uint64_t bits = mixed(seed * 0x100000001b3ull + i);
  if (!is_float) return static_cast<double>(bits % 100);
  return std::sqrt(-2 * std::log(uniform(bits))) * std::cos(2 * std::numbers::pi * uniform(mixed(bits)));
}

template <class F>
void fill_each(const ElementFormat& format, std::span<std::byte> elements, F&& value) {
  const auto bytes = static_cast<std::size_t>(format.bytes);
  for (std::size_t i = 0; i < elements.size() / bytes; ++i) format.write(&elements[i * bytes], value(i));
}

}  // namespace

const ElementFormat& format_named(const std::string& field, std::string_view name) {
  for (const Alias& alias : kAliases) name = alias.name == name ? alias.stands_for : name;
  return find_named(kFormats, field, name);
}

const ElementFormat* format_of_descr(std::string_view descr) {
  const auto* const found = std::ranges::find_if(kFormats, [&](const ElementFormat& format) {
    return !format.descr.empty() &&
           format.descr.substr(1) == descr.substr(std::min<std::size_t>(1, descr.size()));
  });
  return found == std::end(kFormats) ? nullptr : found;
}

void fill(const std::string& field, std::string_view how, const ElementFormat& format,
          std::span<std::byte> elements, std::uint64_t seed) {
  if (how == "none") {
    std::ranges::fill(elements, std::byte{0xff});
  } else if (how == "zeros") {
    std::ranges::fill(elements, std::byte{0});
  } else if (how == "arange") {
    fill_each(format, elements, [](std::size_t i) { return static_cast<double>(i); });
  } else if (how == "random") {
    fill_each(format, elements, [&](std::size_t i) { return drawn(seed, i, format.is_float); });
  } else {
    throw unknown_name(field, how, {"none", "zeros", "arange", "random"});
  }
}

void fill(double value, const ElementFormat& format, std::span<std::byte> elements) {
  fill_each(format, elements, [value](std::size_t) { return value; });
}

Comparison compare(const ElementFormat& format, std::span<const std::byte> elements,
                   const std::vector<double>& expected, double tolerance) {
  Comparison result;
  result.elements = expected.size();
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const double got = format.read(&elements[i * static_cast<std::size_t>(format.bytes)]);
    const bool both_nan = std::isnan(got) && std::isnan(expected[i]);
    const bool right = both_nan || got == expected[i] ||
                       std::abs(got - expected[i]) <= tolerance * std::max(1.0, std::abs(expected[i]));
    if (right) continue;
    if (result.wrong++ == 0) {
      result.first_wrong = i;
      result.got = got;
      result.expected = expected[i];
    }
  }
  return result;
}

}  // namespace tilescope::cli
