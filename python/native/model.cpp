// SPDX-License-Identifier: Apache-2.0
// The model's commands for Python: records go in and come out as the JSON text of their schemas.
#include <fmt/format.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <chrono>

#include "analysis/explain/explain_record.hpp"
#include "analysis/model/advice/advice.hpp"
#include "analysis/model/counts/closed_form.hpp"
#include "analysis/model/ranks/rank_account.hpp"
#include "analysis/model/replay/simulate_record.hpp"
#include "analysis/model/replay/simulate_run.hpp"
#include "analysis/records/compare/record_diff.hpp"
#include "analysis/report/report.hpp"
#include "analysis/studies/study.hpp"
#include "gpu/registry/default_kernel.hpp"
#include "profiler/records/json_fields.hpp"
#include "python/native/arrays.hpp"
#include "python/native/bindings.hpp"
#include "python/native/watched.hpp"

namespace tilescope::python {
namespace {

/// The kernel named, or the one that the command line takes where none is.
const Kernel& kernel_of(const KernelUse& use, const AttentionProblem& problem,
                        const std::vector<Direction>& directions, const Machine& machine) {
  if (!use.kernel.empty()) return find_kernel(use.kernel);
  const TargetMachine target{machine.name, machine.compute_capability()};
  const auto options = [&](const Kernel& kernel) { return options_of(kernel, problem, use); };
  return *default_kernel({&target, 1}, problem, directions, options).kernel;
}

/// One kernel on one problem, planned before anything is replayed.
struct Job {
  const Kernel* kernel;
  AttentionProblem problem;
  std::vector<PlannedPass> passes;
};

Job plan(const AttentionProblem& problem, const KernelUse& use, const std::vector<Direction>& directions,
         const Machine& machine) {
  const Kernel& kernel = kernel_of(use, problem, directions, machine);
  const ProgramOptions options = options_of(kernel, problem, use);
  for (const Direction direction : directions) {
    require_supported(kernel, problem, direction, options);
    useful_flops(problem, direction);  // refuses what overflows, as below
  }
  Job job{&kernel, problem, plan_passes(kernel, problem, directions, options, machine)};
  for (const PlannedPass& pass : job.passes) executed_flops(pass.program);
  return job;
}

std::int64_t ctas_of(const std::vector<Job>& jobs) {
  std::int64_t ctas = 0;
  for (const Job& job : jobs) {
    for (const PlannedPass& pass : job.passes) ctas += pass.program.num_ctas();
  }
  return ctas;
}

/// A record of a run for each problem and kernel. All are refused or none.
/// @param passes "fwd", "bwd" or "fwd+bwd" @param pages "contiguous" or "random"
/// @param replay  without: closed forms alone @param predict  times too
/// @throws BadInput, MachineLacks
std::string simulate(const std::vector<std::string>& argv, const std::vector<AttentionProblem>& problems,
                     const std::vector<KernelUse>& kernels, const std::string& machine_name,
                     const std::string& passes, const std::string& pages, bool replay, bool l2_curve,
                     bool predict, const nb::object& progress) {
  const std::vector<Direction> directions = parse_directions("passes", passes);
  const Machine machine = load_machine(machine_name);
  SimulationOptions options{.pages = parse_page_placement(pages),
                            .replay = replay,
                            .predict = predict,
                            .dram_intervals = true,
                            .l2_curve = l2_curve};
  std::vector<Job> jobs;
  for (const AttentionProblem& problem : problems) {
    for (const KernelUse& use : kernels) jobs.push_back(plan(problem, use, directions, machine));
  }
  Watch watch(ctas_of(jobs));
  options.on_retired = [&watch] { watch.step(); };
  RunRecord record = start_record(argv);
  const auto start = std::chrono::steady_clock::now();
  run_watched(watch, progress, [&] {
    for (const Job& job : jobs) {
      watch.check();
      record.runs.push_back(simulate_run(*job.kernel, job.problem, job.passes, machine, options));
    }
  });
  if (replay) record.cost = cost_since(start);
  return to_json_text(record);
}

/// A record of the best choice, the runner-up and the kernel's own, of each direction.
/// @throws BadInput, MachineLacks
std::string advise(const std::vector<std::string>& argv, const AttentionProblem& problem,
                   const KernelUse& use, const std::string& machine_name, const std::string& passes) {
  const Machine machine = load_machine(machine_name);
  const std::vector<Direction> directions = parse_directions("passes", passes);
  const Kernel& kernel = kernel_of(use, problem, directions, machine);
  RunRecord record = start_record(argv);
  for (const Direction direction : directions) {
    const Advice advice =
        tilescope::advise(kernel, problem, direction, options_of(kernel, problem, use), machine, {});
    record.runs.insert(record.runs.end(), advice.best.begin(), advice.best.end());
    record.runs.push_back(advice.own);
  }
  return to_json_text(record);
}

/// The record of every schedule on every number of GPUs, and of those that cannot split the problem why.
/// @param ulysses  0: the most that divide GPUs and heads @param link_rate, flop_rate  in place of the
/// machine's
std::pair<std::string, std::vector<std::string>> simulate_gpus(
    const std::vector<std::string>& argv, const AttentionProblem& problem, const std::vector<int>& gpus,
    const std::vector<std::string>& names, int ulysses, const std::string& machine, const std::string& passes,
    std::optional<double> link_rate, std::optional<double> flop_rate) {
  std::vector<DistributedOptions> schedules;
  for (const int ranks : gpus) {
    for (const std::string& name : names) schedules.push_back({parse_link_schedule(name), ranks, ulysses});
  }
  const std::vector<Direction> directions = parse_directions("passes", passes);
  const RankModel model =
      rank_model(load_machine(machine), problem, directions, {link_rate, flop_rate}, rank_kernels());
  std::vector<std::string> refusals;
  const DistributedRecord record = simulate_ranks(
      argv, problem, directions, schedules, model, [](const ProgramAccount&) {},
      [&](const DistributedOptions& options, const BadInput& refusal) {
        refusals.push_back(
            fmt::format("{} on {} GPUs: {}", to_string(options.schedule), options.ranks, refusal.what()));
      });
  return {to_json_text(record), refusals};
}

/// The record of a study. @param machine "" for the study's own
std::string study(const std::vector<std::string>& argv, const std::string& name, const std::string& machine,
                  const nb::object& progress) {
  const Study& chosen = find_study(name);
  if (chosen.default_machine.empty() && !machine.empty()) {
    throw BadInput("machine", machine, fmt::format("must be left out: {} computes on this CPU", name));
  }
  const std::string model_name = machine.empty() ? std::string(chosen.default_machine) : machine;
  const Machine model = model_name.empty() ? Machine{} : load_machine(model_name);
  const std::vector<StudyTask> tasks = chosen.plan(model);  // they refer to it
  Watch watch(static_cast<std::int64_t>(tasks.size()));
  RunRecord record = start_record(argv);
  run_watched(watch, progress, [&] {
    for (const StudyTask& task : tasks) {
      for (RunEntry& run : task.run()) record.runs.push_back(std::move(run));
      watch.step();
    }
  });
  return to_json_text(record);
}

/// A table of Nsight Compute as a record of kernels.
std::string record_of_csv(const std::string& source, const std::string& text) {
  return to_json_text(read_kernels(source, text).front().kernels);
}

/// A record of kernels, explained by a problem. @param count -1: all
std::string explain(const std::vector<std::string>& argv, const std::string& source,
                    const std::string& record, const AttentionProblem& problem, const std::string& passes,
                    const std::string& filter, std::int64_t skip, std::int64_t count) {
  KernelChoice choice{filter, skip};
  if (count != -1) choice.count = count;
  const std::vector<KernelsOfProblem> all = read_kernels(source, record);
  if (all.size() > 1) {
    throw BadInput(source, std::to_string(all.size()) + " runs", "must be a record of one run");
  }
  return to_json_text(explain_record(argv, source, all.front().kernels, choice,
                                     {problem, parse_directions("passes", passes)}));
}

/// What moved between two records, as JSON, and whether a gate lets it pass.
/// @param budgets "dram_read_bytes=5%"
std::pair<std::string, bool> diff(const std::string& base_source, const std::string& base,
                                  const std::string& new_source, const std::string& now,
                                  const std::vector<std::string>& budgets, bool allow_gone) {
  std::vector<NamedBudget> named;
  for (const std::string& text : budgets) named.push_back(parse_budget(text));
  const RunRecord before = comparable_record(base_source, base), after = comparable_record(new_source, now);
  const RecordDiff changes = diff_records(before, after, named);
  if (changes.common.empty()) {
    throw BadInput("new", new_source, "must have a run of the same problem and kernel as base");
  }
  require_compared(changes, named);
  return {to_json_text(changes), changes.passes(allow_gone)};
}

/// Path and contents of the files of a report on records, each (source, text).
std::vector<std::pair<std::string, std::string>> report(
    const std::vector<std::pair<std::string, std::string>>& records) {
  ReportRecords all;
  for (const auto& [source, text] : records) all.add(source, text);
  join_simulations(all.runs);
  std::vector<std::pair<std::string, std::string>> files;
  for (ReportFile& file : report_files(make_report(all))) {
    files.emplace_back(std::move(file.path), std::move(file.contents));
  }
  return files;
}

/// The record as its writers write it. @throws BadInput naming source and field where it is damaged
std::string checked(const std::string& source, const std::string& record) {
  ReportRecords all;
  all.add(source, record);
  if (!all.runs.empty()) return to_json_text(all.runs.front());
  if (!all.kernels.empty()) return to_json_text(all.kernels.front());
  if (!all.explained.empty()) return to_json_text(all.explained.front());
  if (!all.ceilings.empty()) return to_json_text(all.ceilings.front());
  return record;  // of several GPUs, whose records nothing else writes
}

}  // namespace

void bind_model(nb::module_& module) {
  module.def("simulate", &simulate, "argv"_a, "problems"_a, "kernels"_a, "machine"_a, "passes"_a, "pages"_a,
             "replay"_a, "l2_curve"_a, "predict"_a, "progress"_a.none());
  module.def("advise", without_gil(&advise), "argv"_a, "problem"_a, "use"_a, "machine"_a, "passes"_a);
  module.def("simulate_gpus", &simulate_gpus, "argv"_a, "problem"_a, "gpus"_a, "schedules"_a, "ulysses"_a,
             "machine"_a, "passes"_a, "link_rate"_a.none(), "flop_rate"_a.none());
  module.def("study", &study, "argv"_a, "name"_a, "machine"_a, "progress"_a.none());
  module.def("record_of_csv", &record_of_csv, "source"_a, "text"_a);
  module.def("explain", &explain, "argv"_a, "source"_a, "record"_a, "problem"_a, "passes"_a, "filter"_a,
             "skip"_a, "count"_a);
  module.def("diff", &diff, "base_source"_a, "base"_a, "new_source"_a, "new"_a, "budgets"_a, "allow_gone"_a);
  module.def("report", without_gil(&report), "records"_a);
  module.def("checked", &checked, "source"_a, "record"_a);
}

}  // namespace tilescope::python
