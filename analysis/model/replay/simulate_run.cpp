// SPDX-License-Identifier: Apache-2.0
#include "analysis/model/replay/simulate_run.hpp"

#include <algorithm>
#include <cmath>

#include "analysis/model/counts/closed_form.hpp"
#include "analysis/model/counts/what_ran.hpp"
#include "analysis/model/replay/dram_intervals.hpp"
#include "analysis/model/replay/traffic_simulator.hpp"
#include "analysis/model/time/pass_time.hpp"

namespace tilescope {
namespace {

int heads_sharing_l2(const AttentionProblem& problem, const Machine& machine) {
  const std::int64_t kv_bytes = (problem.shared_kv ? 1 : 2) * tensor_extent(problem, TensorName::k).bytes() /
                                (problem.batch * problem.heads_kv);
  const std::int64_t most = problem.batch * problem.heads_kv;
  std::int64_t heads = 1;
  while (2 * heads <= most && 2 * heads * kv_bytes <= machine.l2_effective_bytes.value) heads *= 2;
  return static_cast<int>(heads * problem.group_size());
}

/// DRAM traffic of true LRU at L2 sizes 2^k and 3 * 2^(k - 1), from 256 KiB to where a larger L2 no longer
/// helps.
std::vector<L2CurvePoint> l2_curve(const PassTraffic& traffic) {
  constexpr std::int64_t kSmallest = 256 * 1024;
  const std::int64_t enough = traffic.histogram.empty() ? 0 : traffic.histogram.back().distance_bytes;
  std::vector<L2CurvePoint> curve;
  for (std::int64_t power = kSmallest;; power *= 2) {
    for (const std::int64_t l2_bytes : {power, power / 2 * 3}) {
      curve.push_back({l2_bytes, traffic.dram_read_bytes(l2_bytes), traffic.dram_write_bytes(l2_bytes)});
      if (l2_bytes >= enough) return curve;
    }
  }
}

/// How the kernel launches a pass on the machine's chip, or on sm_90 where that is not known.
std::optional<LaunchShape> launch_shape_on(const Kernel& kernel, const TileProgram& program,
                                           const Machine& machine) {
  if (kernel.launch_shape == nullptr) return std::nullopt;
  const std::optional<int> capability = machine.compute_capability();
  const Chip chip = capability ? Chip{*capability, machine.shared_bytes_per_cta.value} : kSm90;
  return kernel.launch_shape(program, chip);
}

std::int64_t spilled_by_cta(const Kernel& kernel, const TileProgram& program, const Machine& machine) {
  const LaunchShape shape = launch_shape_on(kernel, program, machine).value_or(LaunchShape{});
  return std::int64_t{shape.threads_per_cta} * shape.spilled_bytes;
}

/// Of words that CTAs clear for a pass to come: each CTA's lie in sectors of their own.
std::int64_t cleared_word_bytes(const TileProgram& program) {
  const std::int64_t sectors = (4 * program.words.cta.stored + kSectorBytes - 1) / kSectorBytes;
  return kSectorBytes * sectors * program.num_ctas();
}

/// DRAM writes of what no tile holds: registers that spill, and words.
/// @param moved_bytes  between L2 and DRAM, of the tiles
std::int64_t written_beside_tiles(const Kernel& kernel, const TileProgram& program, const Machine& machine,
                                  const SimulationOptions& options, std::int64_t ctas,
                                  std::int64_t moved_bytes) {
  const SpilledRegisters spilled{options.spilled_cta_bytes.value_or(spilled_by_cta(kernel, program, machine)),
                                 program.num_ctas(), ctas};
  return spilled_write_bytes(spilled, moved_bytes, machine.l2_bytes.value) + cleared_word_bytes(program);
}

/// @param ctas  that run at once
SimulatedBytes simulate(const Kernel& kernel, const TileProgram& program, const Machine& machine,
                        const SimulationOptions& options, std::int64_t ctas) {
  const CtaSchedule schedule{
      .co_resident_ctas = ctas,
      .ctas_per_sm = ctas / machine.sm_count.value,
      .progress = machine.progress_on(kernel.math_unit),
      .sm_groups = machine.sm_groups ? machine.sm_groups->value : std::vector<SmGroup>{},
      .ragged_pace = ragged_pace(kernel, program, with_measured_ceilings(machine), ctas)};
  SimulatedBytes bytes;
  bytes.machine = machine.name;
  bytes.co_resident_ctas = ctas;
  const auto take = [&](const SmTraffic& traffic, std::int64_t dram_read, std::int64_t dram_written) {
    bytes.sm_l2_read_bytes = traffic.sm_l2_read_bytes();
    bytes.sm_l2_write_bytes = traffic.sm_l2_write_bytes();
    bytes.dram_read_bytes = dram_read;
    bytes.dram_write_bytes = dram_written;
    bytes.hit_rate = traffic.hit_rate(dram_read);
  };
  const std::optional<SplitL2Shape> split = options.l2_bytes ? std::nullopt : machine.split_l2();
  if (split) {
    bytes.l2_bytes = machine.l2_bytes.value;
    const SplitL2Traffic traffic =
        simulate_split_l2(program, schedule, *split, options.pages, options.on_retired);
    const std::int64_t beside_tiles = written_beside_tiles(
        kernel, program, machine, options, ctas, traffic.dram_read_bytes + traffic.dram_write_bytes);
    take(traffic, traffic.dram_read_bytes, traffic.dram_write_bytes + beside_tiles);
    bytes.dram_read_range = traffic.dram_read_range;
    bytes.dram_write_range = traffic.dram_write_range;
    if (bytes.dram_write_range) {
      for (std::int64_t& end : *bytes.dram_write_range) end += beside_tiles;
    }
    if (!options.l2_curve) return bytes;
  }
  if (!split) bytes.l2_bytes = options.l2_bytes.value_or(machine.l2_effective_bytes.value);
  if (!options.l2_curve) {
    const L2Traffic traffic = simulate_lru(program, schedule, bytes.l2_bytes, options.on_retired);
    take(traffic, traffic.dram_read_bytes, traffic.dram_write_bytes);
    return bytes;
  }
  const PassTraffic traffic = simulate_pass(program, schedule, split ? nullptr : options.on_retired);
  if (!split) {
    take(traffic, traffic.dram_read_bytes(bytes.l2_bytes), traffic.dram_write_bytes(bytes.l2_bytes));
  }
  bytes.l2_curve = l2_curve(traffic);
  return bytes;
}

}  // namespace

std::int64_t spilled_write_bytes(const SpilledRegisters& spilled, std::int64_t moved_bytes,
                                 std::int64_t kept_bytes) {
  const double ctas = static_cast<double>(spilled.ctas);
  const double first = std::min(ctas, static_cast<double>(spilled.co_resident_ctas));
  if (first == 0 || spilled.cta_bytes == 0) return 0;
  const double moved_by_a_wave = static_cast<double>(moved_bytes) * first / ctas;
  const double gone = std::min(1.0, moved_by_a_wave / static_cast<double>(kept_bytes));
  return std::llround(static_cast<double>(spilled.cta_bytes) * (first + (ctas - first) * gone));
}

std::int64_t launched_together(const Kernel& kernel, const TileProgram& program, const Machine& machine) {
  return co_resident_ctas(program, machine, launch_shape_on(kernel, program, machine));
}

ProgramOptions options_on(const Machine& machine, const Kernel& kernel, const AttentionProblem& problem,
                          Direction direction, ProgramOptions options) {
  if (options.order == TileOrder::head_swizzled && options.swizzled_heads <= 1) {
    options.swizzled_heads = heads_sharing_l2(problem, machine);
  }
  if (options.splits.kind == SplitPolicy::Kind::automatic && options.splits.value == 0) {
    options.splits.value = static_cast<int>(machine.sm_count.value);
  }
  if (options.scan != Scan::sawtooth || options.ctas_per_wave > 1) return options;
  for (const TileProgram& program : kernel.programs(direction, problem, options)) {
    if (program.phases.empty()) continue;
    options.ctas_per_wave = static_cast<int>(launched_together(kernel, program, machine));
    break;
  }
  return options;
}

std::vector<PlannedPass> plan_passes(const Kernel& kernel, const AttentionProblem& problem,
                                     std::span<const Direction> directions, const ProgramOptions& options,
                                     const Machine& machine) {
  validate(problem);
  std::vector<PlannedPass> passes;
  for (const Direction direction : directions) {
    const ProgramOptions chosen = options_on(machine, kernel, problem, direction, options);
    for (TileProgram& program : kernel.programs(direction, problem, chosen)) {
      passes.push_back({direction, std::move(program)});
    }
  }
  return passes;
}

PassRecord counted_pass(Direction direction, const TileProgram& program) {
  PassRecord pass;
  pass.name = to_string(program.name);
  pass.direction = direction;
  pass.tile = program.tile;
  pass.flops = useful_flops(program);
  pass.executed_flops = executed_flops(program);
  pass.exponentials = exponentials(program);
  note_choices(pass.choices, program);
  pass.closed_form = closed_form_bytes(program);
  return pass;
}

RunEntry simulate_run(const Kernel& kernel, const AttentionProblem& problem,
                      std::span<const PlannedPass> passes, const Machine& machine,
                      const SimulationOptions& options) {
  RunEntry run = entry_of(kernel, problem);
  run.pages = options.pages;
  const Machine rated = with_measured_ceilings(machine);
  for (const PlannedPass& planned : passes) {
    PassRecord pass = counted_pass(planned.direction, planned.program);
    const TileProgram& program = planned.program;
    const std::int64_t ctas = options.ctas_per_sm ? machine.sm_count.value * *options.ctas_per_sm
                                                  : launched_together(kernel, program, machine);
    if (options.replay) pass.simulated = simulate(kernel, program, machine, options, ctas);
    if (options.predict) {
      const bool follows = !run.passes.empty() && run.passes.back().direction == pass.direction;
      pass.predicted = predicted_time(kernel, program, rated, ctas, pass, follows);
    }
    run.passes.push_back(std::move(pass));
    if (program.grid.order != TileOrder::row_major) run.order = program.grid.order;
    if (program.scan != Scan::ascending) run.scan = program.scan;
  }
  const bool judged = kernel.launch_shape != nullptr && machine.split_l2() && !options.l2_bytes;
  if (options.replay && options.dram_intervals && judged) add_dram_intervals(run);
  return run;
}

}  // namespace tilescope
