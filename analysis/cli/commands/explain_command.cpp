// SPDX-License-Identifier: Apache-2.0
// `tilescope explain RECORD --batch ... --pass ...`: which tile programs explain the bytes of somebody's
// kernels.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <memory>

#include "analysis/cli/command.hpp"
#include "analysis/cli/distributed/distributed.hpp"
#include "analysis/cli/help/help_text.hpp"
#include "analysis/cli/options/parse_text.hpp"
#include "analysis/cli/options/problem_options.hpp"
#include "analysis/explain/explain_record.hpp"
#include "analysis/records/files/text_file.hpp"
#include "analysis/records/record_kinds.hpp"
#include "analysis/report/sections/checks/foreign_kernels.hpp"
#include "profiler/records/json_fields.hpp"

namespace tilescope::cli {
namespace {

struct ExplainArguments {
  std::string record;
  std::optional<std::string> gpus, link_bytes;
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

/// "\nis B2 H8 ... the right problem? 9 kernels fit better with 32 heads over the batch"; empty where most of
/// what is explained speaks for it.
std::string doubt(const ExplainRecord& record, const std::vector<KernelFit>& fits) {
  std::int64_t explained = 0, most = 0, heads = 0;
  std::map<std::int64_t, std::int64_t> votes;
  for (const KernelFit& fit : fits) {
    explained += fit.agreement == Agreement::explained;
    if (fit.other_heads && ++votes[fit.other_heads->heads] > most) {
      most = votes[heads = fit.other_heads->heads];
    }
  }
  if (explained > most) return "";
  std::string text = "is " + describe(record.problem) + " the right problem?";
  if (most > 0) text += fmt::format(" {} fit better with {} heads over the batch", most, heads);
  return text + "\n";
}

/// What of the problem the bytes leave open, where they explain kernels by it.
std::string left_open(const ExplainRecord& record, const std::vector<KernelFit>& fits) {
  if (std::none_of(fits.begin(), fits.end(),
                   [](const KernelFit& fit) { return fit.agreement == Agreement::explained; })) {
    return "";
  }
  const std::int64_t heads = record.problem.batch * record.problem.heads;
  std::string text;
  if (heads > 1) text = fmt::format("another split of the {} heads over batch and heads", heads);
  if (const auto heads_kv = heads_kv_as_good(record, fits); !heads_kv.empty()) {
    text += fmt::format("{}--heads-kv {}", text.empty() ? "" : ", or ", fmt::join(heads_kv, ", "));
  }
  return text.empty() ? "" : "the same bytes have: " + text + "\n";
}

/// --gpus: a schedule, by the bytes of its link.
int explain_link(const ExplainArguments& arguments, const CommandContext& context) {
  constexpr std::int64_t kMost = std::int64_t{1} << 50;
  if (!arguments.gpus || !arguments.link_bytes || !arguments.record.empty() ||
      !arguments.problem.shape_given() || arguments.problem.directions().size() > 1) {
    throw BadInput("--link-bytes", arguments.link_bytes.value_or("(none)"),
                   "must stand with --gpus N, a problem and one --pass, and without a record");
  }
  return explain_link_bytes(
      context, arguments.problem.problem(), arguments.problem.directions().front(),
      static_cast<int>(parse_integer_in("gpus", *arguments.gpus, 2, kMostRanks)),
      static_cast<double>(parse_bytes_in("link-bytes", *arguments.link_bytes, 1, kMost)));
}

int run_explain(const ExplainArguments& arguments, const CommandContext& context) {
  if (arguments.gpus || arguments.link_bytes) return explain_link(arguments, context);
  if (!arguments.record.empty()) {
    const std::string text = read_text_file(arguments.record);
    const Json json = parse_json(arguments.record, text);
    const bool peers =
        JsonField(arguments.record, json).has("schema") && json["schema"] == kDistributedPeersSchema;
    if (peers) return explain_peers(context, parse_distributed_peers(arguments.record, text));
    require_kind(arguments.record, json, {kKernelsSchema});
  }
  const ExplainRecord record = explain_kernels(arguments, context);
  context.write_json(to_json_text(record));
  const std::vector<KernelFit> fits = explain(record);
  context.print(explanation_text(record) + doubt(record, fits) + left_open(record, fits));
  return kFine;
}

}  // namespace

void add_explain_command(CLI::App& app, CommandContext& context) {
  const auto arguments = std::make_shared<ExplainArguments>();
  CLI::App& command =
      add_command(app, context, "explain",
                  "the tile programs and block sizes behind the kernels that `profile -- COMMAND` measured",
                  [arguments, &context] { return run_explain(*arguments, context); });
  add_value(command, "record", arguments->record, "RECORD",
            "what `profile --json FILE -- COMMAND` or `emulate --json FILE` wrote");
  add_value(command, "--kernel-filter", arguments->choice.filter, "REGEX",
            "only kernels whose name contains a match");
  add_integer(command, "--skip", arguments->choice.skip, 0, kAnyCount,
              "leave out the first matching launches");
  add_integer(command, "--count", arguments->choice.count, 1, kAnyCount, "at most so many launches");
  add_value(command, "--gpus", arguments->gpus, "N", "with --link-bytes: so many GPUs share the problem");
  add_value(command, "--link-bytes", arguments->link_bytes, "BYTES",
            "instead of a record: user data that the GPU which sends most sends in one pass; says which "
            "schedules do");
  arguments->problem.add_to(command);
  show_examples(command,
                {{"explain kernels.json --heads 16 --seqlen 4k --head-dim 128 --dtype fp16",
                  "the tiles behind the kernels of a record"},
                 {"explain kernels.json --preset fa2-16k --kernel-filter flash_fwd", "of some of them"},
                 {"explain --gpus 2 --link-bytes 16777216 --preset llama3-8b --pass fwd",
                  "the schedule behind the bytes on a link"}});
}

}  // namespace tilescope::cli
