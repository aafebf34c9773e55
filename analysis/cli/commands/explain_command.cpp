// SPDX-License-Identifier: Apache-2.0
// `tilescope explain RECORD --batch ... --pass ...`: which tile programs explain the bytes of somebody's
// kernels.
#include <fmt/format.h>

#include <memory>

#include "analysis/cli/command.hpp"
#include "analysis/cli/commands/explained.hpp"
#include "analysis/cli/distributed/distributed.hpp"
#include "analysis/cli/help/help_text.hpp"
#include "analysis/cli/options/parse_text.hpp"
#include "analysis/cli/options/problem_options.hpp"
#include "analysis/explain/explain_record.hpp"
#include "analysis/explain/program_text.hpp"
#include "analysis/records/files/text_file.hpp"
#include "profiler/records/json_fields.hpp"

namespace tilescope::cli {
namespace {

struct ExplainArguments {
  std::string record;
  std::optional<std::string> gpus, link_bytes, reads, writes;
  std::string program;
  KernelChoice choice;
  ProblemOptions problem;
};

/// --reads and --writes.
std::optional<ReadWriteBytes> said_to_move(const ExplainArguments& arguments) {
  if (!arguments.reads && !arguments.writes) return std::nullopt;
  constexpr std::int64_t kMost = std::int64_t{1} << 50;
  const auto bytes = [](const char* name, const std::optional<std::string>& text) {
    return text ? parse_bytes_in(name, *text, 0, kMost) : 0;
  };
  return ReadWriteBytes{bytes("reads", arguments.reads), bytes("writes", arguments.writes)};
}

/// What the kernels are held against: the problem that was typed, else the one that their record names.
ExplainInput input_of(const ExplainArguments& arguments, const KernelsOfProblem& kernels) {
  ExplainInput input;
  input.must = said_to_move(arguments);
  if (!arguments.program.empty()) {
    input.program = read_text_file(arguments.program);
    parse_program_text(arguments.program, *input.program);
  }
  if (!arguments.problem.shape_given() && !kernels.problem && !input.must) {
    throw BadInput("problem", "(none)",
                   "must be what the kernels computed, as in --batch 2 --heads 16 --seqlen 4k --head-dim 128 "
                   "--dtype fp16, or --preset NAME; of kernels that are no attention, --reads BYTES and "
                   "--writes BYTES say what they must move");
  }
  input.problem =
      kernels.problem && !arguments.problem.shape_given() ? *kernels.problem : arguments.problem.problem();
  input.directions = arguments.problem.pass_given() ? arguments.problem.directions()
                                                    : std::vector{Direction::forward, Direction::backward};
  return input;
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
  if (arguments.record.empty()) {
    throw BadInput("RECORD", "''", "must be a record that `profile -- COMMAND` wrote; see --help");
  }
  const std::string text = read_text_file(arguments.record);
  if (text.starts_with('{')) {
    const Json json = parse_json(arguments.record, text);
    const bool peers =
        JsonField(arguments.record, json).has("schema") && json["schema"] == kDistributedPeersSchema;
    if (peers) return explain_peers(context, parse_distributed_peers(arguments.record, text));
  }
  const std::vector<KernelsOfProblem> all = read_kernels(arguments.record, text);
  if (all.size() > 1 && context.wants_json()) {
    throw BadInput(
        "--json", context.json,
        fmt::format("must stand with a record of one run; {} has {}", arguments.record, all.size()));
  }
  for (const KernelsOfProblem& kernels : all) {
    const ExplainRecord record = explain_record(context.argv, arguments.record, kernels.kernels,
                                                arguments.choice, input_of(arguments, kernels));
    const Output said = explained(record, context.format);
    context.write_json(to_json_text(record));
    context.print(Output(&kernels == &all.front() ? "" : "\n") + said);
  }
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
            "what `profile --json FILE` wrote, of a command or of --kernel, `emulate --json FILE`, or "
            "`ncu --page raw --print-units base`, with --csv or without");
  add_value(command, "--kernel-filter", arguments->choice.filter, "REGEX",
            "only kernels whose name contains a match");
  add_integer(command, "--skip", arguments->choice.skip, 0, kAnyCount,
              "leave out the first matching launches");
  add_integer(command, "--count", arguments->choice.count, 1, kAnyCount, "at most so many launches");
  add_value(command, "--reads", arguments->reads, "BYTES",
            "bytes that each kernel must read, in place of the problem's inputs");
  add_value(command, "--writes", arguments->writes, "BYTES", "bytes that each kernel must write");
  add_value(command, "--program", arguments->program, "FILE",
            "a tile program as a text, held against the kernels beside the known ones");
  add_format_option(command, context);
  add_value(command, "--gpus", arguments->gpus, "N", "with --link-bytes: so many GPUs share the problem");
  add_value(command, "--link-bytes", arguments->link_bytes, "BYTES",
            "instead of a record: user data that the GPU which sends most sends in one pass; says which "
            "schedules do");
  arguments->problem.add_to(command);
  show_examples(command,
                {{"explain kernels.json --heads 16 --seqlen 4k --head-dim 128 --dtype fp16",
                  "the tiles behind the kernels of a record"},
                 {"explain kernels.json --preset fa2-16k --kernel-filter flash_fwd", "of some of them"},
                 {"explain run.json --format markdown", "of our own, whose record names its problem"},
                 {"explain ncu.csv --preset gpt2-medium", "what Nsight Compute counted"},
                 {"explain --gpus 2 --link-bytes 16777216 --preset llama3-8b --pass fwd",
                  "the schedule behind the bytes on a link"}});
}

}  // namespace tilescope::cli
