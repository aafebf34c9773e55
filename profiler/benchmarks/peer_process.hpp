// SPDX-License-Identifier: Apache-2.0
// A Python process that times other libraries' attention kernels (peers.py) on the problems it is given, one
// line of JSON each way at a time.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "cpu_ref/schedule/problem.hpp"
#include "profiler/timing/timed_samples.hpp"

namespace tilescope {

/// Samples, or why there are none.
struct PeerAnswer {
  std::vector<double> samples_s;
  std::string lacks;
  double sm_clock_hz = 0;  // right after the samples, their median; 0: not told
};

class PeerProcess {
 public:
  /// Starts `python` on peers.py, which was installed with the running program.
  /// @param answer_limit_s time for an answer after which the process is given up
  /// @throws MachineLacks when Python, PyTorch or a device is missing, with what would help
  explicit PeerProcess(const std::string& python, double answer_limit_s = 120);
  PeerProcess(const std::vector<std::string>& command, double answer_limit_s);
  ~PeerProcess();
  PeerProcess(const PeerProcess&) = delete;
  PeerProcess& operator=(const PeerProcess&) = delete;

  /// "pytorch:flash2", "pytorch:cudnn", ...
  const std::vector<std::string>& names() const { return names_; }
  /// "PyTorch 2.11.0, CUDA 13.0, cuDNN 9.19.0, Triton 3.6.0"
  const std::string& versions() const { return versions_; }

  /// One round of samples. A process that has died, or does not answer in time, lacks every further answer.
  PeerAnswer time(const std::string& peer, const AttentionProblem& problem, Direction direction,
                  const TimerOptions& timing);

 private:
  std::string read_line();
  void end();

  double answer_limit_s_;
  pid_t child_ = 0;
  int socket_ = -1;  // its standard input and output
  std::string unread_;
  std::string gone_;  // why there are no more answers
  std::vector<std::string> names_;
  std::string versions_;
};

}  // namespace tilescope
