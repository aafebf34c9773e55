// SPDX-License-Identifier: Apache-2.0
#include "analysis/report/sections/speed/device_runs.hpp"

#include <algorithm>

#include "analysis/report/document/add_new.hpp"
#include "analysis/report/roofline_subject.hpp"

namespace tilescope {
namespace {

/// Timed by `bench`, that is: `profile` counts bytes too, with each launch by itself.
bool timed_on_device(const RunSummary& run) {
  return run.median_seconds && !run.run->kernel.starts_with("cpu:") && !run.closed_form;
}

}  // namespace

bool is_ours(const RunSummary& run) { return run.run->kernel.starts_with("gpu:"); }

double paper_rate(const RunSummary& run) {
  return static_cast<double>(paper_flops(run.problem(), run.direction)) / *run.median_seconds;
}

std::vector<std::string> DeviceRuns::labels(bool ours) const {
  std::vector<std::string> found;
  for (const RunSummary* run : runs) {
    if (is_ours(*run) == ours) add_new(found, run->label);
  }
  return found;
}

std::vector<std::string> DeviceRuns::labels() const {
  std::vector<std::string> all = labels(true);
  for (const std::string& peer : labels(false)) all.push_back(peer);
  return all;
}

std::vector<AttentionProblem> DeviceRuns::problems() const {
  std::vector<AttentionProblem> found;
  for (const RunSummary* run : runs) add_new(found, run->problem());
  return found;
}

const RunSummary* DeviceRuns::find(const std::string& label, const AttentionProblem& problem) const {
  const auto same = [&](const RunSummary* run) { return run->label == label && run->problem() == problem; };
  const auto found = std::find_if(runs.begin(), runs.end(), same);
  return found == runs.end() ? nullptr : *found;
}

std::vector<DeviceRuns> device_runs(const std::vector<RunSummary>& runs) {
  std::vector<DeviceRuns> groups;
  std::vector<const RunRecord*> records;
  for (const RunSummary& run : runs) {
    if (timed_on_device(run)) add_new(records, run.record);
  }
  for (const RunRecord* record : records) {
    for (const Direction direction : {Direction::forward, Direction::backward}) {
      DeviceRuns group{record, direction, {}};
      for (const RunSummary& run : runs) {
        if (timed_on_device(run) && run.record == record && run.direction == direction)
          group.runs.push_back(&run);
      }
      if (!group.runs.empty()) groups.push_back(std::move(group));
    }
  }
  return groups;
}

std::vector<DeviceRuns> runs_beside_peers(const std::vector<RunSummary>& runs) {
  std::vector<DeviceRuns> found;
  const std::vector<DeviceRuns> all = device_runs(runs);
  for (const Direction direction : {Direction::forward, Direction::backward}) {
    const auto group = std::find_if(all.begin(), all.end(), [&](const DeviceRuns& each) {
      return each.direction == direction && !each.labels(true).empty() && !each.labels(false).empty();
    });
    if (group != all.end()) found.push_back(*group);
  }
  return found;
}

}  // namespace tilescope
