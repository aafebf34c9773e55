// SPDX-License-Identifier: Apache-2.0
// Tensor maps that a kernel makes: tensormap.replace in shared or global memory, the copy of one to where
// others read it, and the fences for that.
#include "emulator/machine/instructions/select.hpp"
#include "emulator/machine/memory_access.hpp"
#include "emulator/sm90/handlers.hpp"
#include "emulator/sm90/tensor_map.hpp"

namespace tilescope::gpu::emulator {
namespace {

constexpr std::uint32_t kMapBytes = kTensorMapBytes;

std::byte* map_at(Warp& warp, const ptx::Operand& operand, Reach reach, int lane) {
  const std::uint64_t address = warp.address(operand, lane);
  if (address % kMapBytes != 0) throw Fault("a tensor map is not aligned to 128 bytes", lane);
  return reach == Reach::shared ? warp.cta.shared_range(static_cast<std::uint32_t>(address), kMapBytes, lane)
                                : warp.cta.generic_bytes(address, kMapBytes, lane);
}

/// tensormap.replace.tile.FIELD.SPACE.b1024.TYPE [map]{, dimension}, value
Outcome replace(Warp& warp, const ptx::Instruction& instruction) {
  const auto& operands = instruction.operands;
  for_lanes(warp.active, [&](int lane) {
    const auto dimension =
        operands.size() == 3 ? static_cast<std::uint32_t>(warp.value(operands[1], lane)) : 0u;
    replace_in_tensor_map(map_at(warp, operands[0], reach_of(instruction), lane), instruction.modifiers[2],
                          dimension, warp.value(operands.back(), lane));
  });
  return Outcome::next;
}

/// tensormap.cp_fenceproxy.global.shared::cta... [to], [from], 128: by all lanes together, once
Outcome copy_map(Warp& warp, const ptx::Instruction& instruction) {
  require_whole_warp(warp);
  constexpr std::uint32_t kPiece = 16, kPieces = kMapBytes / kPiece;
  const LaneMask all = warp.active;
  warp.active = (1u << kPieces) - 1;
  const std::byte* const from = map_at(warp, instruction.operands[1], Reach::shared, 0);
  Addresses addresses{};
  for (std::uint32_t piece = 0; piece < kPieces; ++piece)
    addresses[piece] = warp.address(instruction.operands[0], 0) + kPiece * piece;
  const Targets targets = access_at(warp, addresses, Reach::global, Purpose::store, kPiece);
  for (std::uint32_t piece = 0; piece < kPieces; ++piece)
    std::copy_n(from + kPiece * piece, kPiece, targets[piece]);
  warp.active = all;
  return Outcome::next;
}

Execution select_replace(const ptx::Instruction& instruction) {
  if (instruction.modifiers.size() < 4 || instruction.modifiers[1] != "tile") unknown_form();
  return {replace};
}
Execution select_copy(const ptx::Instruction& instruction) {
  if (instruction.operands[2].value != kMapBytes) unknown_form();
  return {copy_map, Converge::warp};
}

}  // namespace

void add_tensormap_handlers(HandlerTable& table) {
  table.add("tensormap.replace", select_replace, "av|avv");
  table.add("tensormap.cp_fenceproxy", select_copy, "aav");
  // Maps are read when a copy is issued: there is no cache of theirs that could be old.
  table.add("fence.proxy.tensormap::generic", {simply<Outcome::next>});
}

}  // namespace tilescope::gpu::emulator
