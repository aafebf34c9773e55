// SPDX-License-Identifier: Apache-2.0
// FlashAttention's Figure 2 recounted: the numbers behind its section.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "analysis/model/counts/run_summary.hpp"

namespace tilescope {

/// The left panel: forward and backward of GPT-2 medium.
struct Figure2Passes {
  double standard_gflop = 0, flash_gflop = 0;  // executed
  /// Algorithms 0 and 3, 1 and 4, as printed.
  double standard_printed_gigabytes = 0, flash_printed_gigabytes = 0;
};
std::optional<Figure2Passes> figure2_passes(const std::vector<RunSummary>& runs);

/// A point of the middle panel.
struct Figure2Block {
  int block_n = 0;
  double printed_gigabytes = 0, counted_gigabytes = 0;
};
std::vector<Figure2Block> figure2_blocks(const std::vector<RunSummary>& runs);

/// The same problem by counters: DRAM bytes of the first kernel over those of the others.
struct Figure2OnDevice {
  std::string device, baseline, flash, last;
  double flash_dram_ratio = 0, dram_ratio = 0;
  double time_ratio = 0;  // of the first over the last
  std::string units;      // that multiply: "CUDA cores for the first, tensor cores for the last"
  bool one_unit = false;
};
std::optional<Figure2OnDevice> figure2_on_device(const std::vector<RunSummary>& runs);

}  // namespace tilescope
