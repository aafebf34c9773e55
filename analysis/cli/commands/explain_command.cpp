// SPDX-License-Identifier: Apache-2.0
// `tilescope explain RECORD --batch ... --pass ...`: which tile programs explain the bytes of somebody's
// kernels.
#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "analysis/cli/command.hpp"
#include "analysis/cli/help/help_text.hpp"
#include "analysis/cli/options/problem_options.hpp"
#include "analysis/explain/explain_record.hpp"
#include "analysis/records/json_fields.hpp"
#include "analysis/report/sections/checks/explain_tables.hpp"

namespace tilescope::cli {
namespace {

struct ExplainArguments {
  std::string record;
  KernelChoice choice;
  ProblemOptions problem;
};

ExplainRecord explain_kernels(const ExplainArguments& arguments, const CommandContext& context) {
  if (arguments.record.empty()) {
    throw BadInput("RECORD", "''", "must be a record that `profile -- COMMAND` wrote; see --help");
  }
  const KernelRecord kernels = parse_kernel_record(arguments.record, read_text_file(arguments.record));
  if (!arguments.problem.shape_given()) {
    throw BadInput("problem", "(none)",
                   "must be what the kernels computed, as in --batch 2 --heads 16 --seqlen 4k --head-dim 128 "
                   "--dtype fp16, or --preset NAME");
  }
  return explain_record(
      context.argv, arguments.record, kernels, arguments.choice, arguments.problem.problem(),
      arguments.problem.pass_given() ? arguments.problem.directions()
                                     : std::vector{Direction::forward, Direction::backward});
}

/// Where not one kernel is explained, the problem may not be theirs.
std::string doubt(const ExplainRecord& record) {
  const std::vector<KernelFit> fits = explain(record);
  const bool none = std::none_of(fits.begin(), fits.end(),
                                 [](const KernelFit& fit) { return fit.agreement == Agreement::explained; });
  return none ? "is " + describe(record.problem) + " the right problem?\n" : "";
}

int run_explain(const ExplainArguments& arguments, const CommandContext& context) {
  const ExplainRecord record = explain_kernels(arguments, context);
  context.write_json(to_json_text(record));
  context.print(explanation_text(record) + doubt(record));
  return kFine;
}

}  // namespace

void add_explain_command(CLI::App& app, CommandContext& context) {
  const auto arguments = std::make_shared<ExplainArguments>();
  CLI::App& command =
      add_command(app, context, "explain",
                  "the tile programs and block sizes behind the kernels that `profile -- COMMAND` measured",
                  [arguments, &context] { return run_explain(*arguments, context); });
  command.add_option("record", arguments->record, "what `profile --json FILE -- COMMAND` wrote")
      ->type_name("RECORD");
  command.add_option("--kernel-filter", arguments->choice.filter, "only kernels whose name contains a match")
      ->type_name("REGEX");
  command.add_option("--skip", arguments->choice.skip, "leave out the first matching launches")
      ->type_name("K");
  command.add_option("--count", arguments->choice.count, "at most so many launches")->type_name("K");
  arguments->problem.add_to(command);
  show_examples(command,
                {{"explain kernels.json --heads 16 --seqlen 4k --head-dim 128 --dtype fp16",
                  "the tiles behind the kernels of a record"},
                 {"explain kernels.json --preset fa2-16k --kernel-filter flash_fwd", "of some of them"}});
}

}  // namespace tilescope::cli
