// SPDX-License-Identifier: Apache-2.0
// A launch with its counts and findings: what the stand-in for the CUDA runtime and call_kernel() share.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "emulator/counts/kernel_counts.hpp"
#include "emulator/counts/store_runs.hpp"
#include "emulator/machine/findings.hpp"
#include "emulator/machine/launch.hpp"
#include "emulator/machine/memory.hpp"

namespace tilescope::gpu::emulator {

/// What came of a launch. Counts of a run that ended early are those of the CTAs that had ended.
struct KernelResult {
  std::string kernel;
  bool completed = false;
  Report report;
  KernelCounts counts;
  std::vector<Finding> findings;  // errors first
  double seconds = 0;

  bool right() const;  // it completed, and no finding is an error
};

class L2Listener;

/// @param registers  of a thread, where somebody knows
/// @param l2  is told what SMs ask of the L2; may be null
/// @param store_runs  how ptxas placed its stores, where somebody knows
/// @throws DeviceError for a launch that no device takes, TakesTooLong
KernelResult observe(const ptx::Module& module, const Launch& launch, const Memory& memory,
                     const Options& options, std::optional<int> registers = std::nullopt,
                     L2Listener* l2 = nullptr, const std::optional<StoreRuns>& store_runs = std::nullopt);

}  // namespace tilescope::gpu::emulator
