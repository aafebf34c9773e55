// SPDX-License-Identifier: Apache-2.0
// Passes that nobody chose, drawn by a seed from strata, and what the model, its rivals and models that must
// fail say of them: written down before any of them is measured.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "analysis/model/machine/machine.hpp"
#include "analysis/studies/library_kernels.hpp"
#include "analysis/studies/study.hpp"

namespace tilescope {

/// Unless --count says otherwise.
inline constexpr int kDrawnPasses = 48;

/// One direction of a problem on a kernel.
struct DrawnRun {
  const Kernel* kernel = nullptr;
  Direction direction = Direction::forward;
  AttentionProblem problem;
};

/// The same for a seed everywhere. Strata come in turn, so that any beginning of the list has all of them:
/// kernel and direction, and for each in turn a full and a causal mask, grouped heads, a window, and queries
/// that are fewer than keys. Lengths are log-uniform, and so many that K and V of the heads exceed an L2.
/// @param kernels  those of the strata among them
std::vector<DrawnRun> drawn_runs(std::uint64_t seed, int count, std::span<const Kernel* const> kernels);

/// The same of another library's kernel.
struct DrawnLibraryRun {
  const LibraryKernel* kernel = nullptr;
  Direction direction = Direction::forward;
  AttentionProblem problem;
};

/// The same for a seed everywhere. Strata come in turn here, too: library and direction, and for each in turn
/// the masks that it takes.
std::vector<DrawnLibraryRun> drawn_library_runs(std::uint64_t seed, int count);

/// A machine as another model would have it.
struct Rival {
  std::string name;
  Machine machine;  // called by that name
};

/// The model itself first. Baselines: one LRU of 32 MiB; one LRU of the size that fits the older committed
/// records best; two partitions whose CTAs keep step. And one that must lose: half of the L2.
std::vector<Rival> rivals_of(const Machine& machine);

/// A task for each drawn run, as many of other libraries' kernels behind `count` of ours, whose entries are
/// those of the rivals, in their order; the model's have intervals. Pages lie at random places.
/// @param machine  must outlive the tasks
std::vector<StudyTask> holdout_study(const Machine& machine, std::uint64_t seed, int count,
                                     std::span<const Kernel* const> kernels);

}  // namespace tilescope
