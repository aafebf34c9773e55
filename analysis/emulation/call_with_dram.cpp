// SPDX-License-Identifier: Apache-2.0
#include "analysis/emulation/call_with_dram.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "analysis/emulation/l2_replay.hpp"
#include "analysis/model/machine/machine.hpp"

namespace tilescope {
namespace {

namespace emulator = gpu::emulator;

constexpr const char* kChip = "h200";  // that is emulated
/// Of sectors that are stored in part for good, those that an H200's L2 has read from DRAM when the kernel
/// ends, of 16 MB that it could keep: 47 to 60 %. Of 128 MB it read all.
constexpr double kFilledEarly = 0.5;

std::vector<L2Replay::Buffer> buffers_of(const emulator::ptx::Module& module,
                                         const emulator::KernelCall& call) {
  std::vector<L2Replay::Buffer> buffers;
  const auto add = [&](const void* begin, std::uint64_t bytes) {
    const auto address = reinterpret_cast<std::uintptr_t>(begin);
    const bool known = std::ranges::any_of(
        buffers, [&](const L2Replay::Buffer& buffer) { return buffer.address == address; });
    if (!known && bytes > 0) buffers.push_back({address, bytes});
  };
  for (const auto* arguments : {&call.arguments, &call.reachable}) {
    for (const emulator::Argument& argument : *arguments) {
      if (argument.is_buffer) add(argument.buffer.data(), argument.buffer.size());
    }
  }
  for (const emulator::ptx::Variable& variable : module.variables) add(variable.data.get(), variable.bytes);
  return buffers;
}

void add_dram(emulator::KernelCounts& counts, const L2Replay* replay, const Machine& machine) {
  auto read = static_cast<double>(counts.must_read_bytes),
       written = static_cast<double>(counts.must_write_bytes);
  const bool is_kept = counts.must_read_bytes + counts.must_write_bytes <=
                       static_cast<std::uint64_t>(machine.l2_effective_bytes.value);
  if (replay && !is_kept) {
    const L2Replay::Again again = replay->again();
    // No sector is fetched more often than it was asked for.
    const double asked = counts.metrics.at("sm_l2_read_bytes") + counts.metrics.at("reduction_bytes");
    read = std::max(read, std::min(read + again.read_bytes, asked));
    written =
        std::max(written, std::min(written + again.written_bytes, counts.metrics.at("sm_l2_write_bytes")));
    counts.notes.push_back(fmt::format(
        "modelled: {:.0f} B are read from DRAM and {:.0f} B written, by the L2 of an {} ({} MiB, cold), "
        "through which the CTAs' sectors are replayed in step",
        read, written, machine.title, machine.l2_bytes.value >> 20));
  }
  if (const double filled = static_cast<double>(counts.filled_bytes) * (is_kept ? kFilledEarly : 1);
      filled > 0) {
    read += filled;
    counts.notes.push_back(
        fmt::format("modelled: stores leave {} B of sectors covered in part, of which {:.0f} B are read from "
                    "DRAM to be made whole",
                    counts.filled_bytes, filled));
  }
  counts.metrics["dram_read_bytes"] = read;
  counts.metrics["dram_write_bytes"] = written;
}

}  // namespace

emulator::ToldLaunch call_with_dram(const emulator::ptx::Module& module, emulator::KernelCall call) {
  const Machine machine = load_machine(kChip);
  const std::vector<L2Replay::Buffer> buffers = buffers_of(module, call);
  std::uint64_t bytes = 0;
  for (const L2Replay::Buffer& buffer : buffers) bytes += buffer.bytes;
  std::optional<L2Replay> replay;
  if (bytes > static_cast<std::uint64_t>(machine.l2_effective_bytes.value)) {
    replay.emplace(machine.split_l2().value(), machine.sm_count.value, buffers);
    call.l2 = &*replay;
  }
  emulator::ToldLaunch told = emulator::call_and_tell(module, call);
  if (told.result.completed) add_dram(told.result.counts, replay ? &*replay : nullptr, machine);
  return told;
}

}  // namespace tilescope
