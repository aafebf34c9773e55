// SPDX-License-Identifier: Apache-2.0
// `tilescope list`: what the names on the command line may be.
#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "analysis/cli/command.hpp"
#include "analysis/nearest_names.hpp"
#include "cpu_ref/problem.hpp"

namespace tilescope::cli {
namespace {

struct Entry {
  std::string name;
  std::string detail;   // the exact facts, in a column
  std::string summary;  // one line
};

std::vector<Entry> list_problems() {
  std::vector<Entry> entries;
  for (const Preset& preset : presets()) {
    entries.push_back({std::string(preset.name), describe(preset.problem), std::string(preset.summary)});
  }
  return entries;
}

struct Catalogue {
  std::string name;
  std::vector<Entry> (*entries)();
};

const std::vector<Catalogue>& catalogues() {
  static const std::vector<Catalogue> all = {{"problems", list_problems}};
  return all;
}

const Catalogue& find_catalogue(const std::string& name) {
  std::vector<std::string> names;
  for (const Catalogue& catalogue : catalogues()) {
    if (catalogue.name == name) return catalogue;
    names.push_back(catalogue.name);
  }
  throw unknown_name("list", name, names);
}

std::string as_table(const std::vector<Entry>& entries) {
  std::size_t name_width = 0, detail_width = 0;
  for (const Entry& entry : entries) {
    name_width = std::max(name_width, entry.name.size());
    detail_width = std::max(detail_width, entry.detail.size());
  }
  std::string text;
  for (const Entry& entry : entries) {
    text += fmt::format("{:<{}}  {:<{}}  {}\n", entry.name, name_width, entry.detail, detail_width,
                        entry.summary);
  }
  return text;
}

std::string as_json(const Catalogue& catalogue, const std::vector<Entry>& entries) {
  auto rows = nlohmann::ordered_json::array();
  for (const Entry& entry : entries) {
    rows.push_back({{"name", entry.name}, {"detail", entry.detail}, {"summary", entry.summary}});
  }
  return nlohmann::ordered_json{{catalogue.name, rows}}.dump(2) + "\n";
}

}  // namespace

void add_list_command(CLI::App& app, CommandContext& context) {
  const auto what = std::make_shared<std::string>();
  CLI::App& command = add_command(app, context, "list", "the names that options take", [what, &context] {
    const Catalogue& catalogue = find_catalogue(*what);
    const std::vector<Entry> entries = catalogue.entries();
    context.print(as_table(entries));
    context.write_json(as_json(catalogue, entries));
    return kFine;
  });
  std::string choices;
  for (const Catalogue& catalogue : catalogues()) choices += (choices.empty() ? "" : "|") + catalogue.name;
  command.add_option("what", *what, "which names")->type_name(choices);
}

}  // namespace tilescope::cli
