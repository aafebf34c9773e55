// SPDX-License-Identifier: Apache-2.0
#include "cpu_ref/schedule/program_parts.hpp"

#include <utility>

namespace tilescope {

TileProgram make_pass(PassName name, const AttentionProblem& problem, Axis axis,
                      const ProgramOptions& options) {
  TileProgram program;
  program.name = name;
  program.problem = problem;
  program.tile = options[name].tile;
  program.launch = options[name].launch;
  program.axis = axis;
  program.scan = options.scan;
  return program;
}

void load_score_operands(TileProgram& program) {
  for (const TensorName tensor : score_operands(program.problem)) program.prologue.push_back(load(tensor));
}

void sum_sink_gradient(TileProgram& program) {
  if (!program.problem.score_mods.learned_sink) return;
  program.prologue.push_back(load(TensorName::sink));
  program.epilogue.push_back(reduce(TensorName::dsink));
}

TileProgram make_elementwise_pass(PassName name, PassName served, const AttentionProblem& problem, Axis axis,
                                  const ProgramOptions& options) {
  TileProgram program = make_pass(name, problem, axis, options);
  program.tile = options[served].tile;
  return program;
}

TileProgram convert_pass(const AttentionProblem& problem, PassName served, Axis axis,
                         std::vector<Operand> loads, std::vector<Operand> stores,
                         const ProgramOptions& options) {
  TileProgram program = make_elementwise_pass(PassName::convert, served, problem, axis, options);
  program.kv_heads = axis == Axis::kv;
  program.prologue = std::move(loads);
  program.epilogue = std::move(stores);
  return program;
}

}  // namespace tilescope
