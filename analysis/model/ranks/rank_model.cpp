// SPDX-License-Identifier: Apache-2.0
#include "analysis/model/ranks/rank_model.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "analysis/model/replay/simulate_run.hpp"
#include "common/number_format.hpp"

namespace tilescope {
namespace {

/// Fitted, with the machine's launch_seconds, to the times of 16/16 heads on two H200
/// (reports/data/ranks-bench-mha.json.gz: zigzag, all-gather and ulysses, 2048 ... 16384 tokens a GPU, both
/// passes), of which they leave 2.5 % on the mean. Those of 32/8 heads were not looked at.
constexpr double kBlockTiles = 1;    // see RankKernel
constexpr double kSumsShare = 0.85;  // of the rate at which memory is copied, of passes that merge and round

bool computes(const Kernel& kernel, const Machine& machine, const AttentionProblem& problem,
              const std::vector<Direction>& directions) {
  const std::optional<int> capability = machine.compute_capability();
  if (capability && !kernel.chips.has(*capability)) return false;
  const ProgramOptions options = kernel.default_options(problem);
  return std::ranges::none_of(directions, [&](Direction direction) {
    return kernel.refusal(problem, direction, options).has_value();
  });
}

double above_zero(const char* field, double value, const char* unit) {
  if (value > 0) return value;
  throw BadInput(field, format_number(value), std::string("must be above 0, in ") + unit);
}

}  // namespace

std::optional<RankKernel> RankModel::launched(const AttentionProblem& problem, Direction direction) const {
  if (kernel == nullptr) return std::nullopt;
  RankKernel launched;
  launched.programs = [row = kernel](Direction which, const AttentionProblem& slice) {
    return row->programs(which, slice, options_with_shared_dq(*row, slice));
  };
  for (const TileProgram& pass : launched.programs(direction, problem)) {
    if (!pass.phases.empty()) launched.ctas_at_once = launched_together(*kernel, pass, on);
  }
  launched.block_tiles = kBlockTiles;
  return launched;
}

RankModel rank_model(const Machine& stated, const AttentionProblem& problem,
                     const std::vector<Direction>& directions, const GivenRates& given,
                     std::span<const Kernel* const> candidates) {
  RankModel model;
  model.on = with_measured_ceilings(stated);
  const Machine& machine = model.on;
  model.machine = stated.name;
  for (const Kernel* const candidate : candidates) {
    if (model.kernel == nullptr && computes(*candidate, machine, problem, directions))
      model.kernel = candidate;
  }
  const std::string dtype(to_string(problem.dtype));
  const auto peak = machine.peak_flops_per_second.find(dtype);
  if (peak == machine.peak_flops_per_second.end())
    throw BadInput("dtype", dtype, "must be one that " + machine.name + " has a rate of");
  RankRates& rates = model.rates;
  std::string flops_kind = "given", link_kind = "given";
  if (given.flops_per_second) {
    rates.flops_per_second = above_zero("flop-rate", *given.flops_per_second, "FLOP/s");
  } else {
    rates.flops_per_second = peak->second.value;
    flops_kind = peak->second.kind;
  }
  rates.memory_bytes_per_second = kSumsShare * machine.dram_bytes_per_second.value;
  if (given.link_bytes_per_second) {
    rates.link_bytes_per_second = above_zero("link-rate", *given.link_bytes_per_second, "bytes a second");
  } else if (machine.link_bytes_per_second) {
    rates.link_bytes_per_second = machine.link_bytes_per_second->value;
    link_kind = machine.link_bytes_per_second->kind;
  } else {
    throw BadInput("machine", machine.name,
                   "must be one whose file has link_bytes_per_second (h200 has), or --link-rate must say it");
  }
  if (machine.link_latency_seconds) rates.link_latency_seconds = machine.link_latency_seconds->value;
  if (machine.launch_seconds) rates.launch_seconds = machine.launch_seconds->value;
  model.line = fmt::format(
      "on {}: {} {:.4g} TFLOP/s ({}), link {}/s one way ({}), {} a transfer{}; {}\n", machine.title, dtype,
      rates.flops_per_second / 1e12, flops_kind, format_bytes(rates.link_bytes_per_second), link_kind,
      format_seconds(rates.link_latency_seconds),
      machine.link_latency_seconds ? fmt::format(" ({})", machine.link_latency_seconds->kind) : "",
      model.kernel != nullptr ? "CTAs of " + std::string(model.kernel->name) : "no kernel's CTAs");
  return model;
}

}  // namespace tilescope
