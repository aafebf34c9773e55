// SPDX-License-Identifier: Apache-2.0
// Times of GPU kernels on the device, and of other libraries' kernels on the same problems in the same run.
#pragma once

#include <chrono>
#include <exception>
#include <functional>
#include <string>
#include <vector>

#include "profiler/benchmarks/attention_benchmarks.hpp"
#include "profiler/timing/timed_samples.hpp"

namespace tilescope {

class PeerProcess;

struct DeviceBenchmarkSettings {
  /// How a round is timed; peers follow it but for the clock, which they do not see, and for the rest: they
  /// idle as long while their host enqueues (SPIN_CYCLES of peers.py, before and after). At 700 W it counts:
  /// on an H200 one and the same kernel of 5 ms took 4 to 6 % longer without.
  TimerOptions timing{
      .min_samples = 5, .max_samples = 20, .min_time_s = 0.005, .time_limit_s = 0.5, .rest_s = 500e-6};
  /// A problem's kernels and peers are sampled in turn, this often, so that all of them see the same clocks.
  int rounds = 2;
  /// Before each turn of a kernel or peer: a device at its power limit runs slower for a while, so that none
  /// may begin hot from the one before it while another comes after a pause of its host's.
  std::chrono::milliseconds rest{30};
  /// Called before each round of each kernel or peer with what it times.
  std::function<void(const std::string&)> on_sample = {};
  /// Asked before each of them: whether to end with the groups that are whole.
  std::function<bool()> stopped = [] { return false; };
};

/// What was seen of one kernel or peer: samples, or else what it was refused with.
struct DeviceTimes {
  std::vector<double> samples_s;
  int throttled = 0;  // samples dropped because the SM clock was low
  /// Mean over the samples of the last round; of a peer, right after them. 0: not known.
  double sm_clock_hz = 0;
  std::exception_ptr refusal = nullptr;  // BadInput or MachineLacks; null where each round has samples
};

/// A peer on the problem and direction of a case.
struct PeerTimes {
  std::string peer;  // "pytorch:flash2"
  AttentionProblem problem;
  Direction direction = Direction::forward;
  DeviceTimes times;
};

struct DeviceBenchmarkResults {
  std::string device, driver;      // "NVIDIA H200"; of CUDA that the driver supports, "13.0"
  std::vector<DeviceTimes> times;  // by case; the last ones are missing where it was stopped
  std::vector<PeerTimes> peers;
};

/// Times each case with a cold L2, inputs N(0, 1), all memory allocated before; a backward case is given the
/// results of its kernel's forward pass. `peers`, if any, are timed on each problem and direction that stands
/// in `cases`. A case or peer that does not run the problem, or not on this device, says why in `refusal`.
/// @throws MachineLacks without a device, or in a build without CUDA
DeviceBenchmarkResults run_device_benchmarks(const std::vector<BenchmarkCase>& cases,
                                             const DeviceBenchmarkSettings& settings,
                                             PeerProcess* peers = nullptr);

}  // namespace tilescope
