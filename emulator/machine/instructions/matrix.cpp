// SPDX-License-Identifier: Apache-2.0
// Matrices that lie across a warp: ldmatrix, stmatrix, mma.sync. A product is summed exactly in fp64,
// accumulator included, and rounded once: PTX leaves order and rounding of the sum open.
#include <cstring>

#include "cpu_ref/numeric/numeric.hpp"
#include "emulator/machine/instructions/select.hpp"
#include "emulator/machine/memory_access.hpp"

namespace tilescope::gpu::emulator {
namespace {

using ptx::Instruction;
using ptx::Operand;

constexpr int kRows = 8, kRowBytes = 16;  // of a matrix of 8 x 8 16-bit elements

int matrices_of(const Instruction& instruction) {
  return instruction.has("x4") ? 4 : instruction.has("x2") ? 2 : 1;
}

/// Lane 8 i + r gives the address of row r of matrix i.
Targets rows(Warp& warp, const Operand& address, int matrices, Purpose purpose) {
  require_whole_warp(warp);
  const LaneMask all = warp.active;
  warp.active &= static_cast<LaneMask>((1ull << (kRows * matrices)) - 1);
  const Targets targets = access(warp, address, Reach::shared, purpose, kRowBytes);
  warp.active = all;
  return targets;
}

/// The byte in its row, and the row, of the element that half `half` of a lane's register holds.
struct Place {
  int row, byte;
};
template <bool transposed>
Place place_of(int lane, int half) {
  const int major = lane / 4, minor = 2 * (lane % 4) + half;
  return transposed ? Place{minor, 2 * major} : Place{major, 2 * minor};
}

const Operand& register_of(const Operand& list, int index) {
  return list.kind == Operand::Kind::vector ? list.elements[static_cast<std::size_t>(index)] : list;
}

template <bool transposed>
Outcome load_matrices(Warp& warp, const Instruction& instruction) {
  const int matrices = matrices_of(instruction);
  const Targets sources = rows(warp, instruction.operands[1], matrices, Purpose::load);
  for (int matrix = 0; matrix < matrices; ++matrix) {
    auto* const result = warp.write<std::uint16_t>(register_of(instruction.operands[0], matrix));
    for (int lane = 0; lane < kLanes; ++lane) {
      for (int half = 0; half < 2; ++half) {
        const Place place = place_of<transposed>(lane, half);
        std::memcpy(result + 2 * lane + half, sources[kRows * matrix + place.row] + place.byte, 2);
      }
    }
  }
  return Outcome::next;
}

template <bool transposed>
Outcome store_matrices(Warp& warp, const Instruction& instruction) {
  const int matrices = matrices_of(instruction);
  const Targets targets = rows(warp, instruction.operands[0], matrices, Purpose::store);
  for (int matrix = 0; matrix < matrices; ++matrix) {
    const auto* const values = reinterpret_cast<const std::uint16_t*>(
        warp.read<std::uint32_t>(register_of(instruction.operands[1], matrix)));
    for (int lane = 0; lane < kLanes; ++lane) {
      for (int half = 0; half < 2; ++half) {
        const Place place = place_of<transposed>(lane, half);
        std::memcpy(targets[kRows * matrix + place.row] + place.byte, values + 2 * lane + half, 2);
      }
    }
  }
  return Outcome::next;
}

/// @param registers, address  which operand is which
void check_matrices(const Instruction& instruction, std::size_t registers, std::size_t address) {
  only_modifiers(instruction,
                 {"sync", "aligned", "m8n8", "x1", "x2", "x4", "trans", "shared", "shared::cta"});
  operand_count(instruction, 2, 2);
  register_list(instruction.operands[registers], static_cast<std::size_t>(matrices_of(instruction)), 4);
  if (instruction.operands[address].kind != Operand::Kind::address) unknown_form();
}

Execution select_load(const Instruction& instruction) {
  check_matrices(instruction, 0, 1);
  return {instruction.has("trans") ? &load_matrices<true> : &load_matrices<false>, Converge::warp};
}
Execution select_store(const Instruction& instruction) {
  check_matrices(instruction, 1, 0);
  return {instruction.has("trans") ? &store_matrices<true> : &store_matrices<false>, Converge::warp};
}

/// Halves of 32-bit registers as fp32, by register, lane and half.
template <ElementType type, int registers>
void widen_fragments(const Warp& warp, const Operand& list, float (&values)[registers][kLanes][2]) {
  for (int index = 0; index < registers; ++index) {
    const auto* const pairs = warp.read<std::uint32_t>(list.elements[static_cast<std::size_t>(index)]);
    widen(type, pairs, &values[index][0][0], 2 * kLanes);
  }
}

constexpr int kProductRows = 16, kProductColumns = 8;

/// sums += left right. Products of 16-bit numbers are exact in fp64, with or without fused additions.
template <int depth>
void add_products(const float (&left)[kProductRows][depth], const float (&right)[depth][kProductColumns],
                  double (&sums)[kProductRows][kProductColumns]) {
  for (int row = 0; row < kProductRows; ++row) {
    for (int k = 0; k < depth; ++k) {
      const double factor = left[row][k];
      for (int column = 0; column < kProductColumns; ++column)
        sums[row][column] += factor * static_cast<double>(right[k][column]);
    }
  }
}
TILESCOPE_HASWELL_CLONES void add_deep_products(const float (&left)[kProductRows][16],
                                                const float (&right)[16][kProductColumns],
                                                double (&sums)[kProductRows][kProductColumns]) {
  add_products(left, right, sums);
}

/// D = A B + C of 16 x 8, K = 8 * groups: A's registers 2 g and 2 g + 1 hold its upper and lower eight rows
/// of columns 8 g to 8 g + 7, B's register g the same rows of B (PTX ISA, "Matrix fragments for
/// mma.m16n8k16").
template <ElementType type, int groups>
Outcome multiply(Warp& warp, const Instruction& instruction) {
  require_whole_warp(warp);
  const auto& operands = instruction.operands;
  float a[2 * groups][kLanes][2], b[groups][kLanes][2];
  widen_fragments<type>(warp, operands[1], a);
  widen_fragments<type>(warp, operands[2], b);
  float left[kProductRows][8 * groups], right[8 * groups][kProductColumns];
  for (int lane = 0; lane < kLanes; ++lane) {
    for (int group = 0; group < groups; ++group) {
      for (int half = 0; half < 2; ++half) {
        const int k = 8 * group + 2 * (lane % 4) + half;
        left[lane / 4][k] = a[2 * group][lane][half];
        left[lane / 4 + 8][k] = a[2 * group + 1][lane][half];
        right[k][lane / 4] = b[group][lane][half];
      }
    }
  }
  double sums[kProductRows][kProductColumns];
  const auto sum_of = [&](int lane, int index) -> double& {
    return sums[lane / 4 + 8 * (index / 2)][2 * (lane % 4) + index % 2];
  };
  for (int index = 0; index < 4; ++index) {
    const float* const c = warp.read<float>(operands[3].elements[static_cast<std::size_t>(index)]);
    for (int lane = 0; lane < kLanes; ++lane) sum_of(lane, index) = static_cast<double>(c[lane]);
  }
  if constexpr (groups == 2) {
    add_deep_products(left, right, sums);
  } else {
    add_products(left, right, sums);
  }
  for (int index = 0; index < 4; ++index) {
    float* const d = warp.write<float>(operands[0].elements[static_cast<std::size_t>(index)]);
    for (int lane = 0; lane < kLanes; ++lane) d[lane] = static_cast<float>(sum_of(lane, index));
  }
  return Outcome::next;
}

Execution select_product(const Instruction& instruction) {
  only_modifiers(instruction, {"sync", "aligned", "row", "col", "m16n8k16", "m16n8k8"});
  const auto& types = instruction.types;
  if (types.size() != 4 || types[0] != ptx::Type::f32 || types[3] != ptx::Type::f32 || types[1] != types[2])
    unknown_form();
  const bool deep = instruction.has("m16n8k16");
  operand_count(instruction, 4, 4);
  const std::size_t registers[] = {4, deep ? 4u : 2u, deep ? 2u : 1u, 4};
  for (std::size_t i = 0; i < 4; ++i) register_list(instruction.operands[i], registers[i], 4);
  if (types[1] == ptx::Type::f16)
    return {deep ? &multiply<ElementType::fp16, 2> : &multiply<ElementType::fp16, 1>, Converge::warp};
  if (types[1] == ptx::Type::bf16)
    return {deep ? &multiply<ElementType::bf16, 2> : &multiply<ElementType::bf16, 1>, Converge::warp};
  unknown_form();
}

}  // namespace

void add_matrix_handlers(HandlerTable& table) {
  table.add("ldmatrix.sync.aligned", select_load);
  table.add("stmatrix.sync.aligned", select_store);
  table.add("mma.sync.aligned", select_product);
}

}  // namespace tilescope::gpu::emulator
