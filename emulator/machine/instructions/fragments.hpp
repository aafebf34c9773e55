// SPDX-License-Identifier: Apache-2.0
// Numbers in the registers of a warp that hold matrices, for mma and wmma. A product is summed exactly in
// fp64, accumulator included, and rounded once: PTX leaves order and rounding of the sum open. Whole numbers
// wrap, or stop at the ends of their range.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "cpu_ref/numeric/numeric.hpp"
#include "emulator/machine/instructions/rounding.hpp"
#include "emulator/machine/instructions/select.hpp"

namespace tilescope::gpu::emulator {

void add_mma_handlers(HandlerTable& table);
void add_wmma_handlers(HandlerTable& table);

constexpr bool is_whole(ptx::Type type) {
  return type == ptx::Type::s8 || type == ptx::Type::u8 || type == ptx::Type::s32;
}

/// How numbers of a type lie in registers: Register holds kCount of them, from the lowest bits up.
template <ptx::Type type>
struct Packed {
  static constexpr int bytes() {
    switch (type) {
      case ptx::Type::u8:
      case ptx::Type::s8:
      case ptx::Type::e4m3:
      case ptx::Type::e5m2:
        return 1;
      case ptx::Type::f16:
      case ptx::Type::bf16:
        return 2;
      case ptx::Type::f64:
        return 8;
      default:
        return 4;
    }
  }
  using Register = std::conditional_t<type == ptx::Type::f64, std::uint64_t, std::uint32_t>;
  static constexpr int kCount = static_cast<int>(sizeof(Register)) / bytes();
  static constexpr int kBits = 8 * bytes();
  /// Numbers as they are multiplied.
  using Value = std::conditional_t<type == ptx::Type::f64, double,
                                   std::conditional_t<is_whole(type), std::int32_t, float>>;
  using Sum = std::conditional_t<is_whole(type), std::int64_t, double>;

  static Value unpack(Register bits, int index) {
    const auto part = static_cast<std::uint32_t>(bits >> (kBits * index));
    if constexpr (type == ptx::Type::f64) return std::bit_cast<double>(bits);
    if constexpr (type == ptx::Type::f32) return std::bit_cast<float>(part);
    if constexpr (type == ptx::Type::tf32) return std::bit_cast<float>(part & 0xffffe000u);
    if constexpr (type == ptx::Type::s32) return static_cast<std::int32_t>(part);
    if constexpr (type == ptx::Type::f16) return fp16_to_fp32(static_cast<std::uint16_t>(part));
    if constexpr (type == ptx::Type::bf16) return bf16_to_fp32(static_cast<std::uint16_t>(part));
    if constexpr (type == ptx::Type::e4m3) return fp8e4m3_to_fp32(static_cast<std::uint8_t>(part));
    if constexpr (type == ptx::Type::e5m2) return fp8e5m2_to_fp32(static_cast<std::uint8_t>(part));
    if constexpr (type == ptx::Type::s8) return static_cast<std::int8_t>(part);
    if constexpr (type == ptx::Type::u8) return static_cast<std::uint8_t>(part);
  }
  /// A sum, as bits of the type of an accumulator.
  static std::uint64_t pack(Sum sum, bool saturates) {
    if constexpr (type == ptx::Type::f64) return std::bit_cast<std::uint64_t>(sum);
    if constexpr (type == ptx::Type::f32) return std::bit_cast<std::uint32_t>(static_cast<float>(sum));
    if constexpr (type == ptx::Type::f16) return sum == sum ? fp32_to_fp16(to_odd(sum)) : 0x7fff;
    if constexpr (type == ptx::Type::s32) {
      using Ends = std::numeric_limits<std::int32_t>;
      if (saturates) sum = std::min<std::int64_t>(std::max<std::int64_t>(sum, Ends::min()), Ends::max());
      return static_cast<std::uint32_t>(sum);
    }
  }
};

/// sums += left right, of numbers in rows.
template <class Value, class Sum, int rows, int depth, int columns>
inline void add_product(const Value (&left)[rows][depth], const Value (&right)[depth][columns],
                        Sum (&sums)[rows][columns]) {
  for (int row = 0; row < rows; ++row) {
    for (int k = 0; k < depth; ++k) {
      const Sum factor = static_cast<Sum>(left[row][k]);
      for (int column = 0; column < columns; ++column)
        sums[row][column] += factor * static_cast<Sum>(right[k][column]);
    }
  }
}

/// The register of a list, or the one that stands in its place.
inline const ptx::Operand& register_of(const ptx::Operand& list, int index) {
  return list.kind == ptx::Operand::Kind::vector ? list.elements[static_cast<std::size_t>(index)] : list;
}

}  // namespace tilescope::gpu::emulator
