// SPDX-License-Identifier: Apache-2.0
#include "analysis/model/time/pass_time.hpp"

#include <algorithm>
#include <functional>
#include <numeric>
#include <queue>
#include <tuple>
#include <vector>

#include "analysis/model/time/closed_network.hpp"
#include "profiler/timing/timed_samples.hpp"

namespace tilescope {
namespace {

// A pass that is launched while the one before it runs begins so much earlier. Source: three passes of
// flash2-mma's backward in a row take 2 to 7 us less than apart (bench and profile of the same problems,
// H200).
constexpr double kLaunchedBeforeEnd = 2.5e-6;
// Measured over predicted times, of which nine of ten lie between, on an H200, cold: of the problems that the
// model was made with, flash3 and flash2-mma (reports/data/bench-h200-*), from 0.87; of 120 directions of
// drawn ones that it was judged by once (reports/prediction/times.md), up to 1.40.
constexpr double kLeastOfPredicted = 0.87, kMostOfPredicted = 1.40;

/// Tiles that a block of a CTA computes, of which `skipping_rows` see some by themselves: on the mean of
/// them.
double computed_tiles(const TileProgram& program, const CtaWork& work, int block, int skipping_rows) {
  if (skipping_rows == 0) return program.inner_tiles(work, block).count();
  const Mask mask = program.problem.mask_of(work.batch);
  const TileShape part{skipping_rows, program.tile.block_n};
  const int parts = program.tile.block_m / skipping_rows;
  const int last = static_cast<int>(ceil_div(program.q_rows(), static_cast<std::int64_t>(skipping_rows)));
  int tiles = 0;
  for (int i = parts * block; i < std::min(parts * (block + 1), last); ++i)
    tiles += mask.kv_tiles(part, i).count();
  return static_cast<double>(tiles) / parts;
}

/// Steps of each CTA, in the grid's order.
std::vector<double> steps_of_ctas(const TileProgram& program, int skipping_rows) {
  std::vector<double> steps;
  for (std::int64_t cta = 0; cta < program.num_ctas(); ++cta) {
    const CtaWork work = program.work(cta);
    double tiles = 0;
    for (int block = work.first_block; block < work.end_block; ++block) {
      tiles += computed_tiles(program, work, block, skipping_rows);
    }
    steps.push_back(tiles * program.heads_per_cta());
  }
  return steps;
}

double dram_bytes(const PassRecord& pass) {
  const std::int64_t read =
      pass.simulated ? pass.simulated->dram_read_bytes : pass.closed_form->compulsory_read_bytes;
  const std::int64_t written =
      pass.simulated ? pass.simulated->dram_write_bytes : pass.closed_form->compulsory_write_bytes;
  return static_cast<double>(read + written);
}

}  // namespace

double end_of_ctas(const std::vector<double>& steps, std::int64_t slots, const CtaClocks& clocks,
                   HandOut hand_out) {
  const auto count = static_cast<std::int64_t>(steps.size());
  std::int64_t next = 0;
  const auto take = [&] { return next < count ? next++ : -1; };
  struct Slot {
    double free;
    std::int64_t number, round;
    bool operator>(const Slot& other) const {
      return std::tie(free, number) > std::tie(other.free, other.number);
    }
  };
  std::priority_queue<Slot, std::vector<Slot>, std::greater<>> waiting;
  for (std::int64_t slot = 0; slot < slots; ++slot) waiting.push({0, slot, 0});
  double last = 0;
  while (!waiting.empty()) {
    Slot slot = waiting.top();
    waiting.pop();
    std::int64_t block = -1;
    if (hand_out != HandOut::there_and_back) {
      block = take();
    } else {  // in each second round from the other end
      const std::int64_t begins = slot.round * slots;
      block = slot.round % 2 == 0 ? begins + slot.number : begins + slots - 1 - slot.number;
      if (block >= count) block = -1;
    }
    if (block < 0) continue;
    const double made = steps[static_cast<std::size_t>(block)];
    slot.free += clocks.end + (made > 0 ? clocks.begin + clocks.between * made : 0);
    ++slot.round;
    last = std::max(last, slot.free);
    waiting.push(slot);
  }
  return last;
}

std::optional<PredictedTime> predicted_time(const Kernel& kernel, const TileProgram& program,
                                            const Machine& machine, std::int64_t launched_together,
                                            const PassRecord& pass, bool follows) {
  if (kernel.warp_work == nullptr || !machine.launch_seconds || !machine.l2_bytes_per_second)
    return std::nullopt;
  const auto crossing =
      static_cast<double>(pass.closed_form->sm_l2_read_bytes + pass.closed_form->sm_l2_write_bytes);
  const double dram_seconds = dram_bytes(pass) / machine.dram_bytes_per_second.value;
  const double l2_seconds = crossing / machine.l2_bytes_per_second->value;
  PredictedTime time;
  double seconds = 0;
  if (program.phases.empty()) {
    seconds =
        std::max(dram_seconds, l2_seconds) + clocks_of_elementwise(kernel, program) / machine.boost_hz();
  } else {
    const std::int64_t sms = machine.sm_count.value;
    const std::int64_t running = std::min(launched_together, program.num_ctas());
    const auto clocks = cta_clocks(kernel, program, machine, static_cast<int>(ceil_div(running, sms)));
    if (!clocks) return std::nullopt;
    const std::vector<double> steps = steps_of_ctas(program, clocks->skipping_rows);
    const double all = clocks->once + end_of_ctas(steps, running, *clocks, program.hand_out());
    const double multiplied = clocks->multiplied * std::accumulate(steps.begin(), steps.end(), 0.0);
    // Before each launch that is timed cold, a sweep reads several times the L2, while tensor cores rest.
    const double swept = kSweptL2Multiples * static_cast<double>(machine.l2_bytes.value) /
                         machine.dram_bytes_per_second.value * machine.boost_hz();
    time.sm_clock_hz = machine.clock_at(multiplied / (static_cast<double>(sms) * (all + swept)));
    // Two tiles of a stream come while one is computed.
    constexpr int kTilesUnderWay = 3;
    const double computing = std::max(l2_seconds, all / time.sm_clock_hz);
    seconds = 1 / steps_per_clock({dram_seconds, computing}, 0, kTilesUnderWay);
  }
  time.seconds = seconds + machine.launch_seconds->value - (follows ? kLaunchedBeforeEnd : 0);
  time.interval = {kLeastOfPredicted * time.seconds, kMostOfPredicted * time.seconds};
  return time;
}

}  // namespace tilescope
