// SPDX-License-Identifier: Apache-2.0
// The sentences round the tables of a simulation: warnings, predicted times and intervals; those on its
// machine are in simulate_machine.cpp.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <utility>

#include "analysis/cli/simulate/simulate.hpp"
#include "analysis/cli/text_table.hpp"
#include "analysis/model/counts/closed_form.hpp"
#include "analysis/model/counts/direction_total.hpp"
#include "analysis/model/counts/roofline.hpp"
#include "analysis/model/time/pass_time.hpp"
#include "common/number_format.hpp"

namespace tilescope::cli {
namespace {

bool for_gpus(const Kernel& kernel) { return kernel.launch_shape != nullptr; }

/// What tells a run from the others.
std::string label_of(const std::vector<RunEntry>& runs, std::size_t i, const std::vector<SimulateJob>& jobs,
                     bool several_machines) {
  if (!several_machines) return runs[i].kernel;
  const bool several_kernels =
      std::ranges::any_of(runs, [&runs](const RunEntry& run) { return run.kernel != runs.front().kernel; });
  return (several_kernels ? runs[i].kernel + " on " : "") + jobs[i].machine->name;
}

/// Why no kernel of a GPU has a predicted time.
std::string unpredicted_line(const std::vector<SimulateJob>& jobs, Direction direction) {
  std::vector<std::string> whys;
  for (const SimulateJob& job : jobs) {
    if (!for_gpus(*job.kernel)) continue;
    for (const auto& [of, program] : job.passes) {
      if (of != direction || program.phases.empty()) continue;
      const auto why = lacks_for_prediction(*job.kernel, program, with_measured_ceilings(*job.machine));
      if (why && std::ranges::find(whys, *why) == whys.end()) whys.push_back(*why);
    }
  }
  return whys.empty() ? ""
                      : "  " + wrapped(fmt::format("no predicted time: {}", fmt::join(whys, "; ")), "    ");
}

std::string chip_warning(const SimulateJob& job) {
  const std::optional<int> capability = job.machine->compute_capability();
  if (!for_gpus(*job.kernel) || !capability || job.kernel->chips.has(*capability)) return "";
  const auto [first, last] = job.kernel->chips;
  return fmt::format(
      "{} runs on {}, and {} is sm_{}: it cannot run there, so the results below are hypothetical",
      job.kernel->name,
      first == last ? fmt::format("sm_{} alone", first) : fmt::format("sm_{} and newer", first),
      job.machine->name, *capability);
}

/// Tiles of a kernel that takes any: those of the others are compiled, so they fit.
std::string shared_warning(const SimulateJob& job, const SimulationOptions& how) {
  if (for_gpus(*job.kernel)) return "";
  const auto largest = std::ranges::max_element(job.passes, [](const PlannedPass& a, const PlannedPass& b) {
    return a.program.shared_bytes() < b.program.shared_bytes();
  });
  const std::int64_t needed = largest->program.shared_bytes();
  if (job.machine->fits(needed)) return "";
  return fmt::format(
      "a CTA of {} {} needs {} of shared memory, one buffer a loaded tile and two a streamed one, where {} "
      "has {}{}",
      job.kernel->name, to_string(largest->program.name), format_capacity(needed), job.machine->name,
      format_capacity(job.machine->shared_bytes_per_cta.value),
      how.replay && !how.ctas_per_sm ? ": replayed with one CTA an SM" : "");
}

/// All tensors of all passes, at once.
std::int64_t tensor_bytes(const SimulateJob& job) {
  std::set<TensorName> tensors;
  for (const PlannedPass& pass : job.passes) {
    const TileProgram& program = pass.program;
    std::vector<std::vector<Operand>> lists = program.phases;
    lists.insert(lists.end(), {program.init, program.prologue, program.epilogue});
    for (const std::vector<Operand>& list : lists) {
      for (const Operand& operand : list) tensors.insert(operand.tensor);
    }
  }
  std::int64_t bytes = 0;
  for (const TensorName tensor : tensors) bytes += tensor_extent(job.problem, tensor).bytes();
  return bytes;
}

std::string memory_warning(const SimulateJob& job) {
  const std::int64_t needed = tensor_bytes(job);
  if (!job.machine->dram_bytes || needed <= job.machine->dram_bytes->value) return "";
  return fmt::format("the tensors of {} take {}, more than the {} of {}", job.kernel->name,
                     format_bytes(static_cast<double>(needed)),
                     format_bytes(static_cast<double>(job.machine->dram_bytes->value)), job.machine->name);
}

/// What a grid of fewer CTAs than SMs makes of the time bound, which takes the rates of all SMs; of the
/// kernel's pass of fewest CTAs.
std::string grid_warning(const SimulateJob& job) {
  const std::int64_t sms = job.machine->sm_count.value;
  const TileProgram* smallest = nullptr;
  for (const PlannedPass& pass : job.passes) {
    const TileProgram& program = pass.program;
    if (program.products.count() == 0 || program.num_ctas() >= sms) continue;
    if (smallest == nullptr || program.num_ctas() < smallest->num_ctas()) smallest = &program;
  }
  if (smallest == nullptr) return "";
  const ClosedFormBytes bytes = closed_form_bytes(*smallest);
  const KernelWork of_sms{useful_flops(*smallest), bytes.sm_l2_bytes(), std::nullopt,
                          exponentials(*smallest)};
  std::vector<Ceiling> ceilings = ceilings_of(with_measured_ceilings(*job.machine),
                                              product_type(job.problem.dtype, job.kernel->math_unit));
  KernelWork of_all = of_sms;
  of_all.dram_bytes = bytes.compulsory_bytes();
  const Roofline all = roofline(of_all, ceilings);
  for (Ceiling& ceiling : ceilings) {
    ceiling.per_second *= static_cast<double>(smallest->num_ctas()) / static_cast<double>(sms);
  }
  const Roofline share = roofline(of_sms, ceilings);
  std::string warning = fmt::format(
      "{} {} has {} for the {} SMs of {}: the time bound assumes the rates of all SMs", job.kernel->name,
      to_string(smallest->name), counted(smallest->num_ctas(), "CTA"), sms, job.machine->name);
  const bool longer = share.least_seconds && share.least_seconds > all.least_seconds;
  if (find(ceilings, CeilingKind::sm_l2) != nullptr && longer) {
    warning += fmt::format("; by the rates of so many SMs the pass takes at least {} ({})",
                           format_seconds(*share.least_seconds), share.limit);
  }
  return warning;
}

/// Each once, in the order in which they come first.
class Warnings {
 public:
  void add(const std::string& warning) {
    if (warning.empty() || std::ranges::find(all_, warning) != all_.end()) return;
    all_.push_back(warning);
  }
  std::string lines() const {
    constexpr std::size_t kMost = 6;
    std::string text;
    for (std::size_t i = 0; i < std::min(kMost, all_.size()); ++i) text += wrapped("warning: " + all_[i]);
    if (all_.size() > kMost) text += fmt::format("warning: and {} more like these\n", all_.size() - kMost);
    return text;
  }

 private:
  std::vector<std::string> all_;
};

}  // namespace

std::string warning_lines(const std::vector<SimulateJob>& jobs, const SimulationOptions& how, bool timed) {
  Warnings warnings;
  for (const SimulateJob& job : jobs) {
    warnings.add(chip_warning(job));
    warnings.add(shared_warning(job, how));
    warnings.add(memory_warning(job));
  }
  for (const SimulateJob& job : timed ? jobs : std::vector<SimulateJob>()) warnings.add(grid_warning(job));
  return warnings.lines();
}

std::string model_line(const RunEntry& run, const ModelShape& model, bool name_machine) {
  std::string text;
  for (const Direction direction : {Direction::forward, Direction::backward}) {
    const std::optional<PassRecord> total = direction_total(run, direction);
    if (!total) continue;
    const auto sum = [](std::int64_t read, std::int64_t written) {
      return static_cast<double>(read + written);
    };
    const double layer =
        total->simulated ? sum(total->simulated->dram_read_bytes, total->simulated->dram_write_bytes)
                         : sum(total->closed_form->sm_l2_read_bytes, total->closed_form->sm_l2_write_bytes);
    const auto tokens = static_cast<double>(run.problem.batch * run.problem.seqlen_q);
    const auto layers = static_cast<double>(model.layers);
    const std::string sentence =
        fmt::format("{} {}, {}{}: a device moves {} a layer at {}, {} in {} layers, {} of them a token",
                    model.title, to_string(direction), run.kernel,
                    name_machine && total->simulated ? " on " + run.passes.front().simulated->machine : "",
                    format_bytes(layer), total->simulated ? "DRAM" : "SM<->L2", format_bytes(layer * layers),
                    model.layers, format_bytes(layer * layers / tokens));
    text += wrapped(sentence);
  }
  return text;
}

std::string beside_tiles_lines(const RunEntry& run, Direction direction,
                               const std::vector<PlannedPass>& planned) {
  std::string text;
  for (const auto& [planned_direction, program] : planned) {
    if (planned_direction != direction) continue;
    const ClosedFormBytes all = closed_form_bytes(program);
    std::int64_t filled = 0, asked = all.sm_l2_read_bytes, told = all.sm_l2_write_bytes;
    for (const TensorTraffic& tensor : tensor_traffic(program)) {
      filled += tensor.filled_bytes;
      asked -= tensor.load_bytes + tensor.filled_bytes;
      told -= tensor.store_bytes + tensor.reduce_bytes;
    }
    for (const PassRecord& pass : run.passes) {
      if (pass.name != to_string(program.name)) continue;
      const bool tables = program.bit_reads > 0;
      if (filled > 0) {
        text += fmt::format("  {}: {} of these reads are {}\n", pass.name, in_bytes(filled).text,
                            tables ? "what sectors hold beside numbers of heads"
                                   : "zeros beyond tensors and parts of sectors");
      }
      if (asked + told > 0) {
        text += fmt::format("  {}: {} take {} of these reads, {} of the writes\n", pass.name,
                            tables                          ? "tables of visited tiles"
                            : program.problem.page_size > 0 ? "entries of the page table, a sector a tile,"
                            : program.problem.kv_dtype      ? "descales, a sector each,"
                                                            : "flags and counters of CTAs",
                            in_bytes(asked).text, in_bytes(told).text);
      }
    }
  }
  return text;
}

std::string dram_interval_line(const std::vector<RunEntry>& runs, Direction direction,
                               const std::vector<SimulateJob>& jobs, bool several_machines) {
  std::string known;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const std::optional<PassRecord> total = direction_total(runs[i], direction);
    if (!total || !total->simulated || !total->simulated->dram_read_interval) continue;
    const auto& [least_read, most_read] = *total->simulated->dram_read_interval;
    const auto& [least_written, most_written] = *total->simulated->dram_write_interval;
    known +=
        fmt::format("{} {} {} ... {}", known.empty() ? "" : ",", label_of(runs, i, jobs, several_machines),
                    format_bytes(static_cast<double>(least_read + least_written)),
                    format_bytes(static_cast<double>(most_read + most_written)));
  }
  return known.empty() ? "" : "  " + wrapped("DRAM, 90 % of an H200's launches within:" + known, "    ");
}

std::string predicted_line(const std::vector<RunEntry>& runs, Direction direction,
                           const std::vector<SimulateJob>& jobs, bool several_machines) {
  std::string known, unknown, within;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const std::optional<PassRecord> total = direction_total(runs[i], direction);
    if (!total) continue;
    const std::string label = label_of(runs, i, jobs, several_machines);
    if (!total->predicted) {
      unknown += (unknown.empty() ? "; bound only: " : ", ") + label;
      continue;
    }
    const auto& [seconds, interval, clock] = *total->predicted;
    known += fmt::format("{}{} {}", known.empty() ? "" : ", ", label, format_seconds(seconds));
    within = fmt::format("{:.2f}x ... {:.2f}x", interval[0] / seconds, interval[1] / seconds);
  }
  if (known.empty()) return unpredicted_line(jobs, direction);
  return "  " + wrapped(fmt::format("predicted time: {} (nine of ten times on an H200 lay within {}){}",
                                    known, within, unknown),
                        "    ");
}

}  // namespace tilescope::cli
