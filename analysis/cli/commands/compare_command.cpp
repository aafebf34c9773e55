// SPDX-License-Identifier: Apache-2.0
// `tilescope compare A B`: two kernels, or one with other choices, and why they move different bytes.
#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "analysis/cli/command.hpp"
#include "analysis/cli/help/help_text.hpp"
#include "analysis/cli/options/parse_text.hpp"
#include "analysis/cli/simulate/simulate.hpp"
#include "analysis/explain/difference.hpp"
#include "common/nearest_names.hpp"

namespace tilescope::cli {
namespace {

struct CompareArguments {
  ProblemOptions problem;
  std::string one, other;
  std::string machine = "h200";
};

/// KERNEL[,tile=MxN][,order=ORDER]...
struct Contender {
  const Kernel* kernel = nullptr;
  KernelChoices choices;
};

Contender parse_contender(const char* field, const std::string& text) {
  if (text.empty())
    throw BadInput(field, "''", "must be a kernel: tilescope compare A B (tilescope list kernels)");
  const std::vector<std::string> words = words_of_list(text);
  Contender contender{&find_kernel(words.front()), {}};
  for (std::size_t i = 1; i < words.size(); ++i) {
    const std::size_t equals = words[i].find('=');
    const std::string name = words[i].substr(0, equals);
    const auto choices = kernel_choice_options();
    const auto choice = std::ranges::find(choices, name, &KernelChoiceOption::name);
    if (equals == std::string::npos || choice == choices.end()) {
      std::vector<std::string> names;
      for (const KernelChoiceOption& each : choices) names.emplace_back(each.name);
      throw unknown_name(std::string(field) + " choice", name, names);
    }
    choice->set(contender.choices, name, words[i].substr(equals + 1));
  }
  return contender;
}

/// Appends the two runs to `record`.
void compare_on(const Machine& machine, const CompareArguments& arguments, const CommandContext& context,
                RunRecord& record) {
  const std::vector<Direction> directions = arguments.problem.directions();
  std::vector<SimulateJob> jobs;
  const Contender contenders[] = {parse_contender("A", arguments.one), parse_contender("B", arguments.other)};
  const AttentionProblem problem =
      arguments.problem.in_type_of({contenders[0].kernel, contenders[1].kernel}, arguments.problem.problem());
  for (const Contender& contender : contenders) {
    jobs.push_back(plan_job(*contender.kernel, problem,
                            contender.choices.apply_to(contender.kernel->default_options(problem), problem),
                            directions, machine));
  }
  context.print(describe(jobs.front().problem) + " on " + machine.title + "\n" + warning_lines(jobs, {}));
  std::vector<RunEntry> runs;
  for (const SimulateJob& job : jobs) runs.push_back(replay(job, {.dram_intervals = true}, context));
  context.print(comparison_table(runs, jobs) + "\n");
  context.print(dram_basis(runs, {&machine, &machine}, std::nullopt));
  const ComparedRun one{arguments.one, jobs[0].kernel, &runs[0]};
  const ComparedRun other{arguments.other, jobs[1].kernel, &runs[1]};
  for (const Direction direction : directions) {
    const std::string why = why_different(one, other, direction, &machine);
    const std::string sentence = fmt::format("{}: {}", to_string(direction), why);
    context.print("\n");
    context.print(wrapped(sentence));
  }
  record.runs.insert(record.runs.end(), runs.begin(), runs.end());
}

int compare(const CompareArguments& arguments, const CommandContext& context) {
  std::vector<Machine> machines;
  for (const std::string& name : words_of_list(arguments.machine)) machines.push_back(load_machine(name));
  RunRecord record = start_record(context.argv);
  for (const Machine& machine : machines) {
    if (&machine != &machines.front()) context.print("\n");
    compare_on(machine, arguments, context, record);
  }
  context.write_json(to_json_text(record));
  return kFine;
}

}  // namespace

void add_compare_command(CLI::App& app, CommandContext& context) {
  const auto arguments = std::make_shared<CompareArguments>();
  CLI::App& command =
      add_command(app, context, "compare",
                  "two kernels side by side on a machine model, and why they move different bytes",
                  [arguments, &context] { return compare(*arguments, context); });
  const char* type = "KERNEL[,CHOICE=VALUE]...";
  add_value(command, "A", arguments->one, type,
            "a kernel, and choices in place of its own: tile, order, scan, backward, fp8-sums, variant, "
            "diagonal-slices, splits, pack-gqa, query-splits");
  add_value(command, "B", arguments->other, type, "another, or the same with other choices");
  arguments->problem.add_to(command);
  add_value(command, "--machine", arguments->machine, "MACHINE|FILE.json",
            "a machine's name or file, several with commas; default h200", "Machine");
  add_format_option(command, context);
  show_examples(
      command, {{"compare cpu:flash1 cpu:flash2 --preset gpt2-medium", "what FlashAttention-2's order saves"},
                {"compare cpu:flash2,tile=64x64 cpu:flash2,tile=128x64 --seqlen 4k --dtype fp16",
                 "what larger tiles save"}});
}

}  // namespace tilescope::cli
