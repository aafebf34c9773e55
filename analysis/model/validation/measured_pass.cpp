// SPDX-License-Identifier: Apache-2.0
#include "analysis/model/validation/measured_pass.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>

namespace tilescope {
namespace {

double relative(std::optional<std::int64_t> measured, std::int64_t closed_form) {
  if (!measured || closed_form == 0) return 0;
  return static_cast<double>(*measured - closed_form) / static_cast<double>(closed_form);
}

bool nearly_compulsory(std::int64_t read_bytes, const PassRecord& pass) {
  constexpr double kNearly = 1.05;
  return static_cast<double>(read_bytes) <=
         kNearly * static_cast<double>(pass.closed_form->compulsory_read_bytes);
}

}  // namespace

double MeasuredPass::read_error() const {
  return relative(pass->measured->sm_l2_read_bytes, pass->closed_form->sm_l2_read_bytes);
}

double MeasuredPass::write_error() const {
  return relative(pass->measured->sm_l2_write_bytes, pass->closed_form->sm_l2_write_bytes);
}

std::optional<double> MeasuredPass::excess_per_thread() const {
  if (!pass->launch || !pass->measured->sm_l2_write_bytes) return std::nullopt;
  std::int64_t threads = 1;
  for (const auto& extent : {pass->launch->grid, pass->launch->block}) {
    for (const std::int64_t size : extent) threads *= size;
  }
  const std::int64_t excess = *pass->measured->sm_l2_write_bytes - pass->closed_form->sm_l2_write_bytes;
  return static_cast<double>(excess) / static_cast<double>(threads);
}

bool MeasuredPass::has_dram() const {
  return pass->simulated && pass->measured->dram_read_bytes && pass->closed_form->compulsory_read_bytes > 0;
}

bool MeasuredPass::reads_once() const {
  return nearly_compulsory(pass->closed_form->sm_l2_read_bytes, *pass);
}

bool MeasuredPass::leaves_floor() const {
  return !fits() || !nearly_compulsory(*pass->measured->dram_read_bytes, *pass);
}

bool MeasuredPass::fits() const { return nearly_compulsory(pass->simulated->dram_read_bytes, *pass); }

std::int64_t MeasuredPass::expected_dram_reads() const {
  return pass->simulated->dram_read_bytes + pass->measured->instruction_fetch_bytes.value_or(0);
}

double MeasuredPass::dram_error() const {
  return -1 +
         static_cast<double>(expected_dram_reads()) / static_cast<double>(*pass->measured->dram_read_bytes);
}

std::optional<double> MeasuredPass::launch_spread() const {
  const auto& range = pass->measured->dram_read_range;
  if (!range || !pass->measured->dram_read_bytes) return std::nullopt;
  return static_cast<double>((*range)[1] - (*range)[0]) /
         static_cast<double>(*pass->measured->dram_read_bytes);
}

bool MeasuredPass::dram_within(double tolerance, const std::vector<NoiseFloor>& noise_floor) const {
  const auto time_s = seconds();
  const std::int64_t expected = expected_dram_reads();
  const std::int64_t at_most = expected + (time_s ? noise_floor_bytes(noise_floor, *time_s) : 0);
  const std::int64_t median = *pass->measured->dram_read_bytes;
  const auto off = static_cast<double>(median - std::clamp(median, expected, at_most));
  if (std::abs(off) <= tolerance * static_cast<double>(median)) return true;
  const auto& range = pass->measured->dram_read_range;
  return range && expected <= (*range)[1] && (*range)[0] <= at_most;
}

std::optional<double> MeasuredPass::seconds() const {
  constexpr double kNanosecond = 1e-9;
  if (pass->time) return pass->time->median_s;
  const auto duration = pass->counters.find("gpu__time_duration.sum");
  if (duration == pass->counters.end()) return std::nullopt;
  return kNanosecond * std::visit([](auto value) { return static_cast<double>(value); }, duration->second);
}

std::vector<MeasuredPass> measured_passes(const std::vector<RunSummary>& runs) {
  std::vector<MeasuredPass> passes;
  for (const RunSummary& run : runs) {
    for (const PassRecord* pass : run.passes) {
      if (pass->measured && pass->measured->sm_l2_read_bytes && pass->closed_form) {
        passes.push_back({&run, pass});
      }
    }
  }
  return passes;
}

}  // namespace tilescope
