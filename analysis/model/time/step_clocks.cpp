// SPDX-License-Identifier: Apache-2.0
#include "analysis/model/time/step_clocks.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

#include "analysis/model/time/closed_network.hpp"
#include "analysis/model/time/crossing_bytes.hpp"
#include "cpu_ref/schedule/sum_slots.hpp"

namespace tilescope {
namespace {

// Results of an SM per clock. Source: CUDA C++ Programming Guide, table 'Throughput of Native Arithmetic
// Instructions', 9.0: 32-bit add, multiply and multiply-add; compare, minimum and maximum, and conversions
// from 32 bits, one of which packs two numbers.
constexpr double kFp32PerClock = 128, kComparedPerClock = 64;
// Source: the same guide, 'Shared Memory': 32 banks of 32 bits.
constexpr double kSharedBytesPerClock = 128;
// Source: gpu/kernels/flash3/NOTES.md, by clock: 130 of a barrier that is complete and 90 until the first
// WGMMA and from the last; until a CTA asks for its first tile; from its end until the next one begins.
constexpr double kClocksOfWait = 130 + 90, kUntilAsked = 1100, kBetweenCtas = 540;
// A wait for memory beyond the time that the bytes take. Source: reports/prediction/costs-h200.json.gz, one
// copy of up to 4 KiB that L2 holds, on one SM and on all.
constexpr double kLatency = 959;

// A masked score is compared with its row's first and last key, selected and, forward, given the scale's
// sign. Source: SASS of sm90::mask_scores() and mask_transposed() for 64 scores a thread, sm_90a, CUDA 13.0:
// 128 ISETP, 64 FSEL and, of the former, 64 FMUL.
constexpr double kMaskCompared = 3, kMaskAdded = 1;

double clocks_of_scores(const TileProgram& program, double scores, const Machine& machine,
                        const WarpWork& work, double head_dim) {
  const bool forward = program.name == PassName::forward;
  // Forward: scaled and less the maximum; summed; compared, where maxima are not kept; P converted. Backward:
  // scaled and less LSE; dP less delta; times P; P and dS converted. Four bytes of P at once, whether one has
  // grown too large: an addition and a selection of bits, by the SASS of the fp8 instances.
  const double added = forward ? 2 : 3, maxima = forward && !work.keeps_maxima ? 1 : 0;
  const double checked = element_bytes(program.problem.dtype) == 1 ? 0.5 : 0;
  const double compared = maxima + checked + (forward || program.name == PassName::dq ? 0.5 : 1);
  const auto exponentials = static_cast<double>(machine.exponentials_per_clock_per_sm->value);
  const double sums = work.sums_twice ? static_cast<double>(program.tile.block_m) * head_dim : 0;
  return scores * (1 / exponentials + added / kFp32PerClock + compared / kComparedPerClock) +
         sums / kFp32PerClock;
}

/// So much more where they are masked. Who keeps maxima looks for them there, and rescales O.
double clocks_of_mask(const TileProgram& program, double scores, const WarpWork& work, double head_dim) {
  const bool forward = program.name == PassName::forward, raised = forward && work.keeps_maxima;
  const double rescaled = raised ? static_cast<double>(program.tile.block_m) * head_dim / kFp32PerClock : 0;
  return scores * ((kMaskCompared + (raised ? 1 : 0)) / kComparedPerClock +
                   (forward ? kMaskAdded / kFp32PerClock : 0)) +
         rescaled;
}

/// Steps of a group of warps per clock, where each is its share of a CTA's step and `masked` the clocks that
/// a mask adds to that: by the units one after the other, or by shared memory, whichever is slower.
double group_rate(const UnitClocks& step, double masked, double groups, double apart, int workers) {
  const double arithmetic = (step.arithmetic + masked) / groups;
  return std::min(steps_per_clock({step.tensor / groups, arithmetic, step.shared / groups}, apart, workers),
                  steps_per_clock({(step.operands + step.shared) / groups, arithmetic}, apart, workers));
}

/// Of a head dimension that the kernel is compiled for, or the problem's.
double compiled_head_dim(const Kernel& kernel, std::int64_t head_dim) {
  for (const int compiled : kernel.can.head_dims) {
    if (compiled >= head_dim) return compiled;
  }
  return static_cast<double>(head_dim);
}

/// Of a step's products.
struct ProductClocks {
  double multiplied = 0;  // clocks of the tensor cores at their full rate
  double tensor = 0;      // and at the kernel's
  double operands = 0;    // clocks of shared memory
};

/// A WGMMA takes as long as its operands do, where these take longer. Source:
/// m64nNk16 with both operands in shared memory takes max(N / 2, 16 + N / 4) clocks on an H100.
/// @param bytes  of an element; those of one byte are multiplied twice as fast as those of two
ProductClocks clocks_of_products(const Kernel& kernel, const WarpWork& work, double scores, double head_dim,
                                 const Machine& machine, int bytes) {
  const bool by_wgmma = kernel.math_unit == MathUnit::wgmma;
  const double unit_share = kernel.math_unit == MathUnit::mma_sync ? machine.mma_sync_share() : 1;
  ProductClocks clocks;
  for (const ProductPart& part : work.products) {
    const double volume = scores * (part.head_dim > 0 ? part.head_dim : head_dim);
    const double delivered =
        volume * bytes * (1.0 / part.rows + (part.cols > 0 ? 1.0 / part.cols : 0.0)) / kSharedBytesPerClock;
    const double multiplied = bytes * volume / machine.tensor_flops_per_clock();
    clocks.multiplied += multiplied;
    clocks.operands += delivered;
    clocks.tensor += by_wgmma ? std::max(multiplied, delivered) : multiplied / unit_share;
  }
  return clocks;
}

/// Of a tile's rows, those that the matrix has.
double present_in_first_tile(const TileProgram& program, TensorName tensor) {
  const bool by_n = program.extent(tensor).cut_by_n();
  const double rows = by_n ? program.tile.block_n : program.tile.block_m;
  return std::min(1.0, static_cast<double>(by_n ? program.problem.seqlen_k : program.q_rows()) / rows);
}

/// What a CTA waits for before its first step and behind its last one.
/// @param loaded  bytes of a step; in_rate  bytes a clock into an SM; of_l2  its share of the L2's rate
void add_ends(CtaClocks& clocks, const TileProgram& program, const WarpWork& work, double loaded,
              double in_rate, double of_l2) {
  const double first_bytes =
      loaded + bytes_of(program, program.init).loaded + bytes_of(program, program.prologue).loaded;
  const CrossingBytes last = bytes_of(program, program.epilogue);
  // A step that others follow before it is done ends so much behind its turn.
  clocks.begin = clocks.between * (work.in_flight - 1);
  const double arrives = kLatency + first_bytes / in_rate;
  const double leaves = kLatency + std::max(last.clocks_out(), last.in_l2() / of_l2);
  if (program.hand_out() == HandOut::to_who_retires) {
    clocks.begin += kBetweenCtas + kUntilAsked + arrives;
    clocks.end = leaves;
    return;
  }
  // Who stays asks for what its next block begins with while the results of this one leave.
  clocks.once = kUntilAsked + leaves;
  if (work.ahead) {
    clocks.once += arrives;
  } else {
    clocks.begin += std::max(arrives, leaves);
  }
}

}  // namespace

std::optional<std::string> lacks_for_clocks(const Kernel& kernel, const TileProgram& program,
                                            const Machine& machine) {
  if (!machine.l2_bytes_per_second) return machine.name + " has no L2 rate";
  if (!machine.exponentials_per_clock_per_sm) return machine.name + " has no rate of exponentials";
  if (machine.tensor_flops_per_clock() == 0) return machine.name + " has no rate of 16-bit products";
  // A learned sink asks nothing of a score; the others are not counted in WarpWork.
  ScoreMods of_scores = program.problem.score_mods;
  of_scores.learned_sink = false;
  if (of_scores.any()) return "the model does not know what modified scores take";
  if (is_elementwise(program)) return std::nullopt;
  const bool known = kernel.warp_work != nullptr && kernel.warp_work(program).warps > 0;
  if (!known || element_bytes(program.problem.dtype) > 2)
    return "the model does not know how warps of " + std::string(kernel.name) + " share this work";
  return std::nullopt;
}

std::optional<CtaClocks> cta_clocks(const Kernel& kernel, const TileProgram& program, const Machine& machine,
                                    std::int64_t ctas_at_once) {
  if (is_elementwise(program) || lacks_for_clocks(kernel, program, machine)) return std::nullopt;
  const WarpWork work = kernel.warp_work(program);
  const auto bytes = static_cast<int>(element_bytes(program.problem.dtype));
  const double scores = static_cast<double>(program.tile.block_m) * program.tile.block_n;
  const double compiled = compiled_head_dim(kernel, program.problem.head_dim);
  const ProductClocks products = clocks_of_products(kernel, work, scores, compiled, machine, bytes);

  const std::int64_t sms = machine.sm_count.value;
  const auto ctas_per_sm = static_cast<int>(ceil_div(ctas_at_once, sms));
  const double of_l2 = machine.l2_bytes_per_second->value / machine.boost_hz() /
                       static_cast<double>(std::min(ctas_at_once, sms));
  CrossingBytes crossing;
  for (const std::vector<Operand>& phase : program.phases) crossing += bytes_of(program, phase);
  crossing.looked_up = looked_up_share(program, ctas_at_once);

  CtaClocks clocks;
  clocks.step.tensor = products.tensor;
  clocks.step.arithmetic = clocks_of_scores(program, scores, machine, work, compiled);
  // WGMMAs take their operands while they multiply; fragments of others are loaded before. What the copy
  // engine sends is put into shared memory first.
  const bool by_wgmma = kernel.math_unit == MathUnit::wgmma;
  clocks.step.shared = (crossing.loaded + static_cast<double>(work.exchanged_bytes) +
                        (by_wgmma ? 2 * (crossing.added + crossing.stored) : 0)) /
                       kSharedBytesPerClock;
  (by_wgmma ? clocks.step.operands : clocks.step.shared) += products.operands;
  const double in_rate = std::min(kInBytesPerClock, of_l2 / crossing.looked_up);
  clocks.step.in = crossing.loaded / in_rate;
  clocks.step.out = crossing.clocks_out();
  clocks.step.l2 = crossing.in_l2() / of_l2;

  constexpr int kQuartersOfSm = 4;
  const double groups = std::max(1.0, static_cast<double>(work.warps) / kQuartersOfSm);
  const int workers = static_cast<int>(std::lround(groups * ctas_per_sm)) * work.in_flight;
  const double mask = clocks_of_mask(program, scores, work, compiled);
  const double apart = kClocksOfWait * work.waits + (work.adds_apart ? crossing.clocks_of_pairs(of_l2) : 0);
  clocks.loaded = ctas_per_sm * clocks.step.in;
  const double least = std::max(clocks.loaded, ctas_per_sm * std::max(clocks.step.out, clocks.step.l2));
  const auto full = [&](double masked) {
    return std::max(least, groups * ctas_per_sm / group_rate(clocks.step, masked, groups, apart, workers));
  };
  const auto alone = [&](double masked) {
    return 1 / group_rate(clocks.step, masked, groups, apart, work.in_flight);
  };
  clocks.between = full(0);
  clocks.masked = full(mask) - clocks.between;
  clocks.alone = alone(0);
  clocks.masked_alone = alone(mask) - clocks.alone;
  const double product = clocks.step.tensor / 2;
  clocks.chain = (product + std::max(product, clocks.step.arithmetic)) / groups + 2 * kClocksOfWait;
  clocks.multiplied = products.multiplied;
  clocks.skipping_rows = work.skipping_rows;
  // Rows that are not there raise no maximum that is kept.
  clocks.masks_keys_alone = work.keeps_maxima;
  clocks.seen = 2 * kLatency;  // the sums are there, and then the count is
  add_ends(clocks, program, work, crossing.loaded, in_rate, of_l2);
  return clocks;
}

bool is_elementwise(const TileProgram& program) {
  return program.phases.empty() || program.name == PassName::combine || program.name == PassName::convert;
}

double clocks_of_elementwise(const Kernel& kernel, const TileProgram& program) {
  constexpr double kBytesOfThread = 16;
  // Source: the pass that combines as the drawn records of reports/drawn have it, where a thread waited for
  // the LSEs of splits and then for so many of their results. Since then both are under way together.
  constexpr double kResultsAtOnce = 16;
  if (program.name == PassName::combine)
    return kLatency * (1 + std::ceil(static_cast<double>(program.splits.count) / kResultsAtOnce));
  double most = 0;
  int slots = 1;
  for (const Operand& operand : adds_slots(program) ? program.phases.front() : program.prologue) {
    if (operand.kind != AccessKind::load) continue;
    most = std::max(most, present_in_first_tile(program, operand.tensor) *
                              static_cast<double>(program.tile_bytes(operand.tensor)));
    slots = std::max(slots, slots_of(program, operand.tensor));
  }
  // Fitted to reports/prediction/times-h200-ordered-1795779727 (median 8.2 %; 9.1 with the eight that
  // convert_pass() has under way, and waits for at once); the first slot comes with the next ones.
  constexpr int kSlotsOfWait = 16;
  const int rounds = std::max(1, ceil_div(slots - 1, kSlotsOfWait));
  return kLatency * rounds *
         std::ceil(most / (kBytesOfThread * kernel.launch_shape(program, kSm90).threads_per_cta));
}

}  // namespace tilescope
