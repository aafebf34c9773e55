// SPDX-License-Identifier: Apache-2.0
// The passes of a tile program's text on a problem, and whether they are consistent.
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "analysis/explain/program_text.hpp"
#include "analysis/model/counts/closed_form.hpp"

namespace tilescope {
namespace {

using enum TensorName;

TileProgram on_problem(const TextPass& pass, const AttentionProblem& problem) {
  TileProgram program = pass.program;
  program.problem = problem;
  const std::int64_t heads = program.kv_heads ? problem.heads_kv : problem.heads;
  program.grid = {.num_blocks = program.whole_head ? 1 : program.num_blocks(),
                  .num_heads = static_cast<int>(problem.batch * heads),
                  .order = pass.order,
                  .last_block_first = program.axis == Axis::q};
  if (is_fp8(problem.dtype)) program.fp8_sums = Fp8Sums::fp32;
  return program;
}

/// What a pass may load though none before it stores it.
std::set<TensorName> inputs_of(Direction direction) {
  if (direction == Direction::forward) return {q, k, v};
  // The forward pass left the others: FlashAttention-1's statistics, and standard attention's P.
  return {q, k, v, out, lse, dout, row_max, row_sum, scores, probs};
}

class Check {
 public:
  Check(const ProgramText& text, Direction direction)
      : text_(text), direction_(direction), known_(inputs_of(direction)) {}

  void pass(const TextPass& pass, const TileProgram& program) {
    for (const auto& [tensor, line] : pass.loads) {
      const auto stored = pass.stores.find(tensor);
      const bool before = stored != pass.stores.end() && stored->second <= line;
      if (!known_.contains(tensor) && !before) {
        refuse(line, fmt::format("loads {}, which nothing before it stores", to_string(tensor)));
      }
    }
    for (const TensorTraffic& traffic : tensor_traffic(program)) {
      const bool reduced_only = traffic.reduce_bytes > 0 && traffic.store_bytes == 0;
      if (reduced_only && !known_.contains(traffic.tensor)) {
        refuse(pass.stores.at(traffic.tensor),
               fmt::format("reduces into {}, which nothing before it stores", to_string(traffic.tensor)));
      }
      covered_[traffic.tensor] = std::max(covered_[traffic.tensor], traffic.compulsory_write_bytes);
    }
    for (const auto& [tensor, line] : pass.stores) {
      known_.insert(tensor);
      lines_[tensor] = line;
    }
    last_line_ = pass.line;
  }

  void results(const AttentionProblem& problem) const {
    const auto wanted = direction_ == Direction::forward ? std::vector{out} : std::vector{dq, dk, dv};
    for (const TensorName tensor : wanted) {
      const std::int64_t whole = tensor_extent(problem, tensor).bytes();
      const auto found = covered_.find(tensor);
      if (found == covered_.end() || found->second == 0) {
        refuse(last_line_, fmt::format("the {} pass ends, and no tile of {} is ever stored",
                                       to_string(direction_), to_string(tensor)));
      }
      if (found->second < whole) {
        refuse(lines_.at(tensor), fmt::format("some tiles of {} are never stored: {} of {} B are",
                                              to_string(tensor), found->second, whole));
      }
    }
  }

 private:
  [[noreturn]] void refuse(int line, const std::string& why) const {
    throw BadInput(fmt::format("{}, line {}: {}", text_.source, line, why));
  }

  const ProgramText& text_;
  Direction direction_;
  std::set<TensorName> known_;
  std::map<TensorName, std::int64_t> covered_;
  std::map<TensorName, int> lines_;
  int last_line_ = 0;
};

}  // namespace

bool ProgramText::has(Direction direction) const {
  return std::ranges::any_of(passes,
                             [direction](const TextPass& pass) { return pass.direction == direction; });
}

std::vector<TileProgram> ProgramText::programs(Direction direction, const AttentionProblem& problem) const {
  validate(problem);
  if (!has(direction)) {
    throw BadInput(fmt::format("{} has no {} pass", source, to_string(direction)));
  }
  std::vector<TileProgram> programs;
  Check check(*this, direction);
  for (const TextPass& pass : passes) {
    if (pass.direction != direction) continue;
    programs.push_back(on_problem(pass, problem));
    check.pass(pass, programs.back());
  }
  check.results(problem);
  return programs;
}

}  // namespace tilescope
