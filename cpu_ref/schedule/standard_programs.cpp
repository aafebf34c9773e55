// SPDX-License-Identifier: Apache-2.0
// Standard attention, one matrix product or row operation a pass.
#include "cpu_ref/schedule/program_parts.hpp"

namespace tilescope {

namespace {

/// Reads whole rows `reads` times, the first time into a strip on chip if once is enough, and writes others.
std::vector<std::vector<Operand>> row_phases(const std::vector<Operand>& rows, Operand result, int reads) {
  if (reads == 1) return {rows, {result}};
  std::vector<std::vector<Operand>> phases(static_cast<std::size_t>(reads), rows);
  phases.back().push_back(result);
  return phases;
}

}  // namespace

std::vector<TileProgram> standard_forward_programs(const AttentionProblem& problem,
                                                   const ProgramOptions& options) {
  using enum TensorName;
  TileProgram s = make_pass(PassName::scores, problem, Axis::q, options);
  s.prologue = {load(q)};
  s.phases = {{load(k), store(scores)}};
  s.products = {.qk = 1};
  TileProgram softmax = make_pass(PassName::softmax, problem, Axis::q, options);
  if (problem.score_mods.learned_sink) softmax.init = {load(sink)};
  load_score_operands(softmax);
  softmax.phases = row_phases({load(scores)}, store(probs), options[PassName::softmax].row_reads);
  softmax.epilogue = {store(lse)};
  TileProgram output = make_pass(PassName::output, problem, Axis::q, options);
  output.phases = {{load(probs), load(v)}};
  output.epilogue = {store(out)};
  output.products = {.v = 1};
  return {s, softmax, output};
}

std::vector<TileProgram> standard_backward_programs(const AttentionProblem& problem,
                                                    const ProgramOptions& options) {
  using enum TensorName;
  TileProgram dv_pass = make_pass(PassName::dv, problem, Axis::kv, options);
  dv_pass.kv_heads = true;
  dv_pass.phases = {{load(probs), load(dout)}};
  dv_pass.epilogue = {store(dv)};
  dv_pass.products = {.v = 1};
  TileProgram dp = make_pass(PassName::dprobs, problem, Axis::q, options);
  dp.prologue = {load(dout)};
  dp.phases = {{load(v), store(dprobs)}};
  dp.products = {.v = 1};
  TileProgram ds = make_pass(PassName::dscores, problem, Axis::q, options);
  std::vector<Operand> rows = {load(probs), load(dprobs)};
  if (change_gradients(problem.score_mods)) {  // a derivative is one at a score
    load_score_operands(ds);
    rows.push_back(load(scores));
  }
  ds.phases = row_phases(rows, store(dscores), options[PassName::dscores].row_reads);
  if (problem.score_mods.learned_sink) ds.prologue.push_back(load(lse));
  sum_sink_gradient(ds);
  TileProgram dq_pass = make_pass(PassName::dq_gemm, problem, Axis::q, options);
  dq_pass.phases = {{load(dscores), load(k)}};
  dq_pass.epilogue = {store(dq)};
  dq_pass.products = {.qk = 1};
  TileProgram dk_pass = make_pass(PassName::dk_gemm, problem, Axis::kv, options);
  dk_pass.kv_heads = true;
  dk_pass.phases = {{load(dscores), load(q)}};
  dk_pass.epilogue = {store(dk)};
  dk_pass.products = {.qk = 1};
  return {dv_pass, dp, ds, dq_pass, dk_pass};
}

}  // namespace tilescope
