// SPDX-License-Identifier: Apache-2.0
#include "analysis/explain/candidate_programs.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace tilescope {
namespace {

using enum TensorName;

constexpr Operand load(TensorName tensor) { return {tensor, AccessKind::load}; }
constexpr Operand store(TensorName tensor) { return {tensor, AccessKind::store}; }

TileProgram pass_of(const std::vector<TileProgram>& programs, PassName name) {
  return *std::find_if(programs.begin(), programs.end(),
                       [name](const TileProgram& program) { return program.name == name; });
}

/// A pass without inner tiles: it reads and writes each element of some tensors once.
TileProgram elementwise(const AttentionProblem& problem, Axis axis, std::vector<Operand> loads,
                        std::vector<Operand> stores) {
  TileProgram program;
  program.problem = problem;
  program.axis = axis;
  program.kv_heads = axis == Axis::kv;
  program.prologue = std::move(loads);
  program.epilogue = std::move(stores);
  return program;
}

class Collector {
 public:
  /// @param parts what one launch does, the part that its grid belongs to first
  /// @param kv_sharing query heads of one CTA that one load of a K or V tile serves
  CandidateProgram& add(const std::string& name, const std::string& convention,
                        const std::vector<TileProgram>& parts, std::int64_t kv_sharing = 1) {
    const TileProgram& first = parts.front();
    CandidateProgram candidate{name, convention, first.tile, first.num_ctas(), {}, 0};
    if (first.phases.empty()) candidate.tile = {0, 0}, candidate.num_ctas = 0;
    for (const TileProgram& part : parts) {
      for (const TensorTraffic& tensor : tensor_traffic(part)) {
        const bool shared = tensor.tensor == k || tensor.tensor == v;
        candidate.bytes.read_bytes += tensor.load_bytes / (shared ? kv_sharing : 1);
        candidate.bytes.write_bytes += tensor.store_bytes + tensor.reduce_bytes;
        candidate.reduce_bytes += tensor.reduce_bytes;
      }
    }
    found_.push_back(std::move(candidate));
    return found_.back();
  }
  std::vector<CandidateProgram> take() { return std::move(found_); }

 private:
  std::vector<CandidateProgram> found_;
};

void add_forward(Collector& collector, const AttentionProblem& problem, TileShape tile) {
  const ProgramOptions options = ProgramOptions::with_tile(tile);
  const TileProgram flash2 = build_programs(Algorithm::flash2, Direction::forward, problem, options).front();
  TileProgram without_lse = flash2;
  without_lse.epilogue = {store(out)};
  collector.add("forward", "", {flash2});
  collector.add("forward", "no lse stored", {without_lse});
  for (const bool stores_lse : {true, false}) {
    TileProgram reloading = stores_lse ? flash2 : without_lse;
    reloading.prologue.clear();
    reloading.phases = {{load(q), load(k), load(v)}};
    collector.add("forward", stores_lse ? "Q loaded at every step" : "Q loaded at every step, no lse stored",
                  {reloading});
  }
  if (problem.group_size() > 1) {
    collector.add("forward", "a K/V tile is loaded once for its group of query heads", {flash2},
                  problem.group_size());
  }
  collector.add("flash1 forward", "",
                {build_programs(Algorithm::flash1, Direction::forward, problem, options).front()});
}

/// As in PyTorch's memory-efficient attention: each product of a step loads its operands; the dQ sums are
/// read and written by one CTA at a time, and the last of them stores dQ; every CTA computes delta for all
/// queries.
void add_serial_backward(Collector& collector, const AttentionProblem& problem, const TileProgram& fused) {
  TileProgram deltas = fused;
  deltas.dense = true;
  deltas.prologue.clear();
  deltas.phases = {{load(out), load(dout), store(delta)}};
  deltas.epilogue.clear();
  const std::int64_t last_store =
      tensor_extent(problem, dq_accum).bytes() - tensor_extent(problem, dq).bytes();
  for (const bool keeps_v : {false, true}) {
    TileProgram main = fused;
    main.prologue = keeps_v ? std::vector{load(v)} : std::vector<Operand>{};
    main.phases = {{load(k), load(k), load(q), load(q), load(dout), load(dout), load(lse), load(delta),
                    load(dq_accum), store(dq_accum)}};
    if (!keeps_v) main.phases[0].push_back(load(v));
    collector
        .add("backward, dQ read and written in turn",
             keeps_v ? "operands loaded for each product but V" : "operands loaded for each product",
             {main, deltas})
        .bytes.write_bytes -= last_store;
  }
}

/// Backward passes of `problem`, whose heads_kv says by which heads dK and dV are summed.
void add_backward_by_kv_tile(Collector& collector, const AttentionProblem& problem, TileShape tile,
                             const std::string& convention) {
  ProgramOptions options = ProgramOptions::with_tile(tile);
  options.backward = BackwardOrder::fused;
  const TileProgram fused =
      pass_of(build_programs(Algorithm::flash2, Direction::backward, problem, options), PassName::dkdvdq);
  collector.add("backward, dQ reduced", convention, {fused});
  if (problem.group_size() == 1) add_serial_backward(collector, problem, fused);
  options.backward = BackwardOrder::split;
  const TileProgram dkdv =
      pass_of(build_programs(Algorithm::flash2, Direction::backward, problem, options), PassName::dkdv);
  collector.add("backward, dK and dV", convention, {dkdv});
  if (problem.seqlen_q != problem.seqlen_k || problem.group_size() > 1) return;
  for (const int block_n : kCandidateBlocks) {
    if (block_n > tile.block_n) break;
    options[PassName::dq].tile = {tile.block_n, block_n};  // as many CTAs as the kv tiles have
    const TileProgram dq_pass =
        pass_of(build_programs(Algorithm::flash2, Direction::backward, problem, options), PassName::dq);
    collector.add("backward, dK/dV then dQ in one launch",
                  fmt::format("dQ by tiles of {}x{}", tile.block_n, block_n), {dkdv, dq_pass});
  }
}

void add_backward(Collector& collector, const AttentionProblem& problem, TileShape tile) {
  add_backward_by_kv_tile(collector, problem, tile, "");
  if (problem.group_size() > 1) {
    AttentionProblem expanded = problem;
    expanded.heads_kv = problem.heads;
    add_backward_by_kv_tile(collector, expanded, tile, "dK and dV by query head");
  }
  ProgramOptions options = ProgramOptions::with_tile(tile);
  collector.add(
      "backward, dQ", "",
      {pass_of(build_programs(Algorithm::flash2, Direction::backward, problem, options), PassName::dq)});
  options.backward = BackwardOrder::q_outer;
  collector.add(
      "backward, dK and dV reduced", "",
      {pass_of(build_programs(Algorithm::flash2, Direction::backward, problem, options), PassName::dqdkdv)});
  collector.add("flash1 backward", "",
                {build_programs(Algorithm::flash1, Direction::backward, problem, options).front()});
}

void add_passes_around_backward(Collector& collector, const AttentionProblem& problem) {
  const auto by_query = [&problem](std::vector<Operand> loads, std::vector<Operand> stores) {
    return elementwise(problem, Axis::q, std::move(loads), std::move(stores));
  };
  collector.add("delta", "", {by_query({load(out), load(dout)}, {store(delta)})});
  collector.add("delta", "dQ sums zeroed",
                {by_query({load(out), load(dout)}, {store(delta), store(dq_accum)})});
  collector.add("convert", "dQ sums to dQ", {by_query({load(dq_accum)}, {store(dq)})});
  collector.add("fill", "dQ sums zeroed", {by_query({}, {store(dq_accum)})});
  if (problem.group_size() > 1) {
    collector.add("sum", "dK or dV over the query heads of a group",
                  {by_query({load(q)}, {}), elementwise(problem, Axis::kv, {}, {store(dk)})});
  }
}

}  // namespace

std::vector<CandidateProgram> candidate_programs(const AttentionProblem& problem,
                                                 std::span<const Direction> directions) {
  validate(problem);
  Collector collector;
  collector.add("copy", "of a tensor shaped like Q", {elementwise(problem, Axis::q, {load(q)}, {store(dq)})});
  if (problem.heads_kv != problem.heads || problem.seqlen_q != problem.seqlen_k) {
    collector.add("copy", "of a tensor shaped like K",
                  {elementwise(problem, Axis::kv, {load(k)}, {store(dk)})});
  }
  for (const Direction direction : directions) {
    if (direction == Direction::backward) add_passes_around_backward(collector, problem);
    for (const int block_m : kCandidateBlocks) {
      for (const int block_n : kCandidateBlocks) {
        const TileShape tile{block_m, block_n};
        if (direction == Direction::forward) {
          add_forward(collector, problem, tile);
        } else {
          add_backward(collector, problem, tile);
        }
      }
    }
  }
  return collector.take();
}

}  // namespace tilescope
