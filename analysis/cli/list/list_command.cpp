// SPDX-License-Identifier: Apache-2.0
// `tilescope list`: what the names on the command line may be.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>

#include "analysis/cli/command.hpp"
#include "analysis/cli/help/help_text.hpp"
#include "analysis/cli/list/catalogues.hpp"
#include "analysis/cli/options/parse_text.hpp"
#include "analysis/cli/text_table.hpp"
#include "analysis/model/machine/machine.hpp"
#include "common/errors.hpp"
#include "common/wrap_words.hpp"

namespace tilescope::cli {
namespace {

/// Name, fact and summary in columns; a summary goes on under itself.
std::string entry_table(const std::vector<Entry>& entries) {
  std::size_t name = 0, detail = 0;
  for (const Entry& entry : entries) {
    name = std::max(name, entry.name.size());
    if (entry.columns.empty()) detail = std::max(detail, entry.detail.size());
  }
  constexpr std::size_t kLongestDetail = 44, kLongestName = 34;
  const std::size_t before =
      std::min(name, kLongestName) + 2 + (detail > 0 ? std::min(detail, kLongestDetail) + 2 : 0);
  const std::size_t width = text_width(), beside = width - std::min(before, width - 1);
  std::string text;
  for (const Entry& entry : entries) {
    std::string line = fmt::format("{:<{}}  ", entry.name, std::min(name, kLongestName));
    if (entry.columns.empty() && detail > 0)
      line += fmt::format("{:<{}}  ", entry.detail, std::min(detail, kLongestDetail));
    std::vector<std::string> parts = wrap_words(entry.summary, beside);
    const bool fits =
        std::ranges::all_of(parts, [beside](const std::string& part) { return part.size() <= beside; });
    const std::size_t indent = fits && line.size() <= before ? before : 4;  // else on lines of its own
    if (indent < before) {
      parts = wrap_words(entry.summary, width - indent);
      text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
      line = std::string(indent, ' ');
    }
    for (const std::string& part : parts) {
      text += line + part + "\n";
      line = std::string(indent, ' ');
    }
  }
  return text;
}

/// One row an entry, for other tools.
Table plain_table(const std::vector<Entry>& entries) {
  Table table{.rows = {{"name"}}};
  for (const auto& [heading, fact] : entries.front().columns) table.rows[0].emplace_back(heading);
  if (entries.front().columns.empty()) table.rows[0].emplace_back("detail");
  table.rows[0].emplace_back("summary");
  for (const Entry& entry : entries) {
    Row& row = table.rows.emplace_back(Row{entry.name});
    for (const auto& [heading, fact] : entry.columns) row.emplace_back(fact);
    if (entry.columns.empty()) row.emplace_back(entry.detail);
    row.emplace_back(entry.summary);
  }
  return table;
}

/// "All take: causal, window. All but gpu:split-k take: dropout. Only cpu:flash2 (forward) takes: packing. ":
/// what is only yes or no of each entry, or yes of its forward pass, in sentences.
class YesOrNo {
 public:
  /// @return whether column `c` is of that kind; it is then told here
  bool take(const std::vector<Entry>& entries, std::size_t c) {
    std::vector<std::string> having, lacking;
    bool alike = true;  // whether all that have it have it whole
    for (const Entry& entry : entries) {
      const std::string& fact = entry.columns[c].second;
      if (fact != "yes" && fact != "-" && fact != "forward") return false;
      alike &= fact != "forward";
      (fact == "-" ? lacking : having).push_back(entry.name + (fact == "forward" ? " (forward)" : ""));
    }
    if (having.empty()) return false;
    const bool few = !alike || having.size() < lacking.size();
    const std::string who =
        lacking.empty() && alike ? "All take"
        : few ? fmt::format("Only {} take{}", fmt::join(having, ", "), having.size() == 1 ? "s" : "")
              : fmt::format("All but {} take", fmt::join(lacking, ", "));
    columns_[{lacking.size(), who}].push_back(entries.front().columns[c].first);
    return true;
  }
  std::string text() const {
    std::string text;
    for (const auto& [who, columns] : columns_)
      text += fmt::format("{}: {}. ", who.second, fmt::join(columns, ", "));
    return text;
  }

 private:
  std::map<std::pair<std::size_t, std::string>, std::vector<std::string>> columns_;  // by how many lack them
};

/// The entries, and their columns as a table.
std::string as_table(const Catalogue& catalogue, const std::vector<Entry>& entries) {
  if (entries.front().columns.empty()) return entry_table(entries);
  YesOrNo told;
  TextRows facts(1 + entries.size());
  facts[0].emplace_back();
  for (std::size_t i = 0; i < entries.size(); ++i) facts[1 + i].push_back(entries[i].name);
  for (std::size_t c = 0; c < entries.front().columns.size(); ++c) {
    if (told.take(entries, c)) continue;
    facts[0].push_back(entries.front().columns[c].first);
    for (std::size_t i = 0; i < entries.size(); ++i) facts[1 + i].push_back(entries[i].columns[c].second);
  }
  return entry_table(entries) + "\n" + align_columns(facts) + "\n" +
         wrapped(told.text() + std::string(catalogue.note));
}

std::string as_json(const Catalogue& catalogue, const std::vector<Entry>& entries) {
  auto rows = nlohmann::ordered_json::array();
  for (const Entry& entry : entries) {
    rows.push_back({{"name", entry.name}, {"detail", entry.detail}, {"summary", entry.summary}});
    for (const auto& [heading, fact] : entry.columns) rows.back()[heading] = fact;
  }
  return nlohmann::ordered_json{{catalogue.name, rows}}.dump(2) + "\n";
}

struct ListArguments {
  std::string what, name;
  bool wants_template = false;
};

/// JSON with what fits a line of 180 columns on one: programs read it, and people look a field up.
std::string folded(const Json& json, std::size_t indent = 0) {
  std::string line = json.dump();
  if (!json.is_structured() || indent + line.size() <= 180) return line;
  std::vector<std::string> items;
  for (const auto& [name, item] : json.items()) {
    const std::string key = json.is_object() ? Json(name).dump() + ": " : "";
    items.push_back(std::string(indent + 2, ' ') + key + folded(item, indent + 2));
  }
  const char* brackets = json.is_object() ? "{}" : "[]";
  return fmt::format("{}\n{}\n{:{}}{}", brackets[0], fmt::join(items, ",\n"), "", indent, brackets[1]);
}

int list(const ListArguments& arguments, const CommandContext& context) {
  const bool machines = arguments.what == "machines";
  const auto as_it_is = [&context](const std::string& json) {
    context.print_as_it_is(json);
    context.write_json(json);
    return kFine;
  };
  if (arguments.wants_template) {
    if (!machines) throw BadInput("--template", "given", "must stand with machines");
    return as_it_is(machine_template());
  }
  if (!arguments.name.empty() && arguments.what == "schemas") {
    return as_it_is(folded(find_schema(arguments.name).schema()) + "\n");
  }
  if (!arguments.name.empty() && !machines)
    throw BadInput("list argument", "'" + arguments.name + "'", "must stand with machines or schemas");
  const Catalogue catalogue =
      arguments.name.empty() ? find_catalogue(arguments.what) : Catalogue{arguments.name, nullptr, ""};
  const std::vector<Entry> entries =
      arguments.name.empty() ? catalogue.entries() : list_numbers(arguments.name);
  context.print(context.format == TableFormat::text ? Output(as_table(catalogue, entries))
                                                    : plain_table(entries));
  context.write_json(as_json(catalogue, entries));
  return kFine;
}

}  // namespace

void add_list_command(CLI::App& app, CommandContext& context) {
  const auto arguments = std::make_shared<ListArguments>();
  CLI::App& command = add_command(app, context, "list", "the names that options take",
                                  [arguments, &context] { return list(*arguments, context); });
  std::string choices;
  for (const Catalogue& catalogue : catalogues()) choices += (choices.empty() ? "" : "|") + catalogue.name;
  add_value(command, "what", arguments->what, choices, "which names; without it, what there is to list");
  add_value(command, "name", arguments->name, "NAME",
            "of machines: one whose numbers and sources are printed; of schemas: one to print");
  command.add_flag("--template", arguments->wants_template,
                   "of machines: a file to fill in, for --machine FILE.json");
  add_format_option(command, context);
  show_examples(command, {{"list kernels", "what each can"},
                          {"list machines h200", "the numbers of a machine, with their sources"},
                          {"list machines --json -", "as JSON"}});
}

}  // namespace tilescope::cli
