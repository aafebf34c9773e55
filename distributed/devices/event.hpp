// SPDX-License-Identifier: Apache-2.0
// A CUDA event that is destroyed with its owner.
#pragma once

#include "gpu/launch/device.hpp"

namespace tilescope {

/// Of the device that is current when it is made.
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
