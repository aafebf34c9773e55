// SPDX-License-Identifier: Apache-2.0
// `tilescope study`: the sweeps behind the figures of a report.
#include <fmt/format.h>

#include <exception>
#include <memory>

#include "analysis/cli/command.hpp"
#include "analysis/studies/study.hpp"

namespace tilescope::cli {
namespace {

struct StudyArguments {
  std::string name;
  std::string machine;
};

std::vector<std::string> study_names() {
  std::vector<std::string> names;
  for (const Study& study : studies()) names.emplace_back(study.name);
  return names;
}

/// Simulations side by side; what computes on all threads by itself, one after the other.
std::vector<std::vector<RunEntry>> run_tasks(const Study& study, const std::vector<StudyTask>& tasks,
                                             const CommandContext& context) {
  const auto count = static_cast<std::int64_t>(tasks.size());
  Progress progress(context, fmt::format("study {}", study.name), count);
  std::vector<std::vector<RunEntry>> runs(tasks.size());
  std::exception_ptr failure;
#pragma omp parallel for schedule(dynamic) if (!study.default_machine.empty())
  for (std::int64_t i = 0; i < count; ++i) {
    const auto task = static_cast<std::size_t>(i);
    try {
#pragma omp critical(study_progress)
      progress.step(tasks[task].label);
      runs[task] = tasks[task].run();
    } catch (...) {
#pragma omp critical(study_failure)
      failure = std::current_exception();
    }
  }
  if (failure) std::rethrow_exception(failure);
  return runs;
}

int run_study(const StudyArguments& arguments, const CommandContext& context) {
  const Study& study = find_study(arguments.name);
  if (study.default_machine.empty() && !arguments.machine.empty()) {
    throw BadInput("machine", arguments.machine,
                   fmt::format("must be left out: {} computes on this CPU", study.name));
  }
  const std::string machine =
      arguments.machine.empty() ? std::string(study.default_machine) : arguments.machine;
  const Machine model = machine.empty() ? Machine{} : load_machine(machine);
  const std::vector<StudyTask> tasks = study.plan(model);
  RunRecord record = start_record(context.argv);
  for (std::vector<RunEntry>& runs : run_tasks(study, tasks, context)) {
    for (RunEntry& run : runs) record.runs.push_back(std::move(run));
  }
  context.print(fmt::format("{}: {} runs{}\n", study.name, record.runs.size(),
                            context.wants_json() ? ""
                                                 : "; --json FILE keeps them, and `tilescope report FILE` "
                                                   "turns them into figures"));
  context.write_json(to_json_text(record));
  return kFine;
}

}  // namespace

void add_study_command(CLI::App& app, CommandContext& context) {
  const auto arguments = std::make_shared<StudyArguments>();
  CLI::App& command =
      add_command(app, context, "study", "a named sweep whose record `report` turns into figures",
                  [arguments, &context] { return run_study(*arguments, context); });
  command.add_option("name", arguments->name, "which (tilescope list studies)")
      ->type_name(fmt::format("{}", fmt::join(study_names(), "|")));
  command.add_option("--machine", arguments->machine, "a machine's name or file; default: the study's own")
      ->type_name("NAME|FILE.json");
}

}  // namespace tilescope::cli
