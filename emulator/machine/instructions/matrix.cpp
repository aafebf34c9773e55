// SPDX-License-Identifier: Apache-2.0
// Matrices that lie across a warp, to and from shared memory: ldmatrix, stmatrix; movmatrix.
#include <array>
#include <cstring>

#include "emulator/machine/instructions/fragments.hpp"
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

/// Rows become columns: of registers alone.
Outcome transpose_matrix(Warp& warp, const Instruction& instruction) {
  require_whole_warp(warp);
  std::array<std::uint16_t, 2 * kLanes> from;
  std::memcpy(from.data(), warp.read<std::uint32_t>(instruction.operands[1]), sizeof from);
  auto* const to = warp.write<std::uint16_t>(instruction.operands[0]);
  for (int row = 0; row < kRows; ++row) {
    for (int column = 0; column < kRows; ++column)
      to[kRows * row + column] = from[static_cast<std::size_t>(kRows * column + row)];
  }
  return Outcome::next;
}
Execution select_transpose(const Instruction& instruction) {
  only_modifiers(instruction, {"sync", "aligned", "m8n8", "trans"});
  plain_operands(instruction, 2);
  return {&transpose_matrix, Converge::warp};
}

}  // namespace

void add_matrix_handlers(HandlerTable& table) {
  table.add("ldmatrix.sync.aligned", select_load);
  table.add("stmatrix.sync.aligned", select_store);
  table.add("movmatrix.sync.aligned", select_transpose);
  add_mma_handlers(table);
  add_wmma_handlers(table);
}

}  // namespace tilescope::gpu::emulator
