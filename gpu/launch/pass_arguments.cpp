// SPDX-License-Identifier: Apache-2.0
#include "gpu/launch/pass_arguments.hpp"

#include "cpu_ref/primitives/kernel_scale.hpp"

namespace tilescope {

std::set<TensorName> tensors_of(const std::vector<TileProgram>& programs) {
  std::set<TensorName> names;
  const auto add = [&names](const std::vector<Operand>& operands) {
    for (const Operand& operand : operands) names.insert(operand.tensor);
  };
  for (const TileProgram& program : programs) {
    add(program.init);
    add(program.prologue);
    for (const auto& phase : program.phases) add(phase);
    add(program.epilogue);
  }
  return names;
}

KernelArguments pass_arguments(const TileProgram& program) {
  const AttentionProblem& problem = program.problem;
  KernelArguments arguments;
  arguments.grid = program.grid;
  arguments.scan = program.scan;
  arguments.band = problem.band();
  arguments.heads = static_cast<int>(problem.heads);
  arguments.heads_kv = static_cast<int>(problem.heads_kv);
  arguments.head_dim = static_cast<int>(problem.head_dim);
  arguments.diagonal_slices = program.diagonal_slices;
  const KernelScale scale(problem);
  arguments.softmax_scale = scale.signed_scale;
  arguments.softmax_scale_log2 = scale.softmax.log2;
  arguments.score_sign = scale.sign;
  if (problem.score_mods.any()) {
    const auto in_units = [&](double value) { return static_cast<float>(value / double{scale.magnitude}); };
    arguments.score_mods.softcap = in_units(problem.score_mods.softcap);
    arguments.score_mods.log_bias = in_units(problem.score_mods.log_bias);
    arguments.score_mods.per_scale = in_units(1.0);
  }
  if (problem.dropout > 0) arguments.dropout = DropoutMask(problem.seed, problem.dropout);
  return arguments;
}

}  // namespace tilescope
