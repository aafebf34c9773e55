// SPDX-License-Identifier: Apache-2.0
// Why two simulated runs of one problem move different bytes: which tensor it is, and through which choice.
#pragma once

#include <string>

#include "analysis/model/machine/machine.hpp"
#include "analysis/records/run_record.hpp"
#include "cpu_ref/kernels/kernel.hpp"

namespace tilescope {

struct ComparedRun {
  std::string label;
  const Kernel* kernel = nullptr;
  const RunEntry* run = nullptr;
};

/// A sentence or a few on one direction, of the boundary at which they differ first, with what no tensor
/// explains; empty where the direction is not in both.
/// @param machine  that both were simulated on, if it is one and known
std::string why_different(const ComparedRun& one, const ComparedRun& other, Direction direction,
                          const Machine* machine);

}  // namespace tilescope
