// SPDX-License-Identifier: Apache-2.0
// `tilescope record compact RECORD...`: records in the form in which they are kept in a repository.
// `tilescope record merge PART...`: those of the parts of a sweep as one.
#include <fmt/format.h>

#include <memory>

#include "analysis/cli/command.hpp"
#include "analysis/records/compact_record.hpp"
#include "analysis/records/files/atomic_file.hpp"
#include "analysis/records/json/json_fields.hpp"
#include "analysis/records/merge_shards.hpp"

namespace tilescope::cli {
namespace {

struct RecordArguments {
  std::string form;
  std::vector<std::string> records;
};

int compact(const RecordArguments& arguments, const CommandContext& context) {
  if (context.wants_json()) {
    throw BadInput("--json", context.json, "must be left out: compact replaces the records that it is given");
  }
  std::vector<std::string> texts;  // all of them, before the first is written
  std::vector<std::size_t> before;
  for (const std::string& path : arguments.records) {
    const std::string text = read_text_file(path);
    before.push_back(text.size());
    texts.push_back(compact_record(path, text));
  }
  for (std::size_t i = 0; i < texts.size(); ++i) {
    write_file_atomically("RECORD", arguments.records[i], texts[i]);
    context.print(fmt::format("{}: {} bytes, were {}\n", arguments.records[i], texts[i].size(), before[i]));
  }
  return kFine;
}

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
  if (arguments.form != "compact" && arguments.form != "merge") {
    throw BadInput("FORM", "'" + arguments.form + "'", "must be compact or merge");
  }
  if (arguments.records.empty()) throw BadInput("RECORD", "(none)", "must be at least one record");
  return arguments.form == "merge" ? merge(arguments, context) : compact(arguments, context);
}

}  // namespace

void add_record_command(CLI::App& app, CommandContext& context) {
  const auto arguments = std::make_shared<RecordArguments>();
  CLI::App& command =
      add_command(app, context, "record",
                  "compact: rewrites records in the form for a repository, a run or pass a line, without the "
                  "samples of times; merge: the parts of a sweep (--shard) as one record",
                  [arguments, &context] { return run_record(*arguments, context); });
  command.add_option("form", arguments->form, "what to do with them")->type_name("compact|merge");
  command
      .add_option("records", arguments->records,
                  "what other commands wrote with --json; compact replaces them")
      ->type_name("RECORD...");
  show_examples(command,
                {{"record compact reports/data/NAME.json", "the form for a repository, in place"},
                 {"record compact *.json", "several at once; none is written if one is damaged"},
                 {"record merge part-*.json --json run.json", "what study --shard 0/4 ... 3/4 wrote"}});
}

}  // namespace tilescope::cli
