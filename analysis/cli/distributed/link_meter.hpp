// SPDX-License-Identifier: Apache-2.0
// What the links of several GPUs carry meanwhile: by their hardware counters, and by NVML's, where either can
// be read.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "profiler/counters/block_counters.hpp"
#include "profiler/counters/link_throughput.hpp"

namespace tilescope::cli {

struct LinkReading {
  std::optional<LinkCount> counters, nvml;
};

class LinkMeter {
 public:
  /// @throws MachineLacks where neither can be read, with the reasons of both
  explicit LinkMeter(int gpus);
  void open();
  /// By GPU, since open(). Waits for the devices.
  std::vector<LinkReading> close();
  /// Why one of the two cannot be read; "" if both can.
  const std::string& lack() const { return lack_; }

 private:
  std::vector<std::unique_ptr<BlockCounters>> counters_;  // by GPU, or none
  std::vector<LinkThroughput> nvml_;
  std::vector<LinkCount> before_;
  std::string lack_;
};

}  // namespace tilescope::cli
