// SPDX-License-Identifier: Apache-2.0
// Bytes on the links to other GPUs that the driver's management library (NVML) has counted, since the GPU
// started: in whole KiB, whoever moved them, and without counters of CUPTI's.
#pragma once

#include <memory>

namespace tilescope {

/// All links of one GPU together. Data is what programs moved, raw is data with the protocol. [bytes]
struct LinkCount {
  double sent = 0, received = 0, raw_sent = 0, raw_received = 0;
  LinkCount operator-(const LinkCount& before) const {
    return {sent - before.sent, received - before.received, raw_sent - before.raw_sent,
            raw_received - before.raw_received};
  }
};

class LinkThroughput {
 public:
  /// @param device_index  CUDA ordinal @throws MachineLacks without a driver, NVML, or links that it counts
  explicit LinkThroughput(int device_index);
  ~LinkThroughput();
  LinkThroughput(LinkThroughput&&) noexcept;
  LinkCount read() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tilescope
