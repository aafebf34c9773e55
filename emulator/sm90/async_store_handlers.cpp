// SPDX-License-Identifier: Apache-2.0
// st.async and red.async: registers to the shared memory of a CTA of the cluster, counted there by an
// mbarrier.
#include <cstring>
#include <span>

#include "emulator/machine/address_space.hpp"
#include "emulator/sm90/bulk_copy.hpp"
#include "emulator/sm90/handlers.hpp"

namespace tilescope::gpu::emulator {
namespace {

/// A lane's numbers, one behind the other as they will lie in memory.
std::vector<std::byte> numbers_of(const Warp& warp, const ptx::Operand& operand, std::size_t each, int lane) {
  const bool is_list = operand.kind == ptx::Operand::Kind::vector;
  std::vector<std::byte> bytes;
  for (const ptx::Operand& one : is_list ? std::span(operand.elements) : std::span(&operand, 1)) {
    const std::uint64_t value = warp.value(one, lane);
    const auto* const begin = reinterpret_cast<const std::byte*>(&value);
    bytes.insert(bytes.end(), begin, begin + each);
  }
  return bytes;
}

/// Operands: where to, the numbers, the mbarrier, which lies in the same CTA.
template <bool kReduces>
Outcome store(Warp& warp, const ptx::Instruction& instruction) {
  const auto& operands = instruction.operands;
  const auto each = static_cast<std::size_t>(ptx::bytes_of(instruction.types.back()));
  const Reduction reduction = kReduces ? reduction_of(instruction) : Reduction::none;
  const MapType type = number_type_of(instruction);
  for_lanes(warp.active, [&](int lane) {
    std::vector<std::byte> numbers = numbers_of(warp, operands[1], each, lane);
    const auto bytes = static_cast<std::uint32_t>(numbers.size());
    const std::uint32_t target = shared_address(warp, operands[0], lane, bytes);
    const std::uint32_t barrier = shared_address(warp, operands[2], lane, 8);
    BulkLoad stored;
    stored.bytes = stored.chunk = bytes;
    stored.barrier = offset_of_shared_address(barrier);
    stored.by_engine = false;
    stored.reduces = kReduces;
    stored.chunks = [offset = offset_of_shared_address(target)](const ChunkVisitor& visit) {
      visit(0, offset);
    };
    stored.read = [numbers = std::move(numbers), offset = offset_of_shared_address(target), how = reduction,
                   type](Cta& cta, bool) {
      if (how == Reduction::none) return numbers;
      std::vector<std::byte> next(numbers.size());
      std::memcpy(next.data(), cta.shared_range(offset, static_cast<std::uint32_t>(next.size())),
                  next.size());
      reduce_elements(how, type, next.data(), numbers.data(), next.size());
      return next;
    };
    issue_load(warp, instruction, lane, target, barrier, nullptr, std::move(stored));
  });
  return Outcome::next;
}

template <bool kReduces>
Execution select(const ptx::Instruction& instruction) {
  const bool is_counted = instruction.has("mbarrier::complete_tx::bytes");
  if (!is_counted || instruction.types.size() != 1)
    throw std::runtime_error("an asynchronous store that no mbarrier counts is not known");
  number_type_of(instruction);
  if (kReduces) reduction_of(instruction);
  return {store<kReduces>};
}

}  // namespace

void add_async_store_handlers(HandlerTable& table) {
  table.add("st.async", select<false>, "a*a");
  table.add("red.async", select<true>, "ava");
}

}  // namespace tilescope::gpu::emulator
