// SPDX-License-Identifier: Apache-2.0
// `tilescope help`, `completion` and `man`: about the program itself.
#include <memory>

#include "analysis/cli/command.hpp"
#include "analysis/cli/help/completion.hpp"
#include "analysis/cli/help/help_text.hpp"

namespace tilescope::cli {

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
        return run(word->empty() ? std::vector<std::string>{"tilescope", "--help"}
                                 : std::vector<std::string>{"tilescope", *word, "--help"});
      });
  help.add_option("command", *word,
                  "one of the commands, or the options that many of them have: problem, kernel, output; "
                  "without it all commands")
      ->type_name("COMMAND");
  CLI::App& completion =
      add("completion", "completion of commands, options and names, for a shell", [word, &app, &context] {
        context.print(completion_script(app, *word));
        return kFine;
      });
  completion.add_option("shell", *word, "which")->type_name("bash|zsh|fish");
  add("man", "the manual page: tilescope man | man -l -", [&app, &context] {
    context.print(man_page(app));
    return kFine;
  });
  show_examples(help,
                {{"help simulate", "the options of simulate"}, {"help problem", "how a problem is given"}});
  show_examples(completion,
                {{"completion bash", "its script: source <(tilescope completion bash)"},
                 {"completion zsh", "its script: tilescope completion zsh > ~/.zfunc/_tilescope"}});
}

}  // namespace tilescope::cli
