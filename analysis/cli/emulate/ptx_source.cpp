// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <utility>

#include "analysis/cli/emulate/emulate.hpp"
#include "analysis/records/files/text_file.hpp"
#include "common/child_process.hpp"
#include "common/pattern.hpp"
#include "common/temporary_folder.hpp"

namespace tilescope::cli {
namespace {

namespace fs = std::filesystem;

constexpr const char* kUsualPlace = "/usr/local/cuda/bin/";

bool on_path(const std::string& program) {
  const char* const path = std::getenv("PATH");
  std::string rest = path ? path : "";
  for (std::size_t begin = 0; begin <= rest.size();) {
    const std::size_t end = std::min(rest.find(':', begin), rest.size());
    if (access((rest.substr(begin, end - begin) + "/" + program).c_str(), X_OK) == 0) return true;
    begin = end + 1;
  }
  return false;
}

std::optional<std::string> of_toolkit(const std::string& program) {
  if (on_path(program)) return program;
  if (const std::string usual = kUsualPlace + program; access(usual.c_str(), X_OK) == 0) return usual;
  return std::nullopt;
}

std::string compiler() {
  if (const char* const chosen = std::getenv("CUDACXX")) return chosen;
  if (const auto found = of_toolkit("nvcc")) return *found;
  throw MachineLacks(
      "no nvcc on the PATH, nor in CUDACXX, to compile CUDA sources: compile where it is, with nvcc -ptx "
      "-lineinfo, and "
      "give the .ptx");
}

std::string compile(const std::string& path, const std::string& arch) {
  const TemporaryFolder folder;
  const std::string ptx = (folder.path() / "kernel.ptx").string();
  // The compiler's words go to standard error, where ours go.
  ProcessStart start{.command = {compiler(), "-ptx", "-lineinfo", "-std=c++17", "-arch=" + arch, "-I",
                                 fs::path(path).parent_path().string() + "/.", path, "-o", ptx},
                     .variables = {},
                     .input = std::nullopt,
                     .output = STDERR_FILENO};
  int status = 0;
  try {
    const pid_t child = start_process(start);
    if (waitpid(child, &status, 0) != child) status = -1;
  } catch (const std::system_error& error) {
    throw MachineLacks(fmt::format("{} cannot be started ({}): give a .ptx", start.command[0], error.what()));
  }
  if (status != 0) throw BadInput("KERNEL", path, "must compile; what nvcc said stands above");
  return read_text_file(ptx);
}

/// Runs a program of the toolkit by a shell's line, in which $1 is the program. @returns whether it went well
bool run_line(const std::string& line, std::vector<std::string> words) {
  words.insert(words.begin(), {"/bin/sh", "-c", line, "sh"});
  // Its words go to standard error.
  const ProcessStart start{
      .command = std::move(words), .variables = {}, .input = std::nullopt, .output = STDERR_FILENO};
  int status = 0;
  const pid_t child = start_process(start);
  return waitpid(child, &status, 0) == child && status == 0;
}

/// What cuobjdump or nvdisasm print of a cubin; "" where neither is there.
std::string disassemble(const std::string& cubin, const std::string& into) {
  for (const auto& [program, option] : {std::pair("cuobjdump", "-sass"), {"nvdisasm", "-c"}}) {
    const auto found = of_toolkit(program);
    if (found && run_line(R"("$1" "$2" "$3" >"$4" 2>/dev/null)", {*found, option, cubin, into}))
      return read_text_file(into);
  }
  return "";
}

}  // namespace

std::string ptx_of(const std::string& path, const std::string& arch) {
  std::error_code error;
  if (!fs::is_regular_file(path, error))
    throw BadInput("KERNEL", path, "must be a .ptx or .cu file that exists");
  const std::string extension = fs::path(path).extension().string();
  if (extension == ".cu") return compile(path, arch);
  return read_text_file(path);
}

std::optional<Assembled> assemble(const std::string& ptx, const std::string& target,
                                  const std::string& kernel) {
  const auto ptxas = of_toolkit("ptxas");
  if (!ptxas) return std::nullopt;
  const TemporaryFolder folder;
  const auto file = [&](const char* name) { return (folder.path() / name).string(); };
  std::ofstream(file("kernel.ptx")) << ptx;
  if (!run_line(R"("$1" -v "-arch=$2" "$3/kernel.ptx" -o "$3/cubin" 2>"$3/said")",
                {*ptxas, target, folder.path().string()}))
    return std::nullopt;  // it refuses what devices refuse: no reason not to run it here
  const std::string said = read_text_file(file("said"));
  const std::size_t begin = said.find("'" + kernel + "' for");
  const std::string own = begin == std::string::npos ? "" : said.substr(begin);
  const auto spills = Pattern(R"((\d+) bytes spill stores, (\d+) bytes spill loads)").find(own);
  const auto registers = Pattern(R"(Used (\d+) registers)").find(own);
  if (spills.empty() || registers.empty()) return std::nullopt;
  return Assembled{std::stoi(registers[1]), std::stoi(spills[1]), std::stoi(spills[2]),
                   disassemble(file("cubin"), file("sass"))};
}

}  // namespace tilescope::cli
