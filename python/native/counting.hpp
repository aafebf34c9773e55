// SPDX-License-Identifier: Apache-2.0
// Hardware counters round what Python launches.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "profiler/counters/block_counters.hpp"
#include "profiler/records/kernel_record.hpp"

namespace tilescope::python {

/// One block after the other, each with a measurement of its own.
class BlockCount {
 public:
  /// @param l2 "cold" or "warm" @throws BadInput, MachineLacks
  BlockCount(const std::string& metrics, int device, const std::string& l2);
  void open() { counters_.open(); }
  void close(const std::string& name) { record_.kernels.push_back(counters_.close(name)); }
  /// What was counted so far, of schema tilescope.kernels/1.
  std::string record(const std::vector<std::string>& argv) const;

 private:
  BlockCounters counters_;
  KernelRecord record_;
};

/// Runs `work`, which does the same each time, once for each pass of the counters and many times for its
/// time.
/// @param launches times that the counters are taken
std::string measure(const std::vector<std::string>& argv, const std::string& name, const std::string& metrics,
                    const std::string& l2, int launches, const std::function<void()>& work);

}  // namespace tilescope::python
