// SPDX-License-Identifier: Apache-2.0
// `tilescope record merge PART...`: those of the parts of a sweep as one.
#include <fmt/format.h>

#include <memory>

#include "analysis/cli/command.hpp"
#include "analysis/cli/help/help_text.hpp"
#include "analysis/cli/options/parse_text.hpp"
#include "analysis/records/merge_shards.hpp"

namespace tilescope::cli {
namespace {

struct RecordArguments {
  std::string form;
  std::vector<std::string> records;
};

int merge(const RecordArguments& arguments, const CommandContext& context) {
  std::vector<std::pair<std::string, RunRecord>> parts;
  for (const std::string& path : arguments.records) parts.emplace_back(path, read_run_record(path));
  const RunRecord whole = merge_shards(std::move(parts));
  context.print(fmt::format("{} parts: {} runs{}\n", arguments.records.size(), whole.runs.size(),
                            context.wants_json() ? "" : "; --json FILE keeps them"));
  context.write_json(to_json_text(whole));
  return kFine;
}

int run_record(const RecordArguments& arguments, const CommandContext& context) {
  if (arguments.form != "merge") throw BadInput("FORM", "'" + arguments.form + "'", "must be merge");
  if (arguments.records.empty()) throw BadInput("RECORD", "(none)", "must be at least one record");
  return merge(arguments, context);
}

}  // namespace

void add_record_command(CLI::App& app, CommandContext& context) {
  const auto arguments = std::make_shared<RecordArguments>();
  CLI::App& command =
      add_command(app, context, "record", "merge: the parts of a sweep (--shard) as one record",
                  [arguments, &context] { return run_record(*arguments, context); });
  add_value(command, "form", arguments->form, "merge", "what to do with them");
  add_value(command, "records", arguments->records, "RECORD...",
            "what other commands wrote with --shard and --json");
  show_examples(command,
                {{"record merge part-*.json --json run.json", "what study --shard 0/4 ... 3/4 wrote"},
                 {"record merge part-*.json.gz --json run.json.gz", "the same, compressed"}});
}

}  // namespace tilescope::cli
