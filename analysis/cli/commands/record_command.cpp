// SPDX-License-Identifier: Apache-2.0
// `tilescope record compact RECORD...`: records in the form in which they are kept in a repository.
#include <fmt/format.h>

#include <memory>

#include "analysis/cli/command.hpp"
#include "analysis/records/atomic_file.hpp"
#include "analysis/records/compact_record.hpp"
#include "analysis/records/json_fields.hpp"

namespace tilescope::cli {
namespace {

struct RecordArguments {
  std::string form;
  std::vector<std::string> records;
};

int run_record(const RecordArguments& arguments, const CommandContext& context) {
  if (arguments.form != "compact") throw BadInput("FORM", "'" + arguments.form + "'", "must be compact");
  if (arguments.records.empty()) throw BadInput("RECORD", "(none)", "must be at least one record");
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

}  // namespace

void add_record_command(CLI::App& app, CommandContext& context) {
  const auto arguments = std::make_shared<RecordArguments>();
  CLI::App& command =
      add_command(app, context, "record",
                  "compact: rewrites records in the form for a repository, a run or pass a line, without the "
                  "samples of times",
                  [arguments, &context] { return run_record(*arguments, context); });
  command.add_option("form", arguments->form, "compact")->type_name("FORM");
  command.add_option("records", arguments->records, "what other commands wrote with --json; replaced")
      ->type_name("RECORD...");
  show_examples(command, {{"record compact reports/data/NAME.json", "the form for a repository, in place"},
                          {"record compact *.json", "several at once; none is written if one is damaged"}});
}

}  // namespace tilescope::cli
