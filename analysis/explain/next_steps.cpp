// SPDX-License-Identifier: Apache-2.0
// What would make a kernel move less: other tiles, no spills, whole sectors, another order of CTAs.

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "analysis/explain/answer.hpp"
#include "analysis/model/replay/replay_cost.hpp"
#include "analysis/model/replay/traffic_simulator.hpp"

namespace tilescope {
namespace {

/// What a counted cause comes to, of both sides.
std::int64_t bytes_of(const KernelFit& fit, CauseKind kind) {
  std::int64_t bytes = 0;
  for (const NamedCause& cause : fit.causes) bytes += cause.kind == kind ? cause.bytes : 0;
  return bytes;
}

void add_counted(std::vector<NextStep>& steps, const LaunchAnswer& answer, const KernelGroup& kernel,
                 const KernelFit& fit) {
  constexpr std::int64_t kRegisterBytes = 4;
  const std::int64_t moved = answer.sm_l2.total();
  if (const std::int64_t spilled = bytes_of(fit, CauseKind::spills); spilled > 0) {
    const std::int64_t local = kernel.launch.local_bytes.value_or(0);
    steps.push_back({local > 0 ? fmt::format("{} registers fewer a thread, which are spilled",
                                             (local + kRegisterBytes - 1) / kRegisterBytes)
                               : "no spilled registers",
                     Boundary::sm_l2, moved, moved - spilled, "by counter"});
  }
  const std::int64_t partial = bytes_of(fit, CauseKind::partial_sectors);
  if (partial > 0) {
    steps.push_back({"stores of whole sectors", Boundary::sm_l2, moved, moved - partial, "by counter"});
  }
}

/// The program in tiles of other blocks, with boxes of their rows.
TileProgram in_tiles(TileProgram program, TileShape tile) {
  program.tile = tile;
  program.grid.num_blocks = program.whole_head ? 1 : program.num_blocks();
  for (Boxes& boxes : program.boxes) {
    const bool by_n = tensor_extent(program.problem, boxes.tensor).indexing == TileIndexing::n;
    boxes.rows = by_n ? tile.block_n : tile.block_m;
  }
  return program;
}

/// Whether the program alone tells the candidate's bytes, so that it tells those of other tiles as well.
bool told_by_program(const CandidateProgram& best) {
  if (best.parts.size() != 1 || best.on_chip.in_slices || best.parts.front().splits_walk()) return false;
  const CandidateProgram again =
      candidate_of(best.name, best.direction, in_tiles(best.parts.front(), best.tile));
  return again.bytes == best.bytes && again.filled_bytes == best.filled_bytes;
}

/// The program with other blocks that registers and shared memory of the launch hold as well, with as many
/// stages of what is streamed as fit: the one that moves least.
void add_tile(std::vector<NextStep>& steps, const LaunchAnswer& answer, const KernelFit& fit,
              const std::optional<Machine>& machine) {
  const CandidateProgram& best = *fit.best;
  if (!told_by_program(best)) return;
  constexpr std::int64_t kDefaultShared = 227 << 10, kRegisterFile = 64 << 12;  // bytes, of a Hopper SM
  const std::int64_t shared = machine ? machine->shared_bytes_per_cta.value : kDefaultShared;
  std::optional<CandidateProgram> least;
  for (const int block_m : kCandidateBlocks) {
    for (const int block_n : kCandidateBlocks) {
      const auto power_of_two = [](int size) { return (size & (size - 1)) == 0; };
      if (!power_of_two(block_m) || !power_of_two(block_n)) continue;
      CandidateProgram other =
          candidate_of(best.name, best.direction, in_tiles(best.parts.front(), {block_m, block_n}));
      constexpr std::int64_t kHalf = 2;  // scores are kept as operands of the next product, too
      const std::int64_t scores = (best.direction == Direction::backward ? 2 : 1) * other.on_chip.scores;
      const bool fits = other.on_chip.kept + 2 * other.on_chip.streamed <= shared &&
                        other.on_chip.sums + scores + other.on_chip.scores / kHalf <= kRegisterFile;
      // Of those that move as much, the one with fewest steps.
      if (fits && (!least || other.bytes.total() <= least->bytes.total())) least = std::move(other);
    }
  }
  if (!least) return;
  const std::int64_t gain = best.bytes.total() - least->bytes.total();
  steps.push_back({fmt::format("tiles of {} x {}", least->tile.block_m, least->tile.block_n), Boundary::sm_l2,
                   answer.sm_l2.total(), answer.sm_l2.total() - gain, "by closed form"});
}

std::int64_t replayed_bytes(const TileProgram& program, const Machine& machine, const LaunchShape& shape) {
  CtaSchedule schedule;
  schedule.co_resident_ctas = co_resident_ctas(program, machine, shape);
  schedule.ctas_per_sm = std::max<std::int64_t>(1, schedule.co_resident_ctas / machine.sm_count.value);
  const L2Traffic traffic = simulate_lru(program, schedule, machine.l2_effective_bytes.value);
  return traffic.dram_read_bytes + traffic.dram_write_bytes;
}

/// Another order of CTAs, where L2 misses much: replayed beside the order of rows, which is how grids are
/// mostly numbered.
void add_order(std::vector<NextStep>& steps, const LaunchAnswer& answer, const KernelGroup& kernel,
               const KernelFit& fit, const std::optional<Machine>& machine) {
  constexpr double kWorthIt = 1.2, kLongest = 5e7;  // accesses of a replay
  const CandidateProgram& best = *fit.best;
  if (!machine || answer.multiple(Boundary::dram).value_or(0) < kWorthIt || best.parts.size() != 1) return;
  TileProgram program = best.parts.front();
  if (static_cast<double>(tile_accesses(program)) > kLongest) return;
  const auto& block = kernel.launch.block;
  const LaunchShape shape{static_cast<int>(block[0] * block[1] * block[2]),
                          kernel.launch.shared_bytes.value_or(0), 0};
  const std::int64_t now = replayed_bytes(program, *machine, shape);
  std::optional<NextStep> least;
  const auto consider = [&](TileOrder order, int heads, Scan scan, const char* action) {
    TileProgram other = program;
    other.grid.order = order;
    other.grid.swizzled_heads = heads;
    other.scan = scan;
    other.grid.ctas_per_wave = static_cast<int>(co_resident_ctas(program, *machine, shape));
    const std::int64_t then = replayed_bytes(other, *machine, shape);
    if (least && then >= least->bytes_then) return;
    least = NextStep{action, Boundary::dram, now, then, "by replay on " + machine->name};
  };
  const int group = static_cast<int>(program.kv_heads ? 1 : program.problem.group_size());
  consider(TileOrder::head_swizzled, group, Scan::ascending,
           "CTAs of the heads that share K and V side by side");
  consider(TileOrder::row_major, 1, Scan::sawtooth, "CTAs head after head, inner tiles forth and back");
  if (least) steps.push_back(*least);
}

}  // namespace

std::vector<NextStep> next_steps(const LaunchAnswer& answer, const KernelGroup& kernel, const KernelFit& fit,
                                 const std::optional<Machine>& machine) {
  constexpr double kLeastGain = 0.01;
  std::vector<NextStep> steps;
  add_counted(steps, answer, kernel, fit);
  const bool known = fit.best && fit.best->tiled() && fit.agreement == Agreement::explained;
  if (known) {
    add_tile(steps, answer, fit, machine);
    add_order(steps, answer, kernel, fit, machine);
  }
  std::erase_if(steps, [](const NextStep& step) {
    return static_cast<double>(step.bytes_now - step.bytes_then) <
           kLeastGain * static_cast<double>(step.bytes_now);
  });
  std::ranges::stable_sort(steps, [](const NextStep& a, const NextStep& b) {
    return a.bytes_now - a.bytes_then > b.bytes_now - b.bytes_then;
  });
  return steps;
}

}  // namespace tilescope
