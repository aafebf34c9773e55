// SPDX-License-Identifier: Apache-2.0
#include "tests/cli/run_program.hpp"
#include "tests/paths.hpp"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <stdexcept>

namespace tilescope::testing {
std::string read_file(const std::filesystem::path& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

namespace {

/// Where the program lies: as it was built, or where $TILESCOPE_PROGRAM says, on a machine that did not build
/// it.
const char* program() {
  const char* elsewhere = std::getenv("TILESCOPE_PROGRAM");
  return elsewhere ? elsewhere : TILESCOPE_PROGRAM;
}

/// Starts the program with the given standard output; standard error goes to `err_path`.
pid_t start(const std::vector<std::string>& arguments, const std::filesystem::path& folder, int out,
            const std::filesystem::path& err_path, unsigned seconds = 0) {
  std::vector<std::string> words = {program()};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  const pid_t child = fork();
  if (child < 0) throw std::runtime_error("fork failed");
  if (child > 0) return child;
  const int err = open(err_path.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  const int null = open("/dev/null", O_RDONLY);
  if (chdir(folder.c_str()) == 0 && dup2(null, 0) >= 0 && dup2(out, 1) >= 0 && dup2(err, 2) >= 0) {
    std::signal(SIGPIPE, SIG_DFL);  // as a shell leaves it
    alarm(seconds);
    execv(words.front().c_str(), argv.data());
  }
  _exit(127);
}

int wait_for(pid_t child) {
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace

ProgramResult run_program(const std::vector<std::string>& arguments, const std::filesystem::path& folder,
                          const std::string& stdout_path, unsigned seconds) {
  const TemporaryFolder files;
  const std::string out_path = stdout_path.empty() ? (files.path() / "out").string() : stdout_path;
  const int out = open(out_path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
  ProgramResult result;
  result.exit_code = wait_for(start(arguments, folder, out, files.path() / "err", seconds));
  close(out);
  if (stdout_path.empty()) result.out = read_file(out_path);
  result.err = read_file(files.path() / "err");
  return result;
}

ProgramResult run_program_without_reader(const std::vector<std::string>& arguments) {
  const TemporaryFolder files;
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) throw std::runtime_error("pipe failed");
  close(ends[0]);
  const pid_t child = start(arguments, std::filesystem::current_path(), ends[1], files.path() / "err");
  close(ends[1]);
  ProgramResult result;
  result.exit_code = wait_for(child);
  result.err = read_file(files.path() / "err");
  return result;
}

}  // namespace tilescope::testing
