// SPDX-License-Identifier: Apache-2.0
// What a GPU does for an operation of a program: the CTAs of a launch in the order of their issue, and the
// bytes of the passes that clear, merge, widen and round beside it.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <tuple>
#include <vector>

#include "distributed/execution/accumulation_plan.hpp"
#include "distributed/schedule/distributed_program.hpp"

namespace tilescope {

/// A kernel as ranks launch it.
struct RankKernel {
  /// Its passes on a slice, in launch order.
  std::function<std::vector<TileProgram>(Direction, const AttentionProblem&)> programs;
  std::int64_t ctas_at_once = 0;  // of a GPU
  /// What a CTA takes for a block beside its tiles: the first operands to come, the results to go. [tiles]
  double block_tiles = 0;
};

/// CTAs that follow each other and take as long.
struct EvenCtas {
  std::int64_t ctas = 0;
  double tiles = 0;  // of each
};

class DeviceWork {
 public:
  /// Program and kernel must outlive this.
  DeviceWork(const DistributedProgram& program, const RankKernel& kernel);

  const std::vector<EvenCtas>& ctas(const Attend& attend);
  /// Read and written by elementwise passes: before the first operation of a rank, and with each operation.
  /// [bytes]
  std::int64_t cleared_bytes(int rank) const { return cleared_[at(rank)]; }
  std::int64_t memory_bytes(int operation) const;
  /// Kernels that an operation launches one after the other.
  int launches(int operation) const;

 private:
  using Shape = std::tuple<std::int64_t, std::int64_t, std::int64_t, std::int64_t, bool, std::int64_t,
                           std::int64_t>;  // of a slice's problem
  /// Passes that an operation's launches need beside the kernel itself.
  int passes(int operation) const;
  std::int64_t merged_bytes(const Attend& attend) const;
  std::int64_t widened_bytes(const Attend& attend, OutputPlacement placement) const;
  std::int64_t move_bytes(const Move& move, const MovePlan& plan) const;

  const DistributedProgram& program_;
  const RankKernel& kernel_;
  AccumulationPlan plan_;
  std::vector<std::int64_t> cleared_;  // by rank
  std::map<Shape, std::vector<EvenCtas>> shapes_;
};

}  // namespace tilescope
