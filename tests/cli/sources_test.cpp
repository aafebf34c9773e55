// SPDX-License-Identifier: Apache-2.0
// reports/sources.md: every command in its tables does what the table says that it does, or, where it needs a
// GPU that is not here, says so.
#include <doctest/doctest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "gpu/registry/kernel_registry.hpp"
#include "tests/cli/program.hpp"
#include "tests/paths.hpp"

namespace tilescope::testing {
namespace {

struct Row {
  std::string variable, value;  // of the environment, before the command
  std::vector<std::string> arguments;
  bool needs_gpu = false;
};

/// "| feature | `[NAME=VALUE] ./tilescope COMMAND` | GPU |", or nothing for another line.
std::optional<Row> row_of(const std::string& line) {
  const std::size_t begin = line.find('`'), end = line.rfind('`');
  if (!line.starts_with("| ") || begin == end) return std::nullopt;
  Row row;
  row.needs_gpu = line.find("GPU |", end) != std::string::npos;
  std::istringstream words(line.substr(begin + 1, end - begin - 1));
  std::string word;
  words >> word;
  if (const std::size_t equals = word.find('='); equals != std::string::npos) {
    row.variable = word.substr(0, equals);
    row.value = word.substr(equals + 1);
    words >> word;
  }
  CHECK(word == "./tilescope");
  while (words >> word) row.arguments.push_back(word);
  return row;
}

/// A packed array (1, 64, 3, 2, 16) of fp32.
void write_packed_array(const std::filesystem::path& path) {
  std::string header = "{'descr': '<f4', 'fortran_order': False, 'shape': (1, 64, 3, 2, 16), }";
  header.resize(128 - 10 - 1, ' ');
  header += '\n';
  std::ofstream file(path, std::ios::binary);
  file << "\x93NUMPY" << '\1' << '\0' << static_cast<char>(header.size()) << '\0' << header;
  for (int i = 0; i < 64 * 3 * 2 * 16; ++i) {
    const float value = 0.25f * static_cast<float>(i % 13 - 6);
    file.write(reinterpret_cast<const char*>(&value), sizeof value);
  }
}

}  // namespace

TEST_CASE("each feature of the sources has a command that shows it") {
  std::istringstream text(read_file(TILESCOPE_SOURCE_DIR "/reports/sources.md"));
  const TemporaryFolder folder;
  write_packed_array(folder.path() / "qkv.npy");
  int rows = 0;
  for (std::string line; std::getline(text, line);) {
    const auto row = row_of(line);
    if (!row) continue;
    ++rows;
    CAPTURE(line);
    if (!row->variable.empty()) setenv(row->variable.c_str(), row->value.c_str(), 1);
    const bool without_gpu = row->needs_gpu && device_lack();
    if (row->needs_gpu && !without_gpu) continue;  // minutes, and what they measure stands in reports/
    const TemporaryFolder untouched;
    const ProgramResult result = run_program(row->arguments, (without_gpu ? untouched : folder).path());
    if (!row->variable.empty()) unsetenv(row->variable.c_str());
    CAPTURE(result.err);
    CHECK(result.exit_code == (without_gpu ? 3 : 0));
    if (without_gpu) {
      CHECK(contains(result.err, "cannot run"));
      CHECK(untouched.empty());
    } else {
      CHECK(result.out.size() > 60);
    }
  }
  CHECK(rows > 25);
}

}  // namespace tilescope::testing
