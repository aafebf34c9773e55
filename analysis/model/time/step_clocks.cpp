// SPDX-License-Identifier: Apache-2.0
#include "analysis/model/time/step_clocks.hpp"

#include <algorithm>
#include <cmath>

#include "analysis/model/time/closed_network.hpp"

namespace tilescope {
namespace {

// Results of an SM per clock. Source: CUDA C++ Programming Guide, table 'Throughput of Native Arithmetic
// Instructions', 9.0: 32-bit add, multiply and multiply-add; compare, minimum and maximum, and conversions
// from 32 bits, of which one packs two numbers.
constexpr double kFp32PerClock = 128, kComparedPerClock = 64;
// Source: the same guide, 'Shared Memory': 32 banks of 32 bits.
constexpr double kSharedBytesPerClock = 128;
// Source: counters of flash3's backward pass on an H200, whose way into L2 is busy for 0.92 of the time with
// 64 KiB of sums in 4383 clocks (gpu/kernels/flash3/NOTES.md).
constexpr double kOutBytesPerClock = 32, kReductionCost = 1.95;
// Source: the same notes, by clock: 130 of a barrier that is complete and 90 until the first WGMMA and from
// the last; until a CTA asks for its first tile; from its end until the next one begins.
constexpr double kClocksOfWait = 130 + 90, kUntilAsked = 1100, kBetweenCtas = 540;
// Assumed: a wait for memory beyond the time that the bytes take, between an L2 hit and a miss.
constexpr double kLatency = 600;

double clocks_of_scores(const TileProgram& program, double scores, const Machine& machine) {
  const bool forward = program.name == PassName::forward;
  // Forward: scaled and less the maximum; summed; compared; P converted. Backward: scaled and less LSE; dP
  // less delta; times P; P and dS converted.
  const double added = forward ? 2 : 3, compared = forward ? 1.5 : program.name == PassName::dq ? 0.5 : 1;
  const auto exponentials = static_cast<double>(machine.exponentials_per_clock_per_sm->value);
  return scores * (1 / exponentials + added / kFp32PerClock + compared / kComparedPerClock);
}

/// Bytes of full tiles that cross between SM and L2, sums that are added as often as they cost.
double bytes_of(const TileProgram& program, const std::vector<Operand>& operands, bool loads) {
  double bytes = 0;
  for (const Operand& operand : operands) {
    if ((operand.kind == AccessKind::load) != loads) continue;
    const bool added = operand.kind == AccessKind::reduce || operand.kind == AccessKind::store_then_reduce;
    const std::int64_t rows =
        program.extent(operand.tensor).cut_by_n() ? program.tile.block_n : program.tile.block_m;
    const std::int64_t filled = loads ? program.filled_bytes(operand, 0, 0, rows) : 0;
    bytes += static_cast<double>(program.tile_bytes(operand.tensor) + filled) * (added ? kReductionCost : 1);
  }
  return bytes;
}

/// Of a head dimension that the kernel is compiled for, or the problem's.
double compiled_head_dim(const Kernel& kernel, std::int64_t head_dim) {
  for (const int compiled : kernel.can.head_dims) {
    if (compiled >= head_dim) return compiled;
  }
  return static_cast<double>(head_dim);
}

}  // namespace

std::optional<CtaClocks> cta_clocks(const Kernel& kernel, const TileProgram& program, const Machine& machine,
                                    int ctas_per_sm) {
  if (kernel.warp_work == nullptr || program.phases.empty() || !machine.l2_bytes_per_second ||
      !machine.exponentials_per_clock_per_sm)
    return std::nullopt;
  const WarpWork work = kernel.warp_work(program);
  const double flops_per_clock = machine.tensor_flops_per_clock();
  if (work.warps == 0 || flops_per_clock == 0 || element_bytes(program.problem.dtype) != 2)
    return std::nullopt;
  const double unit_share = kernel.math_unit == MathUnit::mma_sync ? machine.mma_sync_share() : 1;
  const double scores = static_cast<double>(program.tile.block_m) * program.tile.block_n;
  const double compiled = compiled_head_dim(kernel, program.problem.head_dim);

  double loaded = 0, stored = 0;
  for (const std::vector<Operand>& phase : program.phases) {
    loaded += bytes_of(program, phase, true);
    stored += bytes_of(program, phase, false);
  }
  double operand_bytes = 0, volumes = 0;
  for (const ProductPart& part : work.products) {
    const double volume = scores * (part.head_dim > 0 ? part.head_dim : compiled);
    volumes += volume;
    operand_bytes += volume * static_cast<double>(element_bytes(program.problem.dtype)) *
                     (1.0 / part.rows + (part.cols > 0 ? 1.0 / part.cols : 0.0));
  }
  const double in_rate =
      machine.l2_bytes_per_second->value / static_cast<double>(machine.sm_count.value) / machine.boost_hz();

  CtaClocks clocks;
  const double multiplied = 2 * volumes / flops_per_clock;
  clocks.step.tensor = multiplied / unit_share;
  clocks.step.arithmetic = clocks_of_scores(program, scores, machine);
  // WGMMAs take their operands while they multiply; fragments of others are loaded before. What the copy
  // engine sends is put into shared memory first.
  const bool by_wgmma = kernel.math_unit == MathUnit::wgmma;
  const double operands = operand_bytes / kSharedBytesPerClock;
  clocks.step.shared =
      (loaded + static_cast<double>(work.exchanged_bytes) + (by_wgmma ? 2 * stored / kReductionCost : 0)) /
      kSharedBytesPerClock;
  if (by_wgmma) {
    clocks.step.tensor = std::max(clocks.step.tensor, operands);
  } else {
    clocks.step.shared += operands;
  }
  clocks.step.in = loaded / in_rate;
  clocks.step.out = stored / kOutBytesPerClock;

  constexpr int kQuartersOfSm = 4;
  const double groups = std::max(1.0, static_cast<double>(work.warps) / kQuartersOfSm);
  const int workers = static_cast<int>(std::lround(groups * ctas_per_sm)) * work.in_flight;
  // A group's step is its share of the CTA's.
  const double rate = steps_per_clock(
      {clocks.step.tensor / groups, clocks.step.arithmetic / groups, clocks.step.shared / groups},
      kClocksOfWait * work.waits, workers);
  const double all = groups * ctas_per_sm / rate;
  clocks.between = std::max({all, ctas_per_sm * clocks.step.in, ctas_per_sm * clocks.step.out});
  clocks.multiplied = multiplied;
  clocks.skipping_rows = work.skipping_rows;

  const double first_bytes =
      bytes_of(program, program.init, true) + bytes_of(program, program.prologue, true);
  const double last_bytes = bytes_of(program, program.epilogue, false);
  // A step that others follow before it is done ends so much behind its turn.
  clocks.begin = clocks.between * (work.in_flight - 1);
  const double arrives = kLatency + (first_bytes + loaded) / in_rate;
  const double leaves = kLatency + last_bytes / kOutBytesPerClock;
  if (!work.ahead) {
    clocks.begin += arrives;
    clocks.end = leaves;
  }
  if (program.hand_out() == HandOut::to_who_retires) {
    clocks.begin += kBetweenCtas + kUntilAsked;
  } else {
    clocks.once = kUntilAsked + (work.ahead ? arrives + leaves : 0);
  }
  return clocks;
}

double clocks_of_elementwise(const Kernel& kernel, const TileProgram& program) {
  constexpr double kBytesOfThread = 16;
  double most = 0;
  for (const Operand& operand : program.prologue) {
    if (operand.kind == AccessKind::load)
      most = std::max(most, static_cast<double>(program.tile_bytes(operand.tensor)));
  }
  return kLatency * std::ceil(most / (kBytesOfThread * kernel.launch_shape(program, kSm90).threads_per_cta));
}

}  // namespace tilescope
