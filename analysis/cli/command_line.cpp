// SPDX-License-Identifier: Apache-2.0
#include "analysis/cli/command_line.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <exception>
#include <new>
#include <sstream>
#include <string_view>

#include "analysis/cli/command.hpp"
#include "analysis/cli/help/help_text.hpp"
#include "analysis/cli/interruption.hpp"
#include "analysis/cli/text_table.hpp"
#include "analysis/records/files/text_file.hpp"
#include "common/log.hpp"
#include "common/nearest_names.hpp"
#include "common/pattern.hpp"
#include "distributed/execution/rank_failure.hpp"

namespace tilescope::cli {
namespace {

constexpr const char* kPurpose =
    "How many bytes does a tiled attention kernel move, how many must it move, and why do the two differ?";

/// One line on standard error, whatever characters the user's input holds; as many as a terminal needs.
int complain(std::string sentence, ExitCode code) {
  log_text(LogLevel::error, [&] { return sentence; });
  for (char& c : sentence) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = ' ';
  }
  sentence = "tilescope: " + sentence;
  if (const auto columns = known_columns(STDERR_FILENO)) sentence = fitted(sentence, *columns);
  std::fprintf(stderr, "%s\n", sentence.c_str());
  return code;
}

std::vector<std::string> command_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands({})) names.push_back(command->get_name());
  return names;
}

/// Looks at the first word before CLI11 does, which would only say that something was not expected.
void require_known_command(const CLI::App& app, const std::vector<std::string>& argv) {
  const std::string& word = argv[1];
  std::vector<std::string> names = command_names(app);
  names.insert(names.end(), {"--help", "-h", "--version"});
  if (std::ranges::find(names, word) != names.end()) return;
  throw unknown_name("command", word, names);
}

/// The first argument that the chosen command does not take.
BadInput unexpected_argument(const CLI::App& app) {
  const CLI::App* command = app.get_subcommands().empty() ? &app : app.get_subcommands().front();
  const std::vector<std::string> unexpected = app.remaining(true);
  const std::string word = unexpected.empty() ? "" : unexpected.front();
  std::vector<std::string> options;
  for (const CLI::Option* option : command->get_options()) {
    for (const std::string& name : option->get_lnames()) options.push_back("--" + name);
  }
  const std::string where = command == &app ? "tilescope" : command->get_name();
  if (word.starts_with("-")) {
    const std::string name = word.substr(0, word.find('='));
    if (!nearest_names(name, options).empty()) return unknown_name(where + " option", name, options);
    return BadInput(fmt::format("{0} has no option {1}: tilescope {2}--help lists those that it has", where,
                                name, command == &app ? "" : where + " "));
  }
  return BadInput(where + " argument", "'" + word + "'", "is one too many; see --help");
}

/// CLI11's "--seqlen: 1 required N missing" and "--seqlen: At Most 1 required but received 2" as sentences.
std::string without_jargon(const std::string& reason) {
  const std::string missing = Pattern("^(--[a-z0-9-]+): 1 required (.*) missing$")
                                  .replace(reason, "$1 = '': $2 is required after it");
  return Pattern("^(--[a-z0-9-]+): At Most 1 required but received ([0-9]+)$")
      .replace(missing, "$1 is given $2 times: it may be given once");
}

/// Ctrl-C: a line, and then what the signal does by itself, so that a shell sees it. Records and results are
/// written whole or not at all, each when it is complete.
extern "C" void end_with_a_line(int number) {
  constexpr std::string_view kLine = "\ntilescope: interrupted; no file is left half written\n";
  [[maybe_unused]] const auto written = write(STDERR_FILENO, kLine.data(), kLine.size());
  std::signal(number, SIG_DFL);
  std::raise(number);
}

/// What somebody sees who types nothing but the name.
constexpr const char* kGreeting = R"(TileScope: {}

  tilescope demo                          a first look: verify, simulate, and a page to open
  tilescope simulate --preset llama3-8b   bytes of an attention layer on a GPU that need not be here
  tilescope verify --quick                every kernel against exact attention
  tilescope list                          kernels, machines, problems, ...: the names that options take
  tilescope --help                        all commands; tilescope COMMAND --help has options and examples
)";

int run(const std::vector<std::string>& argv) {
  CLI::App app(kPurpose, "tilescope");
  app.set_version_flag("--version", "tilescope " TILESCOPE_VERSION);
  app.set_help_flag("-h,--help", "print this help and exit");
  app.require_subcommand(1);
  app.footer(
      "A command's own options: tilescope COMMAND --help. The launcher ./tilescope also knows `test`.");
  set_help_format(app);
  CommandContext context;
  context.argv = argv;
  if (argv.size() < 2) {
    context.print(fmt::format(kGreeting, kPurpose));
    return kFine;
  }
  add_commands(app, context, run);
  try {
    require_known_command(app, argv);
    app.parse(std::vector<std::string>(argv.rbegin(), argv.rend() - 1));
    // A command inside another one (demo) goes on with the log that is open.
    if (!logs(LogLevel::error) || context.log.level || context.log.file) open_log(context.log);
    if (context.wants_json() && context.json != "-") require_writable_file("--json", context.json);
    log_text(LogLevel::info, [&] { return fmt::format("begins: {}", fmt::join(argv, " ")); });
    const auto began = std::chrono::steady_clock::now();
    const int code = context.action();
    if (const auto lack = log_failure()) throw MachineLacks(*lack);
    log_text(LogLevel::info, [&] {
      const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - began;
      return fmt::format("ends with exit code {} after {:.3f} s: {}", code, elapsed.count(), argv[1]);
    });
    return code;
  } catch (const CLI::Success& request) {  // --help, --version
    std::ostringstream text;
    app.exit(request, text, text);
    CommandContext().print(text.str());
    return kFine;
  } catch (const CLI::ExtrasError&) {
    return complain(unexpected_argument(app).what(), kBadInput);
  } catch (const CLI::ConversionError& error) {  // other options are taken as text
    return complain(std::string(error.what()) + "; a flag stands alone, or with =true or =false", kBadInput);
  } catch (const CLI::ParseError& error) {
    return complain(without_jargon(error.what()), kBadInput);
  }
}

}  // namespace

int run_command_line(const std::vector<std::string>& argv) {
  std::signal(SIGPIPE, SIG_IGN);
  if (std::signal(SIGINT, end_with_a_line) == SIG_IGN)
    std::signal(SIGINT, SIG_IGN);  // as a shell's background has it
  try {
    return run(argv);
  } catch (const BadInput& error) {
    // A flag has no value to be named: "--decode must stand with --model".
    const bool flag = error.value() == "given";
    return complain(flag ? error.field() + " " + error.allowed() : error.what(), kBadInput);
  } catch (const MachineLacks& error) {
    return complain(error.what(), kMachineLacks);
  } catch (const Interrupted& end) {
    complain(end.what(), kCheckFailed);
    std::signal(end.signal(), SIG_DFL);
    return std::raise(end.signal());
  } catch (const RankFailure& error) {
    return complain(error.what(), kCheckFailed);
  } catch (const std::bad_alloc&) {
    return complain("out of memory: choose a smaller problem or a machine with more memory", kMachineLacks);
  } catch (const std::exception& error) {
    return complain(std::string("this should not happen, please report it: ") + error.what(), kInternalError);
  }
}

}  // namespace tilescope::cli
