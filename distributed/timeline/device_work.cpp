// SPDX-License-Identifier: Apache-2.0
#include "distributed/timeline/device_work.hpp"

#include <algorithm>

namespace tilescope {
namespace {

constexpr std::int64_t kSumBytes = 4;  // fp32

/// The CTAs of a pass in the order of their issue.
std::vector<EvenCtas> runs_of(const TileProgram& program, double block_tiles) {
  std::vector<EvenCtas> runs;
  for (std::int64_t cta = 0; cta < program.num_ctas(); ++cta) {
    const CtaWork work = program.work(cta);
    double tiles = 0;
    for (int block = work.first_block; block < work.end_block; ++block)
      tiles +=
          block_tiles + std::max(0, program.inner_tiles(work.batch, block).count()) * program.heads_per_cta();
    if (!runs.empty() && runs.back().tiles == tiles) {
      ++runs.back().ctas;
    } else {
      runs.push_back({1, tiles});
    }
  }
  return runs;
}

}  // namespace

DeviceWork::DeviceWork(const DistributedProgram& program, const RankKernel& kernel)
    : program_(program),
      kernel_(kernel),
      plan_(plan_accumulation(program)),
      cleared_(static_cast<std::size_t>(program.ranks)) {
  for (const auto* buffers : {&plan_.cleared, &plan_.emptied}) {
    for (const int index : *buffers) {
      const Buffer& buffer = program_.buffers[at(index)];
      cleared_[at(buffer.rank)] += program_.bytes(buffer);
    }
  }
}

const std::vector<EvenCtas>& DeviceWork::ctas(const Attend& attend) {
  const AttentionProblem slice = program_.slice_problem(attend);
  const Shape shape{slice.heads,  slice.heads_kv,    slice.seqlen_q,    slice.seqlen_k,
                    slice.causal, slice.window_left, slice.window_right};
  const auto [found, is_new] = shapes_.try_emplace(shape);
  if (!is_new) return found->second;
  for (const TileProgram& pass : kernel_.programs(program_.direction, slice)) {
    if (pass.phases.empty()) continue;  // elementwise: merges and sums stand in its place
    const std::vector<EvenCtas> runs = runs_of(pass, kernel_.block_tiles);
    found->second.insert(found->second.end(), runs.begin(), runs.end());
  }
  return found->second;
}

/// A part of out and its statistics, added to sums.
std::int64_t DeviceWork::merged_bytes(const Attend& attend) const {
  const Buffer& q = program_.buffers[at(attend.buffer(TensorName::q))];
  const std::int64_t rows = program_.problem.batch * q.heads * attend.slice.q_rows.count();
  return rows * (program_.problem.head_dim * (element_bytes(q.dtype) + 2 * kSumBytes) + 3 * kSumBytes);
}

/// A part of dK or dV, stored as sums or added to them.
std::int64_t DeviceWork::widened_bytes(const Attend& attend, OutputPlacement placement) const {
  if (placement != OutputPlacement::store && placement != OutputPlacement::add) return 0;
  const Buffer& k = program_.buffers[at(attend.buffer(TensorName::k))];
  const std::int64_t numbers = program_.problem.batch * k.heads * attend.slice.kv_rows.count() * k.cols;
  return numbers * (element_bytes(k.dtype) + (placement == OutputPlacement::add ? 2 : 1) * kSumBytes);
}

std::int64_t DeviceWork::move_bytes(const Move& move, const MovePlan& plan) const {
  if (plan.nothing || move.kind == MoveKind::copy) return 0;
  const std::int64_t from = program_.bytes(move.from), to = program_.bytes(move.to);
  const std::int64_t parts =
      from / kSumBytes * element_bytes(program_.problem.dtype) * static_cast<std::int64_t>(plan.parts.size());
  if (move.kind == MoveKind::add)  // the target is read and written
    return (plan.parts.empty() ? from * (plan.clears_source ? 2 : 1) : parts) + 2 * to;
  return plan.parts.empty() ? from + to : parts + 2 * to;
}

std::int64_t DeviceWork::memory_bytes(int operation) const {
  const auto& what = program_.operations[at(operation)].what;
  const Attend* const attend = std::get_if<Attend>(&what);
  if (attend == nullptr) return move_bytes(std::get<Move>(what), plan_.moves[at(operation)]);
  const LaunchPlan& plan = plan_.launches[at(operation)];
  if (program_.direction == Direction::forward)
    return plan.out == OutputPlacement::add ? merged_bytes(*attend) : 0;
  std::int64_t bytes = widened_bytes(*attend, plan.dk) + widened_bytes(*attend, plan.dv);
  if (plan.makes_delta) {
    const Buffer& q = program_.buffers[at(attend->buffer(TensorName::q))];
    bytes += program_.problem.batch * q.heads * attend->slice.q_rows.count() *
             (2 * q.cols * element_bytes(q.dtype) + kSumBytes);
  }
  return bytes;
}

int DeviceWork::passes(int operation) const {
  const LaunchPlan& plan = plan_.launches[at(operation)];
  if (program_.direction == Direction::forward) return plan.out == OutputPlacement::add ? 1 : 0;
  const auto widened = [](OutputPlacement placement) {
    return placement == OutputPlacement::store || placement == OutputPlacement::add;
  };
  return (plan.makes_delta ? 1 : 0) + (widened(plan.dk) ? 1 : 0) + (widened(plan.dv) ? 1 : 0);
}

int DeviceWork::launches(int operation) const {
  const bool attends = std::holds_alternative<Attend>(program_.operations[at(operation)].what);
  if (attends) return 1 + passes(operation);
  return memory_bytes(operation) > 0 ? 1 : 0;
}

}  // namespace tilescope
