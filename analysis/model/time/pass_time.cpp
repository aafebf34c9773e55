// SPDX-License-Identifier: Apache-2.0
#include "analysis/model/time/pass_time.hpp"

#include <algorithm>
#include <functional>
#include <queue>
#include <vector>

#include "analysis/model/time/step_clocks.hpp"

namespace tilescope {
namespace {

// Of measured over predicted times: see reports/data.
constexpr double kLeastOfPredicted = 0.85, kMostOfPredicted = 1.2;

/// Steps of a CTA over all of its blocks and heads.
std::int64_t steps_of(const TileProgram& program, const CtaWork& work) {
  std::int64_t steps = 0;
  for (int block = work.first_block; block < work.end_block; ++block) {
    steps += program.inner_tiles(work, block).count();
  }
  return steps * program.heads_per_cta();
}

std::int64_t steps_of(const TileProgram& program) {
  std::int64_t steps = 0;
  for (std::int64_t cta = 0; cta < program.num_ctas(); ++cta) steps += steps_of(program, program.work(cta));
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

double end_of_ctas(const TileProgram& program, std::int64_t slots, double begin, double between, double end) {
  std::priority_queue<double, std::vector<double>, std::greater<>> free;
  double last = 0;
  for (std::int64_t cta = 0; cta < program.num_ctas(); ++cta) {
    double start = 0;
    if (static_cast<std::int64_t>(free.size()) >= slots) {
      start = free.top();
      free.pop();
    }
    const std::int64_t steps = steps_of(program, program.work(cta));
    const double done = start + end + (steps > 0 ? begin + between * static_cast<double>(steps) : 0);
    free.push(done);
    last = std::max(last, done);
  }
  return last;
}

std::optional<PredictedTime> predicted_time(const Kernel& kernel, const TileProgram& program,
                                            const Machine& machine, std::int64_t launched_together,
                                            const PassRecord& pass) {
  if (!machine.launch_seconds || !machine.l2_bytes_per_second) return std::nullopt;
  const auto crossing = static_cast<double>(pass.closed_form->sm_l2_read_bytes + pass.closed_form->sm_l2_write_bytes);
  const double memory_seconds = std::max(dram_bytes(pass) / machine.dram_bytes_per_second.value,
                                         crossing / machine.l2_bytes_per_second->value);
  PredictedTime time;
  double seconds = memory_seconds;
  if (!program.phases.empty()) {
    const std::int64_t sms = machine.sm_count.value;
    const std::int64_t running = std::min(launched_together, program.num_ctas());
    const int per_sm = static_cast<int>((running + sms - 1) / sms);
    const auto clocks = cta_clocks(kernel, program, machine, per_sm);
    if (!clocks) return std::nullopt;
    const double all = end_of_ctas(program, running, clocks->begin, clocks->between, clocks->end);
    const double multiplied = clocks->multiplied * static_cast<double>(steps_of(program));
    time.sm_clock_hz = machine.clock_at(multiplied / (all * static_cast<double>(sms)));
    seconds = std::max(seconds, all / time.sm_clock_hz);
  }
  time.seconds = machine.launch_seconds->value + seconds;
  time.interval = {kLeastOfPredicted * time.seconds, kMostOfPredicted * time.seconds};
  return time;
}

}  // namespace tilescope
