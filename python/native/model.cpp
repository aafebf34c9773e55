// SPDX-License-Identifier: Apache-2.0
#include "python/native/model.hpp"

#include <fmt/format.h>

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

}  // namespace

std::string simulate(const ModelRequest& request, const nanobind::object& progress) {
  const std::vector<Direction> directions = parse_directions("passes", request.passes);
  const Machine machine = load_machine(request.machine);
  SimulationOptions options{.pages = parse_page_placement(request.pages),
                            .replay = request.replay,
                            .predict = request.predict,
                            .dram_intervals = true,
                            .l2_curve = request.l2_curve};
  std::vector<Job> jobs;
  for (const AttentionProblem& problem : request.problems) {
    for (const KernelUse& use : request.kernels) jobs.push_back(plan(problem, use, directions, machine));
  }
  Watch watch(ctas_of(jobs));
  options.on_retired = [&watch] { watch.step(); };
  RunRecord record = start_record(request.argv);
  const auto start = std::chrono::steady_clock::now();
  run_watched(watch, progress, [&] {
    for (const Job& job : jobs) {
      watch.check();
      record.runs.push_back(simulate_run(*job.kernel, job.problem, job.passes, machine, options));
    }
  });
  if (request.replay) record.cost = cost_since(start);
  return to_json_text(record);
}

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

std::pair<std::string, std::vector<std::string>> simulate_gpus(const RankRequest& request) {
  std::vector<DistributedOptions> schedules;
  for (const int gpus : request.gpus) {
    for (const std::string& name : request.schedules)
      schedules.push_back({parse_link_schedule(name), gpus, request.ulysses});
  }
  const std::vector<Direction> directions = parse_directions("passes", request.passes);
  const RankModel model =
      rank_model(load_machine(request.machine), request.problem, directions,
                 {request.link_bytes_per_second, request.flops_per_second}, rank_kernels());
  std::vector<std::string> refusals;
  const DistributedRecord record = simulate_ranks(
      request.argv, request.problem, directions, schedules, model, [](const ProgramAccount&) {},
      [&](const DistributedOptions& options, const BadInput& refusal) {
        refusals.push_back(
            fmt::format("{} on {} GPUs: {}", to_string(options.schedule), options.ranks, refusal.what()));
      });
  return {to_json_text(record), refusals};
}

std::string study(const std::vector<std::string>& argv, const std::string& name, const std::string& machine,
                  const nanobind::object& progress) {
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

std::string record_of_csv(const std::string& source, const std::string& text) {
  return to_json_text(read_kernels(source, text).front().kernels);
}

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

std::string checked(const std::string& source, const std::string& record) {
  ReportRecords all;
  all.add(source, record);
  if (!all.runs.empty()) return to_json_text(all.runs.front());
  if (!all.kernels.empty()) return to_json_text(all.kernels.front());
  if (!all.explained.empty()) return to_json_text(all.explained.front());
  if (!all.ceilings.empty()) return to_json_text(all.ceilings.front());
  return record;  // of several GPUs, whose records nothing else writes
}

}  // namespace tilescope::python
