// SPDX-License-Identifier: Apache-2.0
#include "analysis/cli/help/help_text.hpp"

#include <fmt/format.h>

#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <cctype>
#include <memory>
#include <sstream>

namespace tilescope::cli {
namespace {

constexpr std::size_t kWidth = 100, kColumn = 34;

/// "  NAME TYPE      what it is for", wrapped under itself.
std::string entry(const std::string& name, const std::string& text) {
  std::string out = "  " + name;
  if (out.size() + 2 > kColumn) out += "\n";
  std::size_t stands = out.ends_with('\n') ? 0 : out.size();
  for (const std::string& line : wrap_words(text, kWidth - kColumn)) {
    out += std::string(kColumn - stands, ' ') + line + "\n";
    stands = 0;
  }
  return out.ends_with('\n') ? out : out + "\n";
}

class HelpFormatter : public CLI::Formatter {
 public:
  std::string make_option(const CLI::Option* option, bool is_positional) const override {
    return entry(make_option_name(option, is_positional) + make_option_opts(option),
                 option->get_description());
  }
  /// The type alone: what excludes what is said where somebody gives both.
  std::string make_option_opts(const CLI::Option* option) const override {
    const std::string type = type_of(*option);
    return type.empty() ? "" : " " + type;
  }
  std::string make_subcommand(const CLI::App* command) const override {
    return entry(command->get_name(), command->get_description());
  }
  std::string make_description(const CLI::App* app) const override {
    std::string text;
    for (const std::string& line : wrap_words(app->get_description(), kWidth)) text += line + "\n";
    return text;
  }
  std::string make_help(const CLI::App* app, std::string name, CLI::AppFormatMode mode) const override {
    return make_description(app) + make_usage(app, std::move(name)) + make_positionals(app) +
           groups_text(app) + make_subcommands(app, mode) + "\n" + make_footer(app);
  }

 private:
  static bool shown(const CLI::Option* option, const std::string& group) {
    return option->get_group() == group && option->nonpositional();
  }
  std::string groups_text(const CLI::App* app) const {
    std::vector<std::string> groups = app->get_groups();
    std::stable_partition(groups.begin(), groups.end(),
                          [](const std::string& group) { return group != kOutputGroup; });
    std::string text;
    for (const std::string& group : groups) {
      const auto options = app->get_options([&](const CLI::Option* option) { return shown(option, group); });
      if (!group.empty() && !options.empty()) text += make_group(group, false, options);
    }
    return text;
  }
};

}  // namespace

std::vector<std::string> wrap_words(std::string_view text, std::size_t width) {
  std::vector<std::string> lines;
  std::istringstream words{std::string(text)};
  for (std::string word; words >> word;) {
    if (lines.empty() || lines.back().size() + 1 + word.size() > width) {
      lines.push_back(word);
    } else {
      lines.back() += " " + word;
    }
  }
  return lines;
}

void set_help_format(CLI::App& app) {
  const auto formatter = std::make_shared<HelpFormatter>();
  formatter->label("SUBCOMMAND", "COMMAND");
  app.formatter(formatter);
}

void show_examples(CLI::App& command, std::initializer_list<Example> examples, const std::string& note) {
  std::string text;
  for (const std::string& line : wrap_words(note, kWidth)) text += line + "\n";
  if (!text.empty()) text += "\n";
  text += "Examples:";
  for (const Example& example : examples) {
    text += fmt::format("\n  tilescope {}\n      {}", example.arguments, example.what);
  }
  command.footer(text);
}

std::string type_of(const CLI::Option& option) {
  if (option.get_type_size() == 0) return "";
  const std::string type = option.get_type_name();
  return type.substr(0, type.find(':'));  // what follows names checks
}

std::vector<std::string> choices_of(const CLI::Option& option) {
  std::vector<std::string> choices;
  std::istringstream words(type_of(option));
  for (std::string word; std::getline(words, word, '|');) {
    const bool name = std::any_of(word.begin(), word.end(), [](unsigned char c) { return std::isupper(c); });
    if (name || word == "-") return {};
    choices.push_back(word);
  }
  return choices;
}

std::vector<const CLI::Option*> options_of(const CLI::App& command) {
  return command.get_options([](const CLI::Option* option) {
    return !option->get_group().empty() && option->nonpositional() && !option->get_lnames().empty();
  });
}

std::vector<const CLI::Option*> positionals_of(const CLI::App& command) {
  return command.get_options([](const CLI::Option* option) { return option->get_positional(); });
}

}  // namespace tilescope::cli
