// SPDX-License-Identifier: Apache-2.0
// Which kernel a problem is looked at with where none was named: one rule for the command line and Python.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>

#include "gpu/registry/kernel_registry.hpp"

namespace tilescope {

/// What the rule asks of a machine.
struct TargetMachine {
  std::string name;
  std::optional<int> compute_capability;  // 80; nothing where no GPU is said to run anything
};

struct DefaultKernel {
  const Kernel* kernel = nullptr;
  std::string reason;  // in a few words
};

/// On every machine by the same rule: what stands before the ladder for the problem; the highest rung of
/// FlashAttention-2 for all GPUs since the A100, where it takes the problem and the choices; else
/// FlashAttention-2 as the CPU has it.
/// @param options  a kernel's own choices with the given ones in their place; a BadInput of it passes over
DefaultKernel default_kernel(std::span<const TargetMachine> machines, const AttentionProblem& problem,
                             std::span<const Direction> directions,
                             const std::function<ProgramOptions(const Kernel&)>& options);

}  // namespace tilescope
