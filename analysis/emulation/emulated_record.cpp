// SPDX-License-Identifier: Apache-2.0
#include "analysis/emulation/emulated_record.hpp"

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <map>

#include "analysis/records/run_record.hpp"
#include "common/demangle.hpp"

namespace tilescope {
namespace {

namespace emulator = gpu::emulator;
namespace fs = std::filesystem;

std::array<std::int64_t, 3> extents(const emulator::Extent& extent) { return {extent.x, extent.y, extent.z}; }

/// Lines of source files, each file read once; "" where a file is not there.
class Sources {
 public:
  explicit Sources(const std::string& kernel_file) : folder_(fs::path(kernel_file).parent_path()) {}
  std::string line(const std::string& path, int number) {
    if (path.empty() || number < 1) return "";
    const auto [file, is_new] = files_.try_emplace(path);
    if (is_new) {
      std::error_code error;
      const bool there = fs::is_regular_file(path, error);
      std::ifstream in(there ? fs::path(path) : folder_ / fs::path(path).filename());
      for (std::string text; file->second.size() < kMostLines && std::getline(in, text);)
        file->second.push_back(text.substr(0, kMostColumns));
    }
    const auto& lines = file->second;
    return static_cast<std::size_t>(number) <= lines.size() ? lines[static_cast<std::size_t>(number) - 1]
                                                            : "";
  }

 private:
  static constexpr std::size_t kMostLines = 100000, kMostColumns = 200;
  fs::path folder_;
  std::map<std::string, std::vector<std::string>> files_;
};

std::string trimmed(const std::string& text) {
  const std::size_t begin = text.find_first_not_of(" \t");
  return begin == std::string::npos ? "" : text.substr(begin, text.find_last_not_of(" \t\r") + 1 - begin);
}

EmulatedLine line_of(const emulator::LineCounts& counts, Sources& sources) {
  const auto number = [](std::uint64_t value) { return static_cast<std::int64_t>(value); };
  const std::string source = trimmed(sources.line(counts.place.file, counts.place.line));
  return {.file = counts.place.file,
          .line = counts.place.line > 0 ? counts.place.line : counts.place.ptx_line,
          .text = source.empty() ? counts.text.substr(0, 120) : source,
          .instructions = number(counts.instructions),
          .requests = number(counts.requests),
          .asked_bytes = number(counts.asked_bytes),
          .sectors = number(counts.sectors),
          .least_sectors = number(counts.least_sectors),
          .read_bytes = number(counts.read_bytes),
          .write_bytes = number(counts.write_bytes),
          .least_write_bytes = number(counts.least_write_bytes),
          .l1_hit_bytes = number(counts.l1_hit_bytes),
          .beyond_tensor_bytes = number(counts.beyond_tensor_bytes),
          .shared_requests = number(counts.shared_requests),
          .wavefronts = number(counts.wavefronts),
          .least_wavefronts = number(counts.least_wavefronts)};
}

EmulatedFinding finding_of(const emulator::Finding& finding) {
  EmulatedFinding told{to_string(finding.kind), is_error(finding.kind), {}, finding.text};
  for (const emulator::SourceLine& line : finding.lines) told.places.push_back(line.text());
  return told;
}

EmulatedKernel emulated_part(const emulator::KernelResult& result, Sources sources) {
  const emulator::KernelCounts& counts = result.counts;
  EmulatedKernel kernel{.completed = result.completed,
                        .right = {},
                        .must_read_bytes = static_cast<std::int64_t>(counts.must_read_bytes),
                        .must_write_bytes = static_cast<std::int64_t>(counts.must_write_bytes),
                        .least_read_bytes = static_cast<std::int64_t>(counts.least_read_bytes),
                        .least_write_bytes = static_cast<std::int64_t>(counts.least_write_bytes),
                        .constant_bytes = static_cast<std::int64_t>(counts.constant_bytes),
                        .seconds = result.seconds,
                        .notes = counts.notes,
                        .lines = {},
                        .findings = {}};
  for (const emulator::LineCounts& line : counts.lines) kernel.lines.push_back(line_of(line, sources));
  for (const emulator::Finding& finding : result.findings) kernel.findings.push_back(finding_of(finding));
  return kernel;
}

KernelMeasurement measurement_of(const emulator::ToldLaunch& told, const std::string& kernel_file) {
  const auto& [facts, result] = told;
  KernelMeasurement measurement;
  measurement.name = demangle(result.kernel);
  measurement.launch.grid = extents(facts.grid);
  measurement.launch.block = extents(facts.block);
  if (facts.cluster.count() > 1) measurement.launch.cluster = extents(facts.cluster);
  measurement.launch.registers = facts.registers;
  measurement.launch.shared_bytes = facts.shared_bytes;
  measurement.launch.local_bytes = facts.local_bytes;
  measurement.measured = result.counts.metrics;
  measurement.emulated = emulated_part(result, Sources(kernel_file));
  return measurement;
}

}  // namespace

KernelRecord emulated_record(const std::vector<std::string>& argv,
                             const std::vector<emulator::ToldLaunch>& launches,
                             const std::string& kernel_file) {
  KernelRecord record;
  record.argv = argv;
  record.when = utc_now();
  record.metrics = "traffic";
  record.complete = true;
  record.collections = {{.device = "an emulated device",
                         .chip = launches.at(0).facts.target,
                         .driver = "none",
                         .replay = "emulated",
                         .passes = 1,
                         .l2 = "none"}};
  for (const emulator::ToldLaunch& told : launches) {
    record.complete &= told.result.completed;
    for (const std::string& note : told.result.counts.notes) {
      if (std::ranges::find(record.messages, note) == record.messages.end()) record.messages.push_back(note);
    }
    record.kernels.push_back(measurement_of(told, kernel_file));
  }
  return record;
}

}  // namespace tilescope
