// SPDX-License-Identifier: Apache-2.0
// CUDA streams and events of a rank, each destroyed with its owner, on the device that is current when it is
// made.
#pragma once

#include <algorithm>

#include "gpu/launch/device.hpp"

namespace tilescope {

/// With a place among the rank's streams: work that waits in an earlier place goes first.
class RankStream {
 public:
  explicit RankStream(int place) {
    int least = 0, greatest = 0;  // in numbers, the greatest is the smallest
    check_cuda(cudaDeviceGetStreamPriorityRange(&least, &greatest), "asking for priorities");
    check_cuda(
        cudaStreamCreateWithPriority(&stream_, cudaStreamNonBlocking, std::min(least, greatest + place)),
        "creating a stream");
  }
  ~RankStream() { cudaStreamDestroy(stream_); }
  RankStream(const RankStream&) = delete;
  RankStream& operator=(const RankStream&) = delete;
  cudaStream_t get() const { return stream_; }
  /// @throws DeviceError if anything enqueued failed; `what` names it.
  void synchronize(const std::string& what) const { check_cuda(cudaStreamSynchronize(stream_), what); }

 private:
  cudaStream_t stream_ = nullptr;
};

class Event {
 public:
  explicit Event(bool timed = false) {
    check_cuda(cudaEventCreateWithFlags(&event_, timed ? cudaEventDefault : cudaEventDisableTiming),
               "creating an event");
  }
  ~Event() { cudaEventDestroy(event_); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  cudaEvent_t get() const { return event_; }

 private:
  cudaEvent_t event_ = nullptr;
};

}  // namespace tilescope
