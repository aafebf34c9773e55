// SPDX-License-Identifier: Apache-2.0
// call and ret, and the functions that CUDA itself has: printf, assert, malloc and free.
#include <algorithm>
#include <cstring>

#include "emulator/machine/instructions/printf.hpp"
#include "emulator/machine/lanes.hpp"
#include "emulator/machine/memory_access.hpp"

namespace tilescope::gpu::emulator {
namespace {

using ptx::Function;
using ptx::Instruction;

/// Visits the registers and the local memory that a function has in one lane, as (bytes, count).
template <class Visit>
void each_part(Warp& warp, const Function& function, int lane, Visit&& visit) {
  for (const Function::Registers& registers : function.registers) {
    for (std::uint32_t i = 0; i < registers.count; ++i) {
      ptx::Operand operand;
      operand.kind = ptx::Operand::Kind::reg;
      const std::uint32_t bytes = registers.bytes;
      operand.offset = registers.offset + i * (bytes == 0 ? 64 : bytes * kLanes);
      auto* const lanes = warp.write<std::byte>(operand);
      // Predicates are kept as whole masks: of those only the lane's bit is written back.
      visit(bytes == 0 ? lanes : lanes + bytes * static_cast<unsigned>(lane), bytes == 0 ? 4 : bytes,
            bytes == 0);
    }
  }
  if (const std::uint64_t bytes = function.local_end - function.local_begin; bytes > 0)
    visit(parameter_target(warp, ptx::kCallParameters + function.local_begin,
                           static_cast<std::uint32_t>(bytes), lane),
          static_cast<std::uint32_t>(bytes), false);
}

std::vector<std::byte> save(Warp& warp, const Function& function, int lane) {
  std::vector<std::byte> saved;
  each_part(warp, function, lane, [&](const std::byte* from, std::uint32_t bytes, bool) {
    saved.insert(saved.end(), from, from + bytes);
  });
  return saved;
}

void restore(Warp& warp, const Function& function, int lane, const std::vector<std::byte>& saved) {
  const std::byte* from = saved.data();
  each_part(warp, function, lane, [&](std::byte* to, std::uint32_t bytes, bool is_predicate) {
    if (is_predicate) {
      LaneMask mask, old;
      std::memcpy(&mask, to, sizeof mask);
      std::memcpy(&old, from, sizeof old);
      mask = (mask & ~(1u << lane)) | (old & 1u << lane);
      std::memcpy(to, &mask, sizeof mask);
    } else {
      std::memcpy(to, from, bytes);
    }
    from += bytes;
  });
}

std::vector<std::byte> bytes_at(Warp& warp, std::int64_t parameter, std::uint64_t bytes, int lane) {
  const std::byte* const from =
      parameter_target(warp, static_cast<std::uint64_t>(parameter), static_cast<std::uint32_t>(bytes), lane);
  return {from, from + bytes};
}
void put_bytes(Warp& warp, std::uint64_t parameter, const std::vector<std::byte>& bytes, int lane) {
  std::memcpy(parameter_target(warp, parameter, static_cast<std::uint32_t>(bytes.size()), lane), bytes.data(),
              bytes.size());
}

constexpr std::size_t kMostFrames = 1024;

/// The function that a lane calls: by its number, or by the address in a register.
const Function& callee(const Warp& warp, const ptx::Operand& target, int lane) {
  const std::vector<Function>& functions = warp.cta.run.launch.kernel->functions;
  if (target.kind == ptx::Operand::Kind::label) return functions[static_cast<std::size_t>(target.value)];
  const std::uint64_t address = warp.value(target, lane);
  const auto found = std::ranges::find(functions, address, &Function::address);
  if (found == functions.end()) throw Fault("a call through an address that no function has", lane);
  return *found;
}

Outcome call(Warp& warp, const Instruction& instruction) {
  const auto& kernel = *warp.cta.run.launch.kernel;
  const auto& arguments = instruction.operands[2].elements;
  const auto here = static_cast<std::uint32_t>(&instruction - kernel.instructions.data());
  for_lanes(warp.active, [&](int lane) {
    const Function& function = callee(warp, instruction.operands[0], lane);
    if (arguments.size() != function.parameters.size() ||
        instruction.operands[1].elements.size() != function.results.size())
      throw Fault("a call with other parameters than the function has", lane);
    std::vector<std::vector<std::byte>> values;
    for (std::size_t i = 0; i < arguments.size(); ++i)
      values.push_back(bytes_at(warp, arguments[i].value, function.parameters[i].bytes, lane));
    auto& frames = warp.frames[static_cast<std::size_t>(lane)];
    if (frames.size() >= kMostFrames)
      throw Fault(std::to_string(kMostFrames) + " calls within one another", lane);
    frames.push_back({here + 1, &instruction, &function,
                      function.calls_itself ? save(warp, function, lane) : std::vector<std::byte>()});
    for (std::size_t i = 0; i < arguments.size(); ++i)
      put_bytes(warp, ptx::kCallParameters + function.parameters[i].offset, values[i], lane);
    warp.next[static_cast<std::size_t>(lane)] = function.entry;
  });
  return Outcome::scatter;
}

/// Out of a function to where each lane came from; out of the kernel where there is no call.
Outcome return_from(Warp& warp, const Instruction&) {
  if (warp.frames[static_cast<std::size_t>(warp.leader())].empty()) return Outcome::exit;
  for_lanes(warp.active, [&](int lane) {
    auto& frames = warp.frames[static_cast<std::size_t>(lane)];
    const Frame frame = std::move(frames.back());
    frames.pop_back();
    const Function& function = *frame.function;
    std::vector<std::vector<std::byte>> values;
    for (const ptx::Variable& result : function.results)
      values.push_back(bytes_at(warp, static_cast<std::int64_t>(ptx::kCallParameters + result.offset),
                                result.bytes, lane));
    if (function.calls_itself) restore(warp, function, lane, frame.saved);
    const auto& results = frame.call->operands[1].elements;
    for (std::size_t i = 0; i < results.size(); ++i)
      put_bytes(warp, static_cast<std::uint64_t>(results[i].value), values[i], lane);
    warp.next[static_cast<std::size_t>(lane)] = frame.return_to;
  });
  return Outcome::scatter;
}

template <class T>
T argument(Warp& warp, const Instruction& instruction, std::size_t index, int lane) {
  T value;
  const std::int64_t place = instruction.operands[2].elements.at(index).value;
  std::memcpy(&value, bytes_at(warp, place, sizeof(T), lane).data(), sizeof(T));
  return value;
}

/// vprintf(format, arguments): what a device would print when it is synchronised with
Outcome print(Warp& warp, const Instruction& instruction) {
  constexpr std::size_t kMostPrinted = 1 << 20;
  for_lanes(warp.active, [&](int lane) {
    const std::string text = formatted(warp, lane, argument<std::uint64_t>(warp, instruction, 0, lane),
                                       argument<std::uint64_t>(warp, instruction, 1, lane));
    std::string& printed = warp.cta.run.report.printed;
    printed.append(text, 0, kMostPrinted - std::min(kMostPrinted, printed.size()));
    for (const ptx::Operand& result : instruction.operands[1].elements)
      put_bytes(warp, static_cast<std::uint64_t>(result.value), std::vector<std::byte>(4), lane);
  });
  return Outcome::next;
}

/// __assertfail(message, file, line, function, size of a character)
Outcome fail_assertion(Warp& warp, const Instruction& instruction) {
  const int lane = warp.leader();
  const auto text = [&](std::size_t index) {
    return text_at(warp, argument<std::uint64_t>(warp, instruction, index, lane), lane);
  };
  throw Fault("assertion '" + text(0) + "' failed in " + text(3) + ", " + text(1) + ":" +
                  std::to_string(argument<std::uint32_t>(warp, instruction, 2, lane)),
              lane);
}

/// malloc(bytes) and free(address): a heap of the launch.
Outcome allocate(Warp& warp, const Instruction& instruction) {
  Run& run = warp.cta.run;
  for_lanes(warp.active, [&](int lane) {
    const std::uint64_t address =
        run.heap.allocate(run.memory, argument<std::uint64_t>(warp, instruction, 0, lane));
    const auto* const bytes = reinterpret_cast<const std::byte*>(&address);
    for (const ptx::Operand& result : instruction.operands[1].elements)
      put_bytes(warp, static_cast<std::uint64_t>(result.value), {bytes, bytes + sizeof address}, lane);
  });
  return Outcome::next;
}
Outcome give_back(Warp& warp, const Instruction& instruction) {
  Run& run = warp.cta.run;
  for_lanes(warp.active, [&](int lane) {
    if (!run.heap.free(run.memory, argument<std::uint64_t>(warp, instruction, 0, lane)))
      throw Fault("free of what malloc did not give, or of what was freed before", lane);
  });
  return Outcome::next;
}

Execution select_call(const Instruction& instruction) {
  if (instruction.operands[0].kind == ptx::Operand::Kind::reg || instruction.operands[0].value >= 0)
    return {&call};
  const std::string_view name = instruction.modifiers.back();
  const std::size_t parameters = instruction.operands[2].elements.size();
  if (name == "vprintf" && parameters == 2) return {&print};
  if (name == "__assertfail" && parameters == 5) return {&fail_assertion};
  if (name == "malloc" && parameters == 1) return {&allocate};
  if (name == "free" && parameters == 1) return {&give_back};
  throw std::runtime_error("a call of a function that is not in the text");
}

}  // namespace

void add_call_handlers(HandlerTable& table) {
  table.add("call", select_call);
  table.add("ret", {&return_from});
}

}  // namespace tilescope::gpu::emulator
