// SPDX-License-Identifier: Apache-2.0
// One GPU with a whole problem, and nothing between its launches: what ranks are measured against. Plain C++.
#pragma once

#include <memory>

#include "gpu/registry/gpu_kernel.hpp"

namespace tilescope {

class OneDevice {
 public:
  /// @throws MachineLacks
  OneDevice(const GpuKernel& kernel, const AttentionProblem& problem, Direction direction, int device = 0);
  ~OneDevice();
  OneDevice(const OneDevice&) = delete;
  OneDevice& operator=(const OneDevice&) = delete;

  /// Runs the pass so many times, one after the other, and waits. @return what one of the last `timed` times
  /// took [seconds]
  double run(int repetitions, int timed);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tilescope
