// SPDX-License-Identifier: Apache-2.0
// FlashAttention (arXiv:2205.14135), Algorithms 1, 2 and 4: kv tiles outside, O, l and m through memory.
#include "cpu_ref/schedule/program_parts.hpp"

namespace tilescope {

std::vector<TileProgram> flash1_forward_programs(const AttentionProblem& problem,
                                                 const ProgramOptions& options) {
  using enum TensorName;
  const bool narrow = problem.dtype != ElementType::fp32;
  const TensorName running_out = narrow ? out_accum : out;
  TileProgram forward = make_pass(PassName::forward, problem, Axis::kv, options);
  forward.whole_head = true;
  forward.init = {store(running_out), store(row_sum), store(row_max)};
  forward.prologue = {load(k), load(v)};
  forward.phases = {{load(q), load(running_out), load(row_sum), load(row_max), store(running_out),
                     store(row_sum), store(row_max)}};
  forward.products = products_of(Direction::forward);
  if (!narrow) return {forward};
  return {forward,
          convert_pass(problem, PassName::forward, Axis::q, {load(out_accum)}, {store(out)}, options)};
}

std::vector<TileProgram> flash1_backward_programs(const AttentionProblem& problem,
                                                  const ProgramOptions& options) {
  using enum TensorName;
  TileProgram main = make_pass(PassName::dkdvdq, problem, Axis::kv, options);
  main.whole_head = true;
  main.kv_heads = true;
  main.init = {store(dq_accum), store(dk), store(dv)};
  main.prologue = {load(k), load(v)};
  main.phases = {
      {load(q), load(out), load(dout), load(dq_accum), load(row_sum), load(row_max), store(dq_accum)}};
  main.epilogue = {store(dk), store(dv)};
  main.products = products_of(Direction::backward);
  return {main, convert_pass(problem, PassName::dkdvdq, Axis::q, {load(dq_accum)}, {store(dq)}, options)};
}

}  // namespace tilescope
