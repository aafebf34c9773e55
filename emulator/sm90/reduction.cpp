// SPDX-License-Identifier: Apache-2.0
#include "emulator/sm90/reduction.hpp"

#include <cstring>
#include <stdexcept>
#include <string_view>
#include <type_traits>
#include <utility>

#include "cpu_ref/numeric/numeric.hpp"
#include "emulator/machine/launch.hpp"

namespace tilescope::gpu::emulator {
namespace {

[[noreturn]] void refuse() { throw Fault("numbers of this type are not reduced so by copies"); }

template <class T, class Combine>
void each(void* target, const void* source, std::size_t bytes, Combine combine) {
  for (std::size_t at = 0; at < bytes; at += sizeof(T)) {
    T old, term;
    std::memcpy(&old, static_cast<char*>(target) + at, sizeof(T));
    std::memcpy(&term, static_cast<const char*>(source) + at, sizeof(T));
    const T next = combine(old, term);
    std::memcpy(static_cast<char*>(target) + at, &next, sizeof(T));
  }
}

template <class T>
T combined(Reduction reduction, T old, T term) {
  if (reduction == Reduction::add) return static_cast<T>(old + term);
  if (reduction == Reduction::minimum) return term < old ? term : old;
  if (reduction == Reduction::maximum) return old < term ? term : old;
  if constexpr (std::is_integral_v<T>) {
    if (reduction == Reduction::bit_and) return old & term;
    if (reduction == Reduction::bit_or) return old | term;
    if (reduction == Reduction::bit_xor) return old ^ term;
    if (reduction == Reduction::increment) return old >= term ? T{0} : static_cast<T>(old + 1);
    if (reduction == Reduction::decrement) return old == 0 || old > term ? term : static_cast<T>(old - 1);
  }
  refuse();
}

template <float (*widen)(std::uint16_t), std::uint16_t (*narrow)(float)>
std::uint16_t combined_halves(Reduction reduction, std::uint16_t old, std::uint16_t term) {
  return narrow(combined<float>(reduction, widen(old), widen(term)));
}

}  // namespace

Reduction reduction_of(const ptx::Instruction& instruction) {
  constexpr std::pair<std::string_view, Reduction> kNames[] = {
      {"add", Reduction::add},       {"min", Reduction::minimum},   {"max", Reduction::maximum},
      {"and", Reduction::bit_and},   {"or", Reduction::bit_or},     {"xor", Reduction::bit_xor},
      {"inc", Reduction::increment}, {"dec", Reduction::decrement},
  };
  for (const auto& [name, reduction] : kNames) {
    if (instruction.has(name)) return reduction;
  }
  throw std::runtime_error("a reduction that is not known");
}

MapType number_type_of(const ptx::Instruction& instruction) {
  using ptx::Type;
  constexpr std::pair<Type, MapType> kTypes[] = {
      {Type::f16, MapType::float16}, {Type::bf16, MapType::bfloat16}, {Type::f32, MapType::float32},
      {Type::f64, MapType::float64}, {Type::u32, MapType::uint32},    {Type::b32, MapType::uint32},
      {Type::s32, MapType::int32},   {Type::u64, MapType::uint64},    {Type::b64, MapType::uint64},
      {Type::s64, MapType::int64},
  };
  for (const auto& [type, named] : kTypes) {
    if (!instruction.types.empty() && instruction.types.back() == type) return named;
  }
  throw std::runtime_error("numbers of a type that is not known here");
}

void reduce_elements(Reduction reduction, MapType type, void* target, const void* source, std::size_t bytes) {
  const auto plain = [&]<class T>(T) {
    each<T>(target, source, bytes, [&](T old, T term) { return combined(reduction, old, term); });
  };
  const auto halves = [&](auto combine) {
    each<std::uint16_t>(target, source, bytes,
                        [&](auto old, auto term) { return combine(reduction, old, term); });
  };
  switch (type) {
    case MapType::float32:
    case MapType::float32_ftz:
      return plain(float{});
    case MapType::float64:
      return plain(double{});
    case MapType::float16:
      return halves(combined_halves<fp16_to_fp32, fp32_to_fp16>);
    case MapType::bfloat16:
      return halves(combined_halves<bf16_to_fp32, fp32_to_bf16>);
    case MapType::uint32:
      return plain(std::uint32_t{});
    case MapType::int32:
      return plain(std::int32_t{});
    case MapType::uint64:
      return plain(std::uint64_t{});
    case MapType::int64:
      return plain(std::int64_t{});
    default:
      refuse();
  }
}

}  // namespace tilescope::gpu::emulator
