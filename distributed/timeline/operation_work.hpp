// SPDX-License-Identifier: Apache-2.0
// How much of its rank an operation takes: by the CTAs of a kernel, or by useful FLOP.
#pragma once

#include <vector>

#include "distributed/counts/rank_load.hpp"
#include "distributed/timeline/timeline.hpp"

namespace tilescope {

/// What an operation takes of its rank.
struct OperationWork {
  const std::vector<EvenCtas>* ctas = nullptr;  // of a launch
  double even_seconds = 0;                      // elementwise, on all SMs
  int launches = 0;
};

/// Launches by the CTAs of a kernel, and the sums that it needs.
class KernelWork {
 public:
  KernelWork(const DistributedProgram& program, const LaunchedKernel& kernel, const RankRates& rates)
      : program_(program), work_(program, kernel), rates_(rates) {}
  double cleared_seconds(int rank) const { return seconds(work_.cleared_bytes(rank)); }
  OperationWork of(int operation) {
    const Attend* const attend = std::get_if<Attend>(&program_.operations[at(operation)].what);
    return {attend != nullptr ? &work_.ctas(*attend) : nullptr, seconds(work_.memory_bytes(operation)),
            work_.launches(operation)};
  }

 private:
  double seconds(std::int64_t bytes) const {
    return static_cast<double>(bytes) / rates_.memory_bytes_per_second;
  }
  const DistributedProgram& program_;
  DeviceWork work_;
  const RankRates& rates_;
};

/// Launches by their useful FLOP on a GPU that is one SM, whose tile is a FLOP; and the program's own sums.
class FlopWork {
 public:
  FlopWork(const DistributedProgram& program, const RankRates& rates) : program_(program), rates_(rates) {}
  double cleared_seconds(int) const { return 0; }
  OperationWork of(int operation) {
    const auto& what = program_.operations[at(operation)].what;
    if (const Attend* const attend = std::get_if<Attend>(&what)) {
      const auto& q = program_.buffers[at(attend->buffer(TensorName::q))];
      flops_ = {{1, useful_flops(program_.direction,
                                 program_.problem.batch * q.heads * attend->slice.visible_pairs(),
                                 program_.problem.head_dim)}};
      return {&flops_, 0, 1};
    }
    const Move& move = std::get<Move>(what);
    const std::int64_t passes = move.kind == MoveKind::add ? 2 : 1;  // an addition clears and accumulates
    return {nullptr,
            static_cast<double>(passes * (program_.bytes(move.from) + program_.bytes(move.to))) /
                rates_.memory_bytes_per_second,
            1};
  }

 private:
  const DistributedProgram& program_;
  const RankRates& rates_;
  std::vector<EvenCtas> flops_;
};

}  // namespace tilescope
