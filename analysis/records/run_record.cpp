// SPDX-License-Identifier: Apache-2.0
// Where and when a record was made. Its JSON is in run_record_fields.cpp.
#include "analysis/records/run_record.hpp"

#include <omp.h>
#include <sys/resource.h>

#include <algorithm>
#include <ctime>
#include <fstream>

#include "common/nearest_names.hpp"

namespace tilescope {
namespace {

constexpr std::string_view kPagePlacements[] = {"contiguous", "random"};

/// The "model name" that Linux gives, or nothing where it gives none.
std::optional<std::string> cpu_model_name() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    if (!line.starts_with("model name")) continue;
    const std::size_t start = line.find_first_not_of(" \t", line.find(':') + 1);
    if (start != std::string::npos) return line.substr(start);
  }
  return std::nullopt;
}

}  // namespace

std::string_view to_string(PagePlacement pages) { return kPagePlacements[static_cast<std::size_t>(pages)]; }

PagePlacement parse_page_placement(std::string_view text) {
  return value_named<PagePlacement>("pages", text, kPagePlacements);
}

const PassRecord* RunEntry::timed_pass(Direction direction) const {
  const auto found = std::ranges::find_if(
      passes, [direction](const PassRecord& pass) { return pass.direction == direction && pass.time; });
  return found == passes.end() ? nullptr : &*found;
}

MachineInfo this_machine() {
  MachineInfo machine;
  machine.cpu = cpu_model_name();
  machine.threads = omp_get_max_threads();
  return machine;
}

std::string utc_now() {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  ::gmtime_r(&now, &utc);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &utc);
  return text;
}

RecordCost cost_since(std::chrono::steady_clock::time_point start) {
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  constexpr std::int64_t kKibibyte = 1024;  // Linux counts in these
  return {elapsed.count(), usage.ru_maxrss * kKibibyte};
}

RunRecord start_record(std::vector<std::string> argv) {
  return {
      .argv = std::move(argv), .git = built_from(), .when = utc_now(), .machine = this_machine(), .runs = {}};
}

RunRecord without_samples(RunRecord record) {
  for (RunEntry& run : record.runs) {
    for (PassRecord& pass : run.passes) {
      if (!pass.time || pass.time->samples_s.empty()) continue;
      pass.time->samples = static_cast<std::int64_t>(pass.time->samples_s.size());
      pass.time->samples_s.clear();
    }
  }
  return record;
}

}  // namespace tilescope
