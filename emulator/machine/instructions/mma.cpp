// SPDX-License-Identifier: Apache-2.0
// mma.sync: products of matrices in the registers of a warp. Where which number lies: PTX ISA, "Matrix
// fragments for mma". All shapes follow one rule. Lane 4 g + t holds rows g (and, in every other register, g
// + 8) of A and columns g of B, of k those from t times as many as a register holds; the next registers those
// behind.
#include "emulator/machine/instructions/fragments.hpp"

namespace tilescope::gpu::emulator {
namespace {

using ptx::Instruction;
using ptx::Type;

constexpr int kColumns = 8;

/// The numbers of one register, lane by lane.
template <Type type>
void unpack_register(const Warp& warp, const ptx::Operand& operand,
                     typename Packed<type>::Value (&numbers)[kLanes * Packed<type>::kCount]) {
  using Numbers = Packed<type>;
  const auto* const values = warp.read<typename Numbers::Register>(operand);
  if constexpr (type == Type::f16 || type == Type::bf16) {
    widen(type == Type::f16 ? ElementType::fp16 : ElementType::bf16, values, numbers,
          kLanes * Numbers::kCount);
  } else {
    for (int lane = 0; lane < kLanes; ++lane) {
      for (int part = 0; part < Numbers::kCount; ++part)
        numbers[lane * Numbers::kCount + part] = Numbers::unpack(values[lane], part);
    }
  }
}

/// f(row, k, number) for A of `rows` x `depth`; B is so too, with one row in place of a column.
template <Type type, int rows, int depth, class F>
void each_number(const Warp& warp, const ptx::Operand& list, F&& f) {
  using Numbers = Packed<type>;
  constexpr int kHeight = rows / 8, kSpan = 4 * Numbers::kCount, kRegisters = kHeight * depth / kSpan;
  typename Numbers::Value numbers[kLanes * Numbers::kCount];
  for (int index = 0; index < kRegisters; ++index) {
    unpack_register<type>(warp, register_of(list, index), numbers);
    for (int lane = 0; lane < kLanes; ++lane) {
      for (int part = 0; part < Numbers::kCount; ++part) {
        const int k = lane % 4 * Numbers::kCount + part + index / kHeight * kSpan;
        f(lane / 4 + index % kHeight * 8, k, numbers[lane * Numbers::kCount + part]);
      }
    }
  }
}

/// Where part `part` of register `index` of an accumulator lies.
template <Type type>
std::pair<int, int> place_of_sum(int lane, int index, int part) {
  const int number = index * Packed<type>::kCount + part;
  return {lane / 4 + 8 * (number / 2), 2 * (lane % 4) + number % 2};
}
template <Type type, int rows>
constexpr int kSumRegisters = rows* kColumns / kLanes / Packed<type>::kCount;

template <class Value, class Sum, int rows, int depth>
TILESCOPE_HASWELL_CLONES void add_fragments(const Value (&left)[rows][depth],
                                            const Value (&right)[depth][kColumns],
                                            Sum (&sums)[rows][kColumns]) {
  add_product(left, right, sums);
}

/// D = A B + C, of A and B in types a and b, and sums in type c.
template <Type a, Type b, Type c, int rows, int depth>
Outcome multiply(Warp& warp, const Instruction& instruction) {
  require_whole_warp(warp);
  using Value = typename Packed<a>::Value;
  using Sum = typename Packed<c>::Sum;
  const auto& operands = instruction.operands;
  Value left[rows][depth], right[depth][kColumns];
  each_number<a, rows, depth>(warp, operands[1], [&](int row, int k, Value value) { left[row][k] = value; });
  each_number<b, 8, depth>(warp, operands[2],
                           [&](int column, int k, Value value) { right[k][column] = value; });
  Sum sums[rows][kColumns];
  using Numbers = Packed<c>;
  for (int index = 0; index < kSumRegisters<c, rows>; ++index) {
    const auto* const values = warp.read<typename Numbers::Register>(register_of(operands[3], index));
    for (int lane = 0; lane < kLanes; ++lane) {
      for (int part = 0; part < Numbers::kCount; ++part) {
        const auto [row, column] = place_of_sum<c>(lane, index, part);
        sums[row][column] = static_cast<Sum>(Numbers::unpack(values[lane], part));
      }
    }
  }
  add_fragments(left, right, sums);
  const bool saturates = instruction.has("satfinite");
  for (int index = 0; index < kSumRegisters<c, rows>; ++index) {
    auto* const values = warp.write<typename Numbers::Register>(register_of(operands[0], index));
    for (int lane = 0; lane < kLanes; ++lane) {
      std::uint64_t bits = 0;
      for (int part = 0; part < Numbers::kCount; ++part) {
        const auto [row, column] = place_of_sum<c>(lane, index, part);
        bits |= Numbers::pack(sums[row][column], saturates) << (Numbers::kBits * part);
      }
      values[lane] = static_cast<typename Numbers::Register>(bits);
    }
  }
  return Outcome::next;
}

template <Type a, Type b, Type c, int rows, int depth>
Execution checked(const Instruction& instruction) {
  using Left = Packed<a>;
  operand_count(instruction, 4, 4);
  const std::size_t sums = kSumRegisters<c, rows>;
  const std::size_t counts[] = {sums, rows * depth / kLanes / Left::kCount, 8 * depth / kLanes / Left::kCount,
                                sums};
  for (std::size_t i = 0; i < 4; ++i) {
    const bool is_sum = i == 0 || i == 3;
    register_list(instruction.operands[i], counts[i],
                  is_sum ? sizeof(typename Packed<c>::Register) : sizeof(typename Left::Register));
  }
  return {&multiply<a, b, c, rows, depth>, Converge::warp};
}

/// Of the depths that a type has, the one that the shape names.
template <Type a, Type b, Type c, int shallow, int deep>
Execution of_depth(const Instruction& instruction) {
  if (instruction.has("m16n8k" + std::to_string(deep))) return checked<a, b, c, 16, deep>(instruction);
  if (instruction.has("m16n8k" + std::to_string(shallow))) return checked<a, b, c, 16, shallow>(instruction);
  unknown_form();
}
template <Type a, Type b>
Execution of_whole(const Instruction& instruction) {
  if (instruction.has("m8n8k16")) return checked<a, b, Type::s32, 8, 16>(instruction);
  return of_depth<a, b, Type::s32, 16, 32>(instruction);
}
template <Type a>
Execution of_halves(const Instruction& instruction, bool narrow_sums) {
  if constexpr (a == Type::f16) {
    if (narrow_sums) return of_depth<a, a, Type::f16, 8, 16>(instruction);
  }
  if (narrow_sums) unknown_form();
  return of_depth<a, a, Type::f32, 8, 16>(instruction);
}
template <Type a, Type b>
Execution of_bytes(const Instruction& instruction, bool narrow_sums) {
  return narrow_sums ? of_depth<a, b, Type::f16, 16, 32>(instruction)
                     : of_depth<a, b, Type::f32, 16, 32>(instruction);
}
Execution of_doubles(const Instruction& instruction) {
  constexpr Type f64 = Type::f64;
  if (instruction.has("m8n8k4")) return checked<f64, f64, f64, 8, 4>(instruction);
  if (instruction.has("m16n8k16")) return checked<f64, f64, f64, 16, 16>(instruction);
  return of_depth<f64, f64, f64, 4, 8>(instruction);
}

Execution select_product(const Instruction& instruction) {
  only_modifiers(instruction, {"sync", "aligned", "row", "col", "satfinite", "rn", "kind::f8f6f4", "m8n8k4",
                               "m8n8k16", "m16n8k4", "m16n8k8", "m16n8k16", "m16n8k32"});
  const auto& types = instruction.types;
  if (types.size() != 4 || types[0] != types[3]) unknown_form();
  const Type a = types[1], b = types[2], c = types[0];
  if (c == Type::s32) {
    if (a == Type::s8)
      return b == Type::s8 ? of_whole<Type::s8, Type::s8>(instruction)
                           : of_whole<Type::s8, Type::u8>(instruction);
    if (a == Type::u8)
      return b == Type::s8 ? of_whole<Type::u8, Type::s8>(instruction)
                           : of_whole<Type::u8, Type::u8>(instruction);
    unknown_form();
  }
  const bool narrow = c == Type::f16;
  if (c == Type::f64 && a == c && b == c) return of_doubles(instruction);
  if (!narrow && c != Type::f32) unknown_form();
  if (a == Type::f16 && b == a) return of_halves<Type::f16>(instruction, narrow);
  if (a == Type::bf16 && b == a) return of_halves<Type::bf16>(instruction, narrow);
  if (a == Type::tf32 && b == a && !narrow)
    return of_depth<Type::tf32, Type::tf32, Type::f32, 4, 8>(instruction);
  constexpr Type e4m3 = Type::e4m3, e5m2 = Type::e5m2;
  if (a == e4m3 && b == e4m3) return of_bytes<e4m3, e4m3>(instruction, narrow);
  if (a == e4m3 && b == e5m2) return of_bytes<e4m3, e5m2>(instruction, narrow);
  if (a == e5m2 && b == e4m3) return of_bytes<e5m2, e4m3>(instruction, narrow);
  if (a == e5m2 && b == e5m2) return of_bytes<e5m2, e5m2>(instruction, narrow);
  unknown_form();
}

}  // namespace

void add_mma_handlers(HandlerTable& table) { table.add("mma.sync.aligned", select_product); }

}  // namespace tilescope::gpu::emulator
