// SPDX-License-Identifier: Apache-2.0
// Declared against measured: kernels that move a known number of bytes tell whether the counters can be
// trusted.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tilescope {

/// One path of one calibration kernel.
struct CalibrationCheck {
  std::string kernel;
  std::string metric;         // "dram_read_bytes"
  std::int64_t declared = 0;  // in the metric's unit
  double measured = 0;
  double deviation = 0;  // |measured - declared| over the bytes that the kernel moves, 1.0 = 100 %
  bool holds = false;
};

struct SelfTest {
  std::string device, chip, driver;
  int passes = 0;
  std::vector<CalibrationCheck> checks;
  std::vector<std::string> left_out;  // kernels that the device is too old for
};

inline constexpr double kSelfTestTolerance = 0.01;

/// @throws MachineLacks without a device, counters or a build with CUDA
SelfTest run_self_test();

}  // namespace tilescope
