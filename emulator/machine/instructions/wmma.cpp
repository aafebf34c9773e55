// SPDX-License-Identifier: Apache-2.0
// wmma: matrices whose place in registers PTX leaves open. Here number n of a matrix is held by lane n
// divided by a lane's share, in the order in which it lies in memory (rows first of accumulators); what more
// a lane's registers hold repeats that.
#include <cstring>

#include "emulator/machine/instructions/fragments.hpp"
#include "emulator/machine/memory_access.hpp"

namespace tilescope::gpu::emulator {
namespace {

using ptx::Instruction;
using ptx::Type;

enum class Matrix { a, b, sums };

/// A matrix of a shape, and how it lies in memory and in registers.
template <Type type, int m, int n, int k, Matrix which>
struct Fragment {
  static constexpr int kRows = which == Matrix::b ? k : m, kColumns = which == Matrix::a ? k : n;
  static constexpr int kShare = kRows * kColumns / kLanes;
  static constexpr int kBytes = Packed<type>::bytes();

  struct Place {
    int row, column;
  };
  static Place place(int lane, int share, bool by_columns) {
    const int number = lane * kShare + share;
    return by_columns && which != Matrix::sums ? Place{number % kRows, number / kRows}
                                               : Place{number / kColumns, number % kColumns};
  }
};

/// Whether the qualifier at `index` of those that name layouts says .col.
bool by_columns(const Instruction& instruction, int index) {
  for (const std::string_view modifier : instruction.modifiers) {
    if (modifier != "row" && modifier != "col") continue;
    if (index-- == 0) return modifier == "col";
  }
  return false;
}

/// f(registers' list, index of the register, its part, share) for all that a lane holds.
template <class Numbers, int share, class F>
void each_part(const ptx::Operand& list, F&& f) {
  const int registers = list.kind == ptx::Operand::Kind::vector ? static_cast<int>(list.elements.size()) : 1;
  for (int index = 0; index < registers; ++index) {
    for (int part = 0; part < Numbers::kCount; ++part)
      f(index, part, (index * Numbers::kCount + part) % share);
  }
}

/// One request for each number of a lane's share.
template <class Fragment, class Visit>
void each_request(Warp& warp, const Instruction& instruction, std::size_t address, Purpose purpose,
                  Visit&& visit) {
  const auto& operands = instruction.operands;
  const bool columns_first = by_columns(instruction, 0);
  for (int share = 0; share < Fragment::kShare; ++share) {
    Addresses addresses{};
    for (int lane = 0; lane < kLanes; ++lane) {
      const std::uint64_t stride =
          operands.size() > 2 ? warp.value(operands[2], lane)
                              : static_cast<unsigned>(columns_first ? Fragment::kRows : Fragment::kColumns);
      const auto at = Fragment::place(lane, share, columns_first);
      const std::uint64_t major = static_cast<unsigned>(columns_first ? at.column : at.row);
      const std::uint64_t minor = static_cast<unsigned>(columns_first ? at.row : at.column);
      addresses[lane] = warp.address(operands[address], lane) + (major * stride + minor) * Fragment::kBytes;
    }
    visit(share, access_at(warp, addresses, reach_of(instruction), purpose, Fragment::kBytes));
  }
}

template <Type type, int m, int n, int k, Matrix which>
Outcome load(Warp& warp, const Instruction& instruction) {
  require_whole_warp(warp);
  using Numbers = Packed<type>;
  using Register = typename Numbers::Register;
  using Of = Fragment<type, m, n, k, which>;
  Register held[Of::kShare][kLanes] = {};
  each_request<Of>(warp, instruction, 1, Purpose::load, [&](int share, const Targets& targets) {
    for (int lane = 0; lane < kLanes; ++lane) std::memcpy(&held[share][lane], targets[lane], Of::kBytes);
  });
  const ptx::Operand& list = instruction.operands[0];
  each_part<Numbers, Of::kShare>(list, [&](int index, int part, int share) {
    auto* const values = warp.write<Register>(register_of(list, index));
    for (int lane = 0; lane < kLanes; ++lane)
      values[lane] = (part == 0 ? 0 : values[lane]) | held[share][lane] << (Numbers::kBits * part % 64);
  });
  return Outcome::next;
}

template <Type type, int m, int n, int k>
Outcome store(Warp& warp, const Instruction& instruction) {
  require_whole_warp(warp);
  using Numbers = Packed<type>;
  using Of = Fragment<type, m, n, k, Matrix::sums>;
  const ptx::Operand& list = instruction.operands[1];
  each_request<Of>(warp, instruction, 0, Purpose::store, [&](int share, const Targets& targets) {
    const auto* const values =
        warp.read<typename Numbers::Register>(register_of(list, share / Numbers::kCount));
    for (int lane = 0; lane < kLanes; ++lane) {
      const auto bits = values[lane] >> (Numbers::kBits * (share % Numbers::kCount));
      std::memcpy(targets[lane], &bits, Of::kBytes);
    }
  });
  return Outcome::next;
}

template <Type type, class Of, class Value, int rows, int columns>
void gather(const Warp& warp, const ptx::Operand& list, bool columns_first, Value (&matrix)[rows][columns]) {
  using Numbers = Packed<type>;
  each_part<Numbers, Of::kShare>(list, [&](int index, int part, int share) {
    const auto* const values = warp.read<typename Numbers::Register>(register_of(list, index));
    for (int lane = 0; lane < kLanes; ++lane) {
      const auto at = Of::place(lane, share, columns_first);
      matrix[at.row][at.column] = static_cast<Value>(Numbers::unpack(values[lane], part));
    }
  });
}

template <Type a, Type c, Type d, int m, int n, int k>
Outcome multiply(Warp& warp, const Instruction& instruction) {
  require_whole_warp(warp);
  using Value = typename Packed<a>::Value;
  using Sum = typename Packed<c>::Sum;
  using Numbers = Packed<d>;
  using Of = Fragment<d, m, n, k, Matrix::sums>;
  const auto& operands = instruction.operands;
  Value left[m][k], right[k][n];
  Sum sums[m][n];
  gather<a, Fragment<a, m, n, k, Matrix::a>>(warp, operands[1], by_columns(instruction, 0), left);
  gather<a, Fragment<a, m, n, k, Matrix::b>>(warp, operands[2], by_columns(instruction, 1), right);
  gather<c, Fragment<c, m, n, k, Matrix::sums>>(warp, operands[3], false, sums);
  add_product(left, right, sums);
  each_part<Numbers, Of::kShare>(operands[0], [&](int index, int part, int share) {
    auto* const values = warp.write<typename Numbers::Register>(register_of(operands[0], index));
    for (int lane = 0; lane < kLanes; ++lane) {
      const auto at = Of::place(lane, share, false);
      const std::uint64_t bits = Numbers::pack(sums[at.row][at.column], instruction.has("satfinite"));
      values[lane] = static_cast<typename Numbers::Register>((part == 0 ? 0 : values[lane]) |
                                                             bits << (Numbers::kBits * part));
    }
  });
  return Outcome::next;
}

/// f.operator()<m, n, k>() for the shape that the instruction names; `type` is one whose shapes are sought,
/// of sums all that numbers of 16 and 8 bits and tf32 have.
template <Type type, class F>
Execution of_shape(const Instruction& instruction, F&& f) {
  if constexpr (type == Type::f64) {
    if (instruction.has("m8n8k4")) return f.template operator()<8, 8, 4>();
    unknown_form();
  }
  if constexpr (type == Type::tf32 || type == Type::f32) {
    if (instruction.has("m16n16k8")) return f.template operator()<16, 16, 8>();
  }
  if constexpr (type != Type::f64 && type != Type::tf32) {
    if (instruction.has("m16n16k16")) return f.template operator()<16, 16, 16>();
    if (instruction.has("m32n8k16")) return f.template operator()<32, 8, 16>();
    if (instruction.has("m8n32k16")) return f.template operator()<8, 32, 16>();
  }
  unknown_form();
}

template <Type type, int m, int n, int k>
Execution load_of(const Instruction& instruction) {
  if constexpr (type == Type::f32 || type == Type::s32) {
    return {&load<type, m, n, k, Matrix::sums>, Converge::warp};
  } else {
    if (instruction.modifiers[1] == "a") return {&load<type, m, n, k, Matrix::a>, Converge::warp};
    if (instruction.modifiers[1] == "b") return {&load<type, m, n, k, Matrix::b>, Converge::warp};
    if constexpr (type == Type::f16 || type == Type::f64)
      return {&load<type, m, n, k, Matrix::sums>, Converge::warp};
    unknown_form();
  }
}

/// f.operator()<type>() for the type of numbers that lie in memory.
template <class F>
Execution of_type(Type type, F&& f) {
  switch (type) {
    case Type::f16:
      return f.template operator()<Type::f16>();
    case Type::bf16:
      return f.template operator()<Type::bf16>();
    case Type::tf32:
      return f.template operator()<Type::tf32>();
    case Type::s8:
      return f.template operator()<Type::s8>();
    case Type::u8:
      return f.template operator()<Type::u8>();
    case Type::f32:
      return f.template operator()<Type::f32>();
    case Type::s32:
      return f.template operator()<Type::s32>();
    case Type::f64:
      return f.template operator()<Type::f64>();
    default:
      unknown_form();
  }
}

Execution select_load(const Instruction& instruction) {
  const Type type = only_type(instruction);
  return of_type(type, [&]<Type t>() {
    return of_shape<t>(instruction, [&]<int m, int n, int k>() { return load_of<t, m, n, k>(instruction); });
  });
}

Execution select_store(const Instruction& instruction) {
  const Type type = only_type(instruction);
  return of_type(type, [&]<Type t>() {
    return of_shape<t>(instruction, [&]<int m, int n, int k>() -> Execution {
      if constexpr (t == Type::f16 || t == Type::f32 || t == Type::s32 || t == Type::f64)
        return {&store<t, m, n, k>, Converge::warp};
      unknown_form();
    });
  });
}

/// wmma.mma names the types of D and C, and of A and B where those are not fp16.
Execution select_product(const Instruction& instruction) {
  operand_count(instruction, 4, 4);
  const auto& types = instruction.types;
  if (types.size() != 2 && types.size() != 4) unknown_form();
  const Type d = types.front(), c = types.back(), a = types.size() == 4 ? types[1] : Type::f16;
  const auto of = [&]<Type x, Type y, Type z>() {
    return of_shape<x>(instruction, []<int m, int n, int k>() -> Execution {
      return {&multiply<x, y, z, m, n, k>, Converge::warp};
    });
  };
  if (a == Type::f64) return of.template operator()<Type::f64, Type::f64, Type::f64>();
  if (a == Type::s8) return of.template operator()<Type::s8, Type::s32, Type::s32>();
  if (a == Type::u8) return of.template operator()<Type::u8, Type::s32, Type::s32>();
  if (a == Type::bf16) return of.template operator()<Type::bf16, Type::f32, Type::f32>();
  if (a == Type::tf32) return of.template operator()<Type::tf32, Type::f32, Type::f32>();
  if (c == Type::f32)
    return d == Type::f32 ? of.template operator()<Type::f16, Type::f32, Type::f32>()
                          : of.template operator()<Type::f16, Type::f32, Type::f16>();
  return d == Type::f32 ? of.template operator()<Type::f16, Type::f16, Type::f32>()
                        : of.template operator()<Type::f16, Type::f16, Type::f16>();
}

}  // namespace

void add_wmma_handlers(HandlerTable& table) {
  table.add("wmma.load", select_load, "*a|*av");
  table.add("wmma.store", select_store, "a*|a*v");
  table.add("wmma.mma", select_product);
}

}  // namespace tilescope::gpu::emulator
