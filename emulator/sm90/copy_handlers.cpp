// SPDX-License-Identifier: Apache-2.0
// Bulk copies of boxes by tensor maps: into shared memory, counted by mbarriers; out of it, stored or added.
#include <span>

#include "emulator/machine/address_space.hpp"
#include "emulator/machine/observer.hpp"
#include "emulator/sm90/bulk_copy.hpp"
#include "emulator/sm90/handlers.hpp"

namespace tilescope::gpu::emulator {
namespace {

constexpr std::uint32_t kBoxAlign = 128;

TensorMap map_at(Warp& warp, const ptx::Operand& operand, int lane) {
  const std::uint64_t address = warp.address(operand, lane);
  if (address % 64 != 0) throw Fault("a tensor map is not aligned to 64 bytes", lane);
  return decode_tensor_map(warp.cta.generic_bytes(address, 64, lane));
}

std::vector<std::int32_t> coordinates(const Warp& warp, const ptx::Operand& operand, int lane) {
  std::vector<std::int32_t> at;
  for (const ptx::Operand& element : operand.elements.at(1).elements) {
    at.push_back(static_cast<std::int32_t>(warp.value(element, lane)));
  }
  return at;
}

/// Tells the observer of the rows of a box.
void tell_box(const Cta& cta, const ptx::Instruction& instruction, const TensorMap& map,
              std::span<const std::int32_t> at, Purpose purpose, bool again = false) {
  Observer* const observer = cta.run.options.observer;
  if (!observer) return;
  for_each_box_row(map, at, [&](const BoxRow& row) {
    observer->engine(
        {cta, instruction, purpose, row.address - row.begin, map.row_bytes(), row.begin, row.end, again});
  });
}

// ---- Into shared memory.

Outcome load_tensor(Warp& warp, const ptx::Instruction& instruction) {
  const std::vector<ptx::Operand>& operands = instruction.operands;
  for_lanes(warp.active, [&](int lane) {
    const std::uint32_t target = shared_address(warp, operands[0], lane, kBoxAlign);
    const std::uint32_t barrier = shared_address(warp, operands[2], lane, 8);
    const TensorMap map = map_at(warp, operands[1], lane);
    const auto read = [map, at = coordinates(warp, operands[1], lane), &instruction](Cta& cta, bool again) {
      std::vector<std::byte> box = load_box(
          map, at, [&](std::uint64_t address, void* to, std::size_t bytes) { get(cta, address, to, bytes); });
      tell_box(cta, instruction, map, at, Purpose::load, again);
      return box;
    };
    const auto chunks = [map, offset = offset_of_shared_address(target)](const ChunkVisitor& visit) {
      for_each_box_chunk(map, offset, visit);
    };
    issue_load(
        warp, instruction, lane, target, barrier,
        instruction.has("multicast::cluster") ? &operands[3] : nullptr,
        {static_cast<std::uint32_t>(map.box_bytes()), offset_of_shared_address(barrier), chunks, read});
  });
  return Outcome::next;
}

// ---- Out of shared memory.

template <bool kReduces>
Outcome store_tensor(Warp& warp, const ptx::Instruction& instruction) {
  for_lanes(warp.active, [&](int lane) {
    const TensorMap map = map_at(warp, instruction.operands[0], lane);
    const std::uint32_t source = own_offset(warp, instruction.operands[1], lane, kBoxAlign);
    Run& run = warp.cta.run;
    issue_store(
        warp, instruction, lane, map.box_bytes(),
        [map, source](const auto& visit) { for_each_box_chunk(map, source, visit); },
        [map, &run, &cta = warp.cta, &instruction,
         at = coordinates(warp, instruction.operands[0], lane)](const std::vector<std::byte>& box) {
          tell_box(cta, instruction, map, at, kReduces ? Purpose::reduce : Purpose::store);
          store_box(map, at, box, [&](std::uint64_t address, const void* bytes, std::size_t count) {
            put(run, kReduces ? reduction_of(instruction) : Reduction::none, map.type, address, bytes, count);
          });
        });
  });
  return Outcome::next;
}

Outcome prefetch_map(Warp& warp, const ptx::Instruction& instruction) {
  for_lanes(warp.active, [&](int lane) { map_at(warp, instruction.operands[0], lane); });
  return Outcome::next;
}

/// "cp.async.bulk.tensor.4d.shared::cluster.global...": what is named first is written.
Execution select_tensor_copy(const ptx::Instruction& instruction) {
  const std::string_view target = instruction.modifiers.at(4);
  const bool to_many = instruction.has("multicast::cluster");
  if (target == "global" && instruction.has("bulk_group") && operands_fit(instruction, "ta|tav"))
    return {store_tensor<false>};
  if (target.starts_with("shared::") && instruction.has("mbarrier::complete_tx::bytes") &&
      operands_fit(instruction, to_many ? "atav|atavv" : "ata|atav"))
    return {load_tensor};
  throw std::runtime_error("a bulk copy that is not known");
}
Execution select_tensor_reduction(const ptx::Instruction& instruction) {
  reduction_of(instruction);
  return {store_tensor<true>};
}
}  // namespace

void add_copy_handlers(HandlerTable& table) {
  table.add("cp.async.bulk.tensor", select_tensor_copy);
  table.add("cp.reduce.async.bulk.tensor", select_tensor_reduction, "ta|tav");
  table.add("prefetch.tensormap", {prefetch_map}, "a");
}

}  // namespace tilescope::gpu::emulator
