// SPDX-License-Identifier: Apache-2.0
#include "analysis/cli/help/help_text.hpp"

#include <fmt/format.h>

#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <cctype>
#include <map>
#include <memory>
#include <sstream>
#include <utility>

#include "analysis/cli/text_table.hpp"
#include "common/nearest_names.hpp"
#include "common/wrap_words.hpp"

namespace tilescope::cli {
namespace {

constexpr std::size_t kColumn = 34;

/// A list of choices in lines of the text's width.
std::string wrap_choices(std::string text) {
  constexpr std::string_view kNextLine = "\n      ";
  for (std::size_t line = 0; text.size() - line > text_width();) {
    const std::size_t bar = text.rfind('|', line + text_width() - 1);
    if (bar == std::string::npos || bar < line + kNextLine.size()) break;
    text.insert(bar + 1, kNextLine);
    line = bar + 2;
  }
  return text;
}

/// "  NAME TYPE      what it is for", wrapped under itself.
std::string entry(const std::string& name, const std::string& text) {
  std::string out = wrap_choices("  " + name);
  if (out.size() + 2 > kColumn) out += "\n";
  std::size_t stands = out.ends_with('\n') ? 0 : out.size();
  for (const std::string& line : wrap_words(text, text_width() - kColumn)) {
    out += std::string(kColumn - stands, ' ') + line + "\n";
    stands = 0;
  }
  return out.ends_with('\n') ? out : out + "\n";
}

/// As wrap_words, of a list at ", ": no option is parted from its value.
std::vector<std::string> wrap_items(std::string_view text, std::size_t width) {
  std::vector<std::string> lines;
  while (!text.empty()) {
    const std::size_t end = text.find(", ");
    const std::string item(text.substr(0, end == std::string_view::npos ? end : end + 1));
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 2);
    if (lines.empty() || lines.back().size() + 1 + item.size() > width) {
      lines.push_back(item);
    } else {
      lines.back() += " " + item;
    }
  }
  return lines;
}

std::string name_and_type(const CLI::Option& option) {
  const std::string type = type_of(option);
  return "--" + option.get_lnames().front() + (type.empty() ? "" : " " + type);
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
    for (const std::string& line : wrap_words(app->get_description(), text_width())) text += line + "\n";
    return text;
  }
  std::string make_help(const CLI::App* app, std::string name, CLI::AppFormatMode mode) const override {
    return make_description(app) + make_usage(app, std::move(name)) + make_positionals(app) +
           groups_text(app) + make_subcommands(app, mode) + "\n" + make_footer(app);
  }

 private:
  /// The command's own options in full; those that many commands have by name, behind them.
  std::string groups_text(const CLI::App* app) const {
    std::string own, common;
    for (const std::string& group : app->get_groups()) {
      const auto options = app->get_options([&](const CLI::Option* option) {
        return option->get_group() == group && option->nonpositional() && !is_common(*app, *option);
      });
      if (!group.empty() && !options.empty()) own += make_group(group, false, options);
    }
    for (const std::string& group : common_groups()) {
      const std::string names = common_names(*app, group);
      if (names.empty()) continue;
      common += fmt::format("\n{} (tilescope help {} explains):\n", group, lower_case(group));
      for (const std::string& line : wrap_items(names, text_width() - 2)) common += "  " + line + "\n";
    }
    return own + common;
  }
};

}  // namespace

void set_help_format(CLI::App& app) {
  const auto formatter = std::make_shared<HelpFormatter>();
  formatter->label("SUBCOMMAND", "COMMAND");
  app.formatter(formatter);
}

std::vector<std::string> common_groups() { return {"Problem", "Kernel", kOutputGroup}; }

std::vector<const CLI::Option*> common_options(const CLI::App& app, const std::string& group) {
  constexpr int kMany = 3;  // commands that have an option in the same words
  const auto name_and_words = [](const CLI::Option* option) {
    return std::pair(option->get_lnames().front(), option->get_description());
  };
  std::map<std::pair<std::string, std::string>, int> commands;
  std::vector<const CLI::Option*> options;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    for (const CLI::Option* option : options_of(*command)) {
      if (option->get_group() != group) continue;
      if (++commands[name_and_words(option)] == 1) options.push_back(option);
    }
  }
  std::erase_if(options, [&](const CLI::Option* option) { return commands[name_and_words(option)] < kMany; });
  return options;
}

bool is_common(const CLI::App& command, const CLI::Option& option) {
  if (command.get_parent() == nullptr || option.get_lnames().empty()) return false;
  const auto groups = common_groups();
  if (std::ranges::find(groups, option.get_group()) == groups.end()) return false;
  const auto common = common_options(*command.get_parent(), option.get_group());
  return std::ranges::any_of(common, [&option](const CLI::Option* other) {
    return other->get_lnames() == option.get_lnames() && other->get_description() == option.get_description();
  });
}

std::string common_names(const CLI::App& command, const std::string& group) {
  std::string names;
  for (const CLI::Option* option : options_of(command)) {
    if (option->get_group() != group || !is_common(command, *option)) continue;
    names += (names.empty() ? "" : ", ") + name_and_type(*option);
  }
  return names;
}

std::string group_help(const CLI::App& app, const std::string& group) {
  std::string text = fmt::format("{} options, of every command whose --help names them:\n\n", group);
  for (const CLI::Option* option : common_options(app, group)) {
    text += entry(name_and_type(*option), option->get_description());
  }
  return text;
}

void show_examples(CLI::App& command, std::initializer_list<Example> examples, const std::string& note) {
  std::string text;
  for (const std::string& line : wrap_words(note, text_width())) text += line + "\n";
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
    const bool name = std::ranges::any_of(word, [](unsigned char c) { return std::isupper(c); });
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
