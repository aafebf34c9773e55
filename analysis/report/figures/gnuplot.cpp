// SPDX-License-Identifier: Apache-2.0
#include "analysis/report/figures/gnuplot.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/wait.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "analysis/report/document/embedded_files.hpp"
#include "common/errors.hpp"
#include "common/temporary_folder.hpp"

namespace tilescope {
namespace {

namespace fs = std::filesystem;

std::string gnuplot_string(std::string_view text) {
  std::string literal = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') literal += '\\';
    literal += c;
  }
  return literal + "\"";
}

std::string contents(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// Runs gnuplot without the user's start-up files and in the C locale. @return its standard output.
std::string run_gnuplot(const TemporaryFolder& folder, std::string argument) {
  const std::string output = (folder.path() / "output").string(),
                    errors = (folder.path() / "errors").string();
  std::string program = "gnuplot", no_startup = "-d", locale = "LC_ALL=C";
  std::string path = fmt::format("PATH={}", getenv("PATH") ? getenv("PATH") : "/usr/local/bin:/usr/bin:/bin");
  char* argv[] = {program.data(), no_startup.data(), argument.data(), nullptr};
  char* environment[] = {locale.data(), path.data(), nullptr};
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, 1, output.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  posix_spawn_file_actions_addopen(&actions, 2, errors.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  pid_t child = 0;
  const int failed = posix_spawnp(&child, "gnuplot", &actions, nullptr, argv, environment);
  posix_spawn_file_actions_destroy(&actions);
  int status = 0;
  if (!failed) {
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
  }
  if (failed || (WIFEXITED(status) && WEXITSTATUS(status) == 127)) {
    throw MachineLacks("gnuplot is not installed; figures need it: apt install gnuplot-nox");
  }
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
    throw MachineLacks(fmt::format("gnuplot failed to draw a figure; it said: {}", contents(errors)));
  }
  return contents(output);
}

}  // namespace

void PlotInput::define(std::string_view name, double value) {
  text_ += fmt::format("{} = {}\n", name, value);
}

void PlotInput::define(std::string_view name, std::string_view value) {
  text_ += fmt::format("{} = {}\n", name, gnuplot_string(value));
}

void PlotInput::define(std::string_view name, const std::vector<double>& values) {
  if (values.empty()) return;  // gnuplot has no empty arrays
  text_ += fmt::format("array {}[{}] = [{}]\n", name, values.size(), fmt::join(values, ","));
}

void PlotInput::define(std::string_view name, const std::vector<std::string>& values) {
  if (values.empty()) return;
  std::vector<std::string> all;
  for (const std::string& value : values) all.push_back(gnuplot_string(value));
  text_ += fmt::format("array {}[{}] = [{}]\n", name, all.size(), fmt::join(all, ","));
}

void PlotInput::ticks(char axis, const std::vector<std::pair<std::string, double>>& ticks) {
  std::vector<std::string> all;
  for (const auto& [label, position] : ticks)
    all.push_back(fmt::format("{} {}", gnuplot_string(label), position));
  text_ += fmt::format("set {}tics ({})\n", axis, fmt::join(all, ", "));
}

void PlotInput::data(std::string_view name, const std::vector<std::vector<std::vector<double>>>& groups) {
  text_ += fmt::format("${} << END\n", name);
  for (const auto& rows : groups) {
    for (const auto& row : rows) text_ += fmt::format("{}\n", fmt::join(row, " "));
    text_ += "\n\n";
  }
  text_ += "END\n";
}

std::string draw_svg(std::string_view script, const PlotInput& input) {
  const TemporaryFolder folder;
  const std::string path = (folder.path() / "plot.gp").string();
  std::ofstream(path, std::ios::binary)
      << input.text() << embedded_file("plots/style.gp") << embedded_file(script);
  return run_gnuplot(folder, path);
}

std::string gnuplot_version() {
  const TemporaryFolder folder;
  std::string version = run_gnuplot(folder, "--version");
  while (!version.empty() && version.back() == '\n') version.pop_back();
  return version;
}

}  // namespace tilescope
