// SPDX-License-Identifier: Apache-2.0
#include "emulator/machine/memory_access.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <vector>

#include "emulator/machine/address_space.hpp"
#include "emulator/machine/cta_order.hpp"
#include "emulator/machine/observer.hpp"
#include "emulator/machine/shared_places.hpp"

namespace tilescope::gpu::emulator {
namespace {

Addresses addresses_of(const Warp& warp, const ptx::Operand& operand) {
  Addresses addresses;
  const ptx::Operand& base = operand.elements[0];
  const auto displacement = static_cast<std::uint64_t>(operand.value);
  if (base.bytes == 4) {
    const auto* const bases = warp.read<std::uint32_t>(base);
    for (int lane = 0; lane < kLanes; ++lane)
      addresses[lane] = static_cast<std::uint32_t>(bases[lane] + displacement);
  } else {
    const auto* const bases = warp.read<std::uint64_t>(base);
    for (int lane = 0; lane < kLanes; ++lane) addresses[lane] = bases[lane] + displacement;
  }
  return addresses;
}

void check_alignment(const Warp& warp, const Addresses& addresses, Reach reach, std::uint32_t alignment) {
  std::uint64_t low_bits = 0;
  for_lanes(warp.active, [&](int lane) { low_bits |= addresses[lane]; });
  if ((low_bits & (alignment - 1)) == 0) return;
  for_lanes(warp.active, [&](int lane) {
    if ((addresses[lane] & (alignment - 1)) == 0) return;
    const std::string place =
        reach == Reach::shared
            ? shared_place(warp.cta.run.launch.kernel,
                           offset_of_shared_address(static_cast<std::uint32_t>(addresses[lane])))
            : fmt::format("address {:#x}", addresses[lane]);
    throw Fault(fmt::format("{} is not aligned to {} bytes", place, alignment), lane);
  });
}

void global_targets(Warp& warp, const Addresses& addresses, std::uint32_t bytes, Targets& targets) {
  std::uint64_t first = ~0ull, last = 0;
  for_lanes(warp.active, [&](int lane) {
    first = std::min(first, addresses[lane]);
    last = std::max(last, addresses[lane]);
    targets[lane] = reinterpret_cast<std::byte*>(static_cast<std::uintptr_t>(addresses[lane]));
  });
  Cta& cta = warp.cta;
  if (cta.recent && cta.recent->holds(first, last - first + bytes)) return;
  for_lanes(warp.active, [&](int lane) {
    cta.run.memory.check(addresses[lane], bytes, lane);
    cta.recent = cta.run.memory.find(addresses[lane], bytes);
  });
}

void shared_targets(Warp& warp, const Addresses& addresses, std::uint32_t bytes, Targets& targets) {
  Cta& cta = warp.cta;
  const std::uint32_t most = cta.shared_end - std::min(cta.shared_end, bytes);
  for_lanes(warp.active, [&](int lane) {
    const auto address = static_cast<std::uint32_t>(addresses[lane]);
    targets[lane] = address >= ptx::kSharedBegin && address <= most ? cta.shared.data() + address
                                                                    : cta.shared_range(address, bytes, lane);
  });
}

std::byte* local_target(Warp& warp, std::uint64_t offset, std::uint32_t bytes, int lane) {
  const std::uint64_t size = warp.cta.run.launch.kernel->local_bytes;
  if (offset > size || bytes > size - offset)
    throw Fault(fmt::format("{} bytes at {} of {} bytes of local memory", bytes, offset, size), lane);
  return warp.cta.local.data() + static_cast<std::uint64_t>(warp.thread(lane)) * size + offset;
}

/// The row of a matrix that stmatrix writes to the address of a lane.
std::vector<std::uint64_t> stored_row(const Warp& warp, const ptx::Instruction& instruction, int lane) {
  const ptx::Operand& from = instruction.operands[1];
  const auto matrix = static_cast<std::size_t>(lane / 8);
  const ptx::Operand& of_matrix = from.kind == ptx::Operand::Kind::vector ? from.elements.at(matrix) : from;
  const bool transposed = instruction.has("trans");
  const int row = lane % 8;
  std::vector<std::uint64_t> values;
  for (int column = 0; column < 8; ++column) {
    const int major = transposed ? column : row, minor = transposed ? row : column;
    values.push_back(warp.value(of_matrix, 4 * major + minor / 2) >> (16 * (minor % 2)) & 0xffff);
  }
  return values;
}

/// What a lane's store writes, where the instruction's operands tell.
std::optional<std::vector<std::uint64_t>> stored_values(const Warp& warp, int lane) {
  const ptx::Instruction& instruction = *warp.instruction;
  if (instruction.opcode.starts_with("stmatrix.")) return stored_row(warp, instruction, lane);
  if (!instruction.opcode.starts_with("st.")) return std::nullopt;
  const ptx::Operand& from = instruction.operands[1];
  if (from.kind != ptx::Operand::Kind::vector) return std::vector{warp.value(from, lane)};
  std::vector<std::uint64_t> values;
  for (const ptx::Operand& element : from.elements) values.push_back(warp.value(element, lane));
  return values;
}

/// The lanes without those whose store another repeats to the bit: writing one value together is no race.
LaneMask without_repeats(const Warp& warp, const Addresses& addresses, LaneMask lanes) {
  LaneMask kept = 0;
  for_lanes(lanes, [&](int lane) {
    bool repeats = false;
    for_lanes(kept, [&](int other) {
      if (repeats || addresses[other] != addresses[lane]) return;
      const auto values = stored_values(warp, lane);
      repeats = values && values == stored_values(warp, other);
    });
    if (!repeats) kept |= 1u << lane;
  });
  return kept;
}

/// Tells the async proxy of stores, and the search for races of stores and loads.
void tell_shared(Warp& warp, std::uint32_t address, std::uint32_t bytes, Purpose purpose, int lane) {
  Cta& owner = warp.cta.owner_of(address);
  const std::uint32_t offset = offset_of_shared_address(address);
  if (purpose != Purpose::load && owner.on_shared_store) {
    owner.on_shared_store(warp, owner, lane, offset, bytes);
  }
  // Copies tell themselves, when they know what they were issued upon.
  if (!owner.order || purpose == Purpose::copy) return;
  const std::uint32_t who = warp.cta.order->in_cluster(static_cast<std::uint32_t>(warp.thread(lane)));
  const int line = warp.instruction->line;
  if (purpose == Purpose::atomic) {
    owner.order->update_by(who, offset, bytes, line);
  } else if (purpose == Purpose::load) {
    owner.order->read_by(who, offset, bytes, line);
  } else {
    owner.order->write_by(who, offset, bytes, line);
  }
}

void tell_shared(Warp& warp, const Addresses& addresses, std::uint32_t bytes, Purpose purpose,
                 LaneMask lanes) {
  if (warp.cta.order) warp.cta.order->account().settle();
  if (purpose == Purpose::store && warp.cta.order) lanes = without_repeats(warp, addresses, lanes);
  for_lanes(lanes, [&](int lane) {
    tell_shared(warp, static_cast<std::uint32_t>(addresses[lane]), bytes, purpose, lane);
  });
}

/// Counts what lanes ask of shared memory.
void shared_requested(const LaneRequest& request) {
  Run& run = request.warp.cta.run;
  const unsigned wavefronts = count_wavefronts(request.addresses, request.lanes, request.bytes);
  run.report.shared_wavefronts += wavefronts;
  if (run.options.observer) run.options.observer->shared(request, wavefronts);
}

/// Counts what lanes ask of global memory.
void global_requested(const LaneRequest& request) {
  Run& run = request.warp.cta.run;
  const unsigned sectors = count_sectors(request.addresses, request.lanes);
  (request.purpose == Purpose::load ? run.report.global_sectors_read : run.report.global_sectors_written) +=
      sectors;
  if (run.options.observer) run.options.observer->global(request);
}

/// Generic addresses, which may lead lanes of one instruction into several spaces.
void generic_access(Warp& warp, const Addresses& addresses, Purpose purpose, std::uint32_t bytes,
                    Targets& targets) {
  LaneMask in_shared = 0, in_global = 0;
  Addresses shared{};
  for_lanes(warp.active, [&](int lane) {
    targets[lane] = generic_target(warp, addresses[lane], bytes, lane);
    if (in_window(kSharedWindow, addresses[lane])) {
      in_shared |= 1u << lane;
      shared[lane] = addresses[lane] - kSharedWindow;
    } else if (!in_window(kLocalWindow, addresses[lane]) && !in_window(kParameterWindow, addresses[lane])) {
      in_global |= 1u << lane;
    }
  });
  if (in_shared != 0) {
    shared_requested({warp, purpose, in_shared, shared, bytes});
    tell_shared(warp, shared, bytes, purpose, in_shared);
  }
  if (in_global != 0) global_requested({warp, purpose, in_global, addresses, bytes});
}

Targets targets_of(Warp& warp, const Addresses& addresses, Reach reach, Purpose purpose,
                   std::uint32_t bytes) {
  Targets targets;
  switch (reach) {
    case Reach::global:
      global_targets(warp, addresses, bytes, targets);
      global_requested({warp, purpose, warp.active, addresses, bytes});
      break;
    case Reach::shared:
      shared_targets(warp, addresses, bytes, targets);
      shared_requested({warp, purpose, warp.active, addresses, bytes});
      if (purpose != Purpose::load || warp.cta.order)
        tell_shared(warp, addresses, bytes, purpose, warp.active);
      break;
    case Reach::parameter:
      for_lanes(warp.active,
                [&](int lane) { targets[lane] = parameter_target(warp, addresses[lane], bytes, lane); });
      break;
    case Reach::local:
      for_lanes(warp.active,
                [&](int lane) { targets[lane] = local_target(warp, addresses[lane], bytes, lane); });
      break;
    case Reach::generic:
      generic_access(warp, addresses, purpose, bytes, targets);
      break;
  }
  return targets;
}

}  // namespace

std::byte* generic_target(Warp& warp, std::uint64_t address, std::uint32_t bytes, int lane) {
  if (in_window(kLocalWindow, address)) return local_target(warp, address - kLocalWindow, bytes, lane);
  return warp.cta.generic_bytes(address, bytes, lane);
}

std::byte* parameter_target(Warp& warp, std::uint64_t offset, std::uint32_t bytes, int lane) {
  if (offset >= ptx::kCallParameters) return local_target(warp, offset - ptx::kCallParameters, bytes, lane);
  return warp.cta.generic_bytes(kParameterWindow + offset, bytes, lane);
}

Targets access(Warp& warp, const ptx::Operand& operand, Reach reach, Purpose purpose, std::uint32_t bytes) {
  return access_aligned(warp, operand, reach, purpose, bytes, bytes);
}

Targets access_aligned(Warp& warp, const ptx::Operand& operand, Reach reach, Purpose purpose,
                       std::uint32_t bytes, std::uint32_t alignment) {
  const Addresses addresses = addresses_of(warp, operand);
  check_alignment(warp, addresses, reach, alignment);
  return targets_of(warp, addresses, reach, purpose, bytes);
}

Targets access_at(Warp& warp, const Addresses& addresses, Reach reach, Purpose purpose, std::uint32_t bytes) {
  check_alignment(warp, addresses, reach, bytes);
  return targets_of(warp, addresses, reach, purpose, bytes);
}

bool stored_bytes(const Warp& warp, int lane, std::uint32_t bytes, std::byte* to) {
  const auto values = stored_values(warp, lane);
  if (!values || bytes % values->size() != 0) return false;
  const std::size_t each = bytes / values->size();
  for (std::size_t i = 0; i < values->size(); ++i) std::memcpy(to + i * each, &(*values)[i], each);
  return each <= sizeof(std::uint64_t);
}

Reach reach_of(const ptx::Instruction& instruction) {
  for (const std::string_view modifier : instruction.modifiers) {
    if (modifier == "global" || modifier == "const") return Reach::global;
    if (modifier == "shared" || modifier == "shared::cta" || modifier == "shared::cluster")
      return Reach::shared;
    if (modifier == "param" || modifier == "param::entry") return Reach::parameter;
    if (modifier == "local") return Reach::local;
  }
  return Reach::generic;
}

}  // namespace tilescope::gpu::emulator
