// SPDX-License-Identifier: Apache-2.0
// A stream of a rank, with a place among its others where several have something for the multiprocessors.
#pragma once

#include <algorithm>

#include "gpu/launch/device.hpp"

namespace tilescope {

/// On the device that is current when it is made. What waits in a lane of an earlier place goes first.
class Lane {
 public:
  explicit Lane(int place) {
    int least = 0, greatest = 0;  // in numbers, the greatest is the smallest
    check_cuda(cudaDeviceGetStreamPriorityRange(&least, &greatest), "asking for priorities");
    check_cuda(
        cudaStreamCreateWithPriority(&stream_, cudaStreamNonBlocking, std::min(least, greatest + place)),
        "creating a stream");
  }
  ~Lane() { cudaStreamDestroy(stream_); }
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;
  cudaStream_t get() const { return stream_; }
  /// @throws DeviceError if anything enqueued failed; `what` names it.
  void synchronize(const std::string& what) const { check_cuda(cudaStreamSynchronize(stream_), what); }

 private:
  cudaStream_t stream_ = nullptr;
};

}  // namespace tilescope
