// SPDX-License-Identifier: Apache-2.0
// `tilescope help`, `completion` and `man`: about the program itself. Shell completion and the man page are
// written from the tree of commands and options that is parsed.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <memory>

#include "analysis/cli/command.hpp"
#include "analysis/cli/help/help_text.hpp"
#include "analysis/cli/list/catalogues.hpp"
#include "analysis/cli/options/kernel_options.hpp"
#include "analysis/cli/options/parse_text.hpp"
#include "analysis/model/machine/machine.hpp"
#include "analysis/studies/model_shapes.hpp"
#include "common/errors.hpp"
#include "common/nearest_names.hpp"
#include "cpu_ref/schedule/problem.hpp"

namespace tilescope::cli {
namespace {

using Words = std::vector<std::string>;

/// What can be typed behind an option: the words of its type, or the names that the type stands for.
Words values_of(const CLI::Option& option) {
  const std::string type = type_of(option);
  Words values = choices_of(option);
  if (type.starts_with("KERNEL")) {
    for (const Kernel* kernel : all_kernels()) values.emplace_back(kernel->name);
  } else if (type == "PRESET") {
    for (const Preset& preset : presets()) values.emplace_back(preset.name);
  } else if (type == "MODEL") {
    for (const ModelShape& model : model_shapes()) values.emplace_back(model.name);
  } else if (type.starts_with("MACHINE")) {
    values = machine_names();
  }
  return values;
}

bool takes_value(const CLI::Option& option) { return option.get_type_size() != 0; }

Words long_names(const CLI::Option& option) {
  Words names;
  for (const std::string& name : option.get_lnames()) names.push_back("--" + name);
  return names;
}

std::vector<const CLI::App*> commands_of(const CLI::App& app) {
  return app.get_subcommands([](const CLI::App* command) { return !command->get_group().empty(); });
}

/// Every word that may open with two dashes behind a command.
Words option_words(const CLI::App& command) {
  Words words;
  for (const CLI::Option* option : options_of(command)) {
    for (std::string& name : long_names(*option)) words.push_back(std::move(name));
  }
  return words;
}

/// The words that a command's own arguments may be.
Words argument_words(const CLI::App& app, const CLI::App& command) {
  const auto positionals = positionals_of(command);
  if (positionals.empty()) return {};
  if (type_of(*positionals.front()) != "COMMAND") return values_of(*positionals.front());
  Words names;
  for (const CLI::App* other : commands_of(app)) names.push_back(other->get_name());
  return names;
}

/// The cases of a shell's `case "$command $previous" in`, `action` taking the words.
std::string value_cases(const CLI::App& app, const char* action) {
  std::string text;
  for (const CLI::App* command : commands_of(app)) {
    for (const CLI::Option* option : options_of(*command)) {
      const Words values = values_of(*option);
      for (const std::string& name : long_names(*option)) {
        if (!takes_value(*option)) continue;
        text += fmt::format("    '{} {}') ", command->get_name(), name);
        text += values.empty() ? "files=yes ;;\n" : fmt::format(fmt::runtime(action), fmt::join(values, " "));
      }
    }
  }
  return text;
}

std::string bash_script(const CLI::App& app) {
  Words names;
  std::string options;
  for (const CLI::App* command : commands_of(app)) {
    names.push_back(command->get_name());
    Words words = argument_words(app, *command);
    for (std::string& word : option_words(*command)) words.push_back(std::move(word));
    options += fmt::format("    {}) choices='{}' ;;\n", command->get_name(), fmt::join(words, " "));
  }
  return fmt::format(
      R"(# Completion for bash: source it, or put it into ~/.local/share/bash-completion/completions/tilescope
_tilescope() {{
  local line=${{COMP_LINE:0:COMP_POINT}} words word previous command choices='' files=''
  read -ra words <<<"$line"
  [[ $line == *' ' ]] && words+=('')
  word=${{words[-1]}} previous=${{words[-2]}} command=${{words[1]}}
  ((${{#words[@]}} == 2)) && choices='{0}'
  [[ -n $choices ]] || case "$command $previous" in
{1}  esac
  [[ -n $choices$files ]] || case $command in
{2}  esac
  COMPREPLY=()
  # Of names with commas between them the last one is completed.
  local listed=${{word%"${{word##*,}}"}}
  [[ -z $files ]] && mapfile -t COMPREPLY < <(compgen -P "$listed" -W "$choices" -- "${{word##*,}}")
  # bash takes what stands before a colon for a word of its own.
  local before=${{word%"${{word##*:}}"}}
  COMPREPLY=("${{COMPREPLY[@]#"$before"}}")
}}
complete -o default -F _tilescope tilescope ./tilescope
)",
      fmt::join(names, " "), value_cases(app, "choices='{}' ;;\n"), options);
}

/// In single quotes, for all three shells.
std::string quoted(std::string text) {
  for (std::size_t at = 0; (at = text.find('\'', at)) != std::string::npos; at += 4)
    text.replace(at, 1, "'\\''");
  return "'" + text + "'";
}

/// "NAME:what it is" for zsh's _describe.
std::string described(std::string name, const std::string& text) {
  for (std::size_t at = 0; (at = name.find(':', at)) != std::string::npos; at += 2)
    name.replace(at, 1, "\\:");
  return quoted(name + ":" + text);
}

std::string zsh_script(const CLI::App& app) {
  Words names;
  std::string options;
  for (const CLI::App* command : commands_of(app)) {
    names.push_back(described(command->get_name(), command->get_description()));
    Words words;
    for (const std::string& word : argument_words(app, *command)) words.push_back(described(word, ""));
    for (const CLI::Option* option : options_of(*command)) {
      for (const std::string& name : long_names(*option)) {
        words.push_back(described(name, option->get_description()));
      }
    }
    options += fmt::format("    {}) choices=({}) ;;\n", command->get_name(), fmt::join(words, " "));
  }
  return fmt::format(R"(#compdef tilescope
# Completion for zsh: put it as _tilescope into a folder of $fpath.
_tilescope() {{
  local command=${{words[2]}} previous=${{words[CURRENT-1]}} files=''
  local -a values choices
  ((CURRENT == 2)) && choices=({0})
  ((CURRENT == 2)) || case "$command $previous" in
{1}  esac
  if ((${{#values}})); then compset -P '*,'; compadd -- $values; return; fi
  if [[ -n $files ]]; then _files; return; fi
  ((${{#choices}})) || case $command in
{2}  esac
  _describe tilescope choices || _files
}}
compdef _tilescope tilescope
)",
                     fmt::join(names, " "), value_cases(app, "values=({}) ;;\n"), options);
}

std::string fish_script(const CLI::App& app) {
  std::string text = "# Completion for fish: put it into ~/.config/fish/completions/tilescope.fish\n";
  for (const CLI::App* command : commands_of(app)) {
    const std::string name = command->get_name();
    text += fmt::format("complete -c tilescope -n __fish_use_subcommand -f -a {} -d {}\n", name,
                        quoted(command->get_description()));
    const std::string seen = fmt::format("complete -c tilescope -n '__fish_seen_subcommand_from {}'", name);
    const Words arguments = argument_words(app, *command);
    if (!arguments.empty()) text += fmt::format("{} -f -a '{}'\n", seen, fmt::join(arguments, " "));
    for (const CLI::Option* option : options_of(*command)) {
      const Words values = values_of(*option);
      const std::string takes = !takes_value(*option) ? ""
                                : values.empty()      ? " -r"
                                                      : fmt::format(" -x -a '{}'", fmt::join(values, " "));
      for (const std::string& word : option->get_lnames()) {
        text += fmt::format("{} -l {}{} -d {}\n", seen, word, takes, quoted(option->get_description()));
      }
    }
  }
  return text;
}

/// Text that roff takes as it is.
std::string roff(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '\\') {
      out += "\\e";
    } else if (c == '-') {
      out += "\\-";
    } else if ((c == '.' || c == '\'') && (out.empty() || out.back() == '\n')) {
      out += fmt::format("\\&{}", c);
    } else {
      out += c;
    }
  }
  return out;
}

std::string man_entry(const CLI::Option& option) {
  const std::string type = takes_value(option) ? " " + type_of(option) : "";
  const std::string name = option.get_positional()
                               ? type_of(option)
                               : fmt::format("{}{}", fmt::join(long_names(option), ", "), type);
  return fmt::format(".TP\n.B {}\n{}\n", roff(name), roff(option.get_description()));
}

/// A script for bash, zsh or fish. @throws BadInput on another shell
std::string completion_script(const CLI::App& app, const std::string& shell) {
  if (shell == "bash") return bash_script(app);
  if (shell == "zsh") return zsh_script(app);
  if (shell == "fish") return fish_script(app);
  throw unknown_name("shell", shell, {"bash", "zsh", "fish"});
}

/// tilescope(1), for man.
std::string man_page(const CLI::App& app) {
  std::string text = fmt::format(
      ".TH TILESCOPE 1 \"\" \"{0}\" \"User Commands\"\n.SH NAME\ntilescope \\- bytes of tiled attention "
      "kernels: "
      "what they move, what they must move, and why the two differ\n.SH SYNOPSIS\n.B tilescope\nCOMMAND "
      "[OPTIONS]\n.SH DESCRIPTION\n{1}\n.SH COMMANDS\n",
      roff(app.version()), roff(app.get_description()));
  for (const CLI::App* command : commands_of(app)) {
    text += fmt::format(".SS {}\n{}\n", roff(command->get_name()), roff(command->get_description()));
    for (const CLI::Option* option : positionals_of(*command)) text += man_entry(*option);
    for (const CLI::Option* option : options_of(*command)) {
      if (!is_common(*command, *option)) text += man_entry(*option);
    }
    for (const std::string& group : common_groups()) {
      const std::string names = common_names(*command, group);
      if (!names.empty()) text += fmt::format(".TP\n.I {}\n{}\n", roff(group), roff(names));
    }
    if (!command->get_footer().empty())
      text += fmt::format(".PP\n.nf\n{}\n.fi\n", roff(command->get_footer()));
  }
  text += ".SH OPTIONS OF MANY COMMANDS\n";
  for (const std::string& group : common_groups()) {
    text += fmt::format(".SS {}\n", roff(group));
    for (const CLI::Option* option : common_options(app, group)) text += man_entry(*option);
  }
  return text +
         ".SH EXIT STATUS\n0 fine; 1 a check failed; 2 bad input, and nothing written; 3 the machine lacks "
         "what "
         "the command needs.\n.SH ENVIRONMENT\n.TP\n.B NO_COLOR\nno colour, whatever the terminal "
         "can\n.TP\n.B "
         "TILESCOPE_TILES\nwhere tuned tiles are kept\n.TP\n.B TILESCOPE_DISABLE_AUTOTUNE\n1: kernels keep "
         "their own "
         "first choice of tiles\n";
}

}  // namespace

void add_help_commands(CLI::App& app, CommandContext& context, CommandRunner run) {
  const auto word = std::make_shared<std::string>();
  const auto add = [&](const char* name, const char* summary, std::function<int()> action) -> CLI::App& {
    CLI::App& command = *app.add_subcommand(name, summary)->group(kAlsoGroup);
    command.final_callback([&context, action = std::move(action)] { context.action = action; });
    return command;
  };
  CLI::App& help =
      add("help", "what a command does, with its options and examples", [word, run, &app, &context] {
        for (const std::string& group : common_groups()) {
          if (*word != lower_case(group)) continue;
          context.print(group_help(app, group));
          return static_cast<int>(kFine);
        }
        for (const Catalogue& catalogue : catalogues()) {
          if (*word == catalogue.name) return run({"tilescope", "list", *word});
        }
        return run(word->empty() ? std::vector<std::string>{"tilescope", "--help"}
                                 : std::vector<std::string>{"tilescope", *word, "--help"});
      });
  add_value(help, "command", *word, "COMMAND",
            "one of the commands, or the options that many of them have: problem, kernel, output; "
            "without it all commands");
  CLI::App& completion =
      add("completion", "completion of commands, options and names, for a shell", [word, &app, &context] {
        context.print_as_it_is(completion_script(app, *word));
        return kFine;
      });
  add_value(completion, "shell", *word, "bash|zsh|fish", "which");
  add("man", "the manual page: tilescope man | man -l -", [&app, &context] {
    context.print_as_it_is(man_page(app));
    return kFine;
  });
  show_examples(help,
                {{"help simulate", "the options of simulate"}, {"help problem", "how a problem is given"}});
  show_examples(completion,
                {{"completion bash", "its script: source <(tilescope completion bash)"},
                 {"completion zsh", "its script: tilescope completion zsh > ~/.zfunc/_tilescope"}});
}

}  // namespace tilescope::cli
