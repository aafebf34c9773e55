// SPDX-License-Identifier: Apache-2.0
// Hardware counters round what Python launches.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "profiler/counters/block_counters.hpp"
#include "profiler/injection/launch_counters.hpp"
#include "profiler/records/kernel_record.hpp"

namespace tilescope::python {

/// One block after the other, each with a measurement of its own or with one for each kernel in it.
class BlockCount {
 public:
  /// @param l2 "cold" or "warm" @param by "block" or "kernel" @param filter regular expression on kernels'
  /// names
  /// @throws BadInput, MachineLacks
  BlockCount(const std::string& metrics, int device, const std::string& l2, const std::string& by,
             const std::string& filter);
  void open();
  void close(const std::string& name);
  /// What was counted so far, of schema tilescope.kernels/1.
  std::string record(const std::vector<std::string>& argv) const;
  /// The libcupti that counts; empty by kernel.
  std::string library() const { return block_ ? block_->library() : ""; }

 private:
  std::optional<BlockCounters> block_;
  std::optional<LaunchCounters> launches_;
  KernelRecord record_;
};

/// What is measured of a function that does the same each time.
struct MeasureRequest {
  std::vector<std::string> argv;  // of the record
  std::string name, metrics, l2;
  int device = 0;
  int launches = 1;  // times that the counters are taken
  bool time = true;  // else counters alone
};

/// Runs `work` once for each pass of the counters and many times for its time.
std::string measure(const MeasureRequest& request, const std::function<void()>& work);

/// What device 0 does while `work` runs, sampled: a JSON object with a list for each quantity.
/// @param interval_s from 1e-5 to 1
std::string timeline(double interval_s, const std::function<void()>& work);

}  // namespace tilescope::python
