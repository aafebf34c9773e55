// SPDX-License-Identifier: Apache-2.0
// What counters a chip has and how many passes a choice of them takes. Asks libcupti by the chip's name: no
// device and no driver are needed.
#pragma once

#include <memory>
#include <string>
#include <vector>

namespace tilescope {

class MetricCatalogue {
 public:
  /// @param chip CUPTI's name of it: "GA100", "GH100", "GB100" ...
  /// @throws MachineLacks without libcupti, BadInput for a chip that it does not know
  explicit MetricCatalogue(const std::string& chip);
  ~MetricCatalogue();
  MetricCatalogue(MetricCatalogue&&) noexcept;

  /// Names of all chips that the libcupti of this machine knows. @throws MachineLacks without libcupti
  static std::vector<std::string> chips();

  const std::string& chip() const;
  /// Every counter, ratio and throughput of the chip without its rollup, sorted: "dram__bytes_read".
  const std::vector<std::string>& base_names() const;
  /// Whether the chip has the counter, rollup included: "dram__bytes_read.sum".
  bool has(const std::string& counter) const;
  /// What the counter counts, in CUPTI's words; empty for an unknown one.
  std::string description(const std::string& counter) const;
  /// Times that a kernel must run for all of these counters; 0 for none. The device may need more.
  /// @throws CuptiError if one of them is unknown
  int passes(const std::vector<std::string>& counters) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tilescope
