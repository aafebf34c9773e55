// SPDX-License-Identifier: Apache-2.0
// What --help prints, within text_width(), and the parts of it that completion and the man page use too.
#pragma once

#include <CLI/App.hpp>
#include <initializer_list>
#include <string>
#include <vector>

namespace tilescope::cli {

/// The group of the options that every command has; printed last.
inline constexpr const char* kOutputGroup = "Output";
/// Groups of commands: those that do the work, and those that are about the program itself.
inline constexpr const char* kCommandsGroup = "Commands";
inline constexpr const char* kAlsoGroup = "Also";

/// Makes --help of `app` and of the commands that are added to it from now on read so.
void set_help_format(CLI::App& app);

struct Example {
  const char* arguments;  // behind the program's name
  const char* what;       // it is good for
};
/// Puts them at the end of the command's help, behind `note`.
void show_examples(CLI::App& command, std::initializer_list<Example> examples, const std::string& note = "");

/// What an option's value is: "N", "fwd|bwd|fwd+bwd"; empty for a flag.
std::string type_of(const CLI::Option& option);
/// The words that an option takes, where its type lists them ("fwd|bwd|fwd+bwd"); none where it takes others.
std::vector<std::string> choices_of(const CLI::Option& option);

/// The groups of options that stand in many commands, and in each in the same words. --help of a command and
/// the man page name those options; `help GROUP` and a section of the page tell them.
std::vector<std::string> common_groups();
/// The options of a common group, of all commands of `app`, each once.
std::vector<const CLI::Option*> common_options(const CLI::App& app, const std::string& group);
/// Whether `option` of `command` is told where its group is.
bool is_common(const CLI::App& command, const CLI::Option& option);
/// "--seqlen N, --causal, ...": those of `command` that are told elsewhere; empty if there are none.
std::string common_names(const CLI::App& command, const std::string& group);
/// What `help problem` prints.
std::string group_help(const CLI::App& app, const std::string& group);

/// Options with two dashes and positionals of a command, in order, without those that are hidden.
std::vector<const CLI::Option*> options_of(const CLI::App& command);
std::vector<const CLI::Option*> positionals_of(const CLI::App& command);

}  // namespace tilescope::cli
