// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <chrono>
#include <thread>

#include "analysis/cli/distributed/distributed.hpp"
#include "common/errors.hpp"

namespace tilescope::cli {
namespace {

constexpr const char* kCounters =
    "nvltx__bytes_data_user.sum,nvlrx__bytes_data_user.sum,nvltx__bytes.sum,nvlrx__bytes.sum";
/// NVML brings its counts up to date now and then.
constexpr std::chrono::milliseconds kUntilNvmlKnows(150);

}  // namespace

LinkMeter::LinkMeter(int gpus) {
  try {
    for (int gpu = 0; gpu < gpus; ++gpu)
      counters_.push_back(std::make_unique<BlockCounters>(kCounters, gpu, L2State::warm));
  } catch (const std::exception& lack) {
    counters_.clear();
    lack_ = lack.what();
  }
  try {
    for (int gpu = 0; gpu < gpus; ++gpu) nvml_.emplace_back(gpu);
  } catch (const MachineLacks& lack) {
    nvml_.clear();
    lack_ += (lack_.empty() ? "" : "; ") + std::string(lack.what());
  }
  if (counters_.empty() && nvml_.empty())
    throw MachineLacks("the bytes of links cannot be counted: " + lack_);
}

void LinkMeter::open() {
  before_.clear();
  if (!nvml_.empty()) std::this_thread::sleep_for(kUntilNvmlKnows);
  for (const LinkThroughput& gpu : nvml_) before_.push_back(gpu.read());
  for (const auto& gpu : counters_) gpu->open();
}

std::vector<LinkReading> LinkMeter::close() {
  std::vector<LinkReading> readings(std::max(counters_.size(), nvml_.size()));
  for (std::size_t gpu = 0; gpu < counters_.size(); ++gpu) {
    const auto seen = counters_[gpu]->close("GPU " + std::to_string(gpu)).counters;
    readings[gpu].counters = {seen.at("nvltx__bytes_data_user.sum"), seen.at("nvlrx__bytes_data_user.sum"),
                              seen.at("nvltx__bytes.sum"), seen.at("nvlrx__bytes.sum")};
  }
  if (!nvml_.empty()) std::this_thread::sleep_for(kUntilNvmlKnows);
  for (std::size_t gpu = 0; gpu < nvml_.size(); ++gpu) readings[gpu].nvml = nvml_[gpu].read() - before_[gpu];
  return readings;
}

}  // namespace tilescope::cli
