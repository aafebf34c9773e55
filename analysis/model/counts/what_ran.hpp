// SPDX-License-Identifier: Apache-2.0
// What ran, as a record keeps it: written by whoever makes one, guessed by nobody.
#pragma once

#include "analysis/records/run_record.hpp"
#include "cpu_ref/kernels/kernel.hpp"

namespace tilescope {

/// A run of the kernel, without passes.
inline RunEntry entry_of(const Kernel& kernel, const AttentionProblem& problem) {
  RunEntry run;
  run.problem = problem;
  run.kernel = kernel.name;
  run.algorithm = kernel.algorithm;
  run.math_unit = kernel.math_unit;
  run.runs_on = kernel.on_gpu() ? "gpu" : "cpu";
  if (kernel.rung > 0) run.rung = kernel.rung;
  return run;
}

/// The order whose gradients a pass of FlashAttention-2 computes, if any.
inline std::optional<BackwardOrder> backward_order(const TileProgram& program) {
  using enum BackwardOrder;
  switch (program.name) {
    case PassName::dkdv:
    case PassName::dq:
      return program.single_launch ? single_launch : split;
    case PassName::dkdvdq:
      if (program.whole_head) return std::nullopt;  // FlashAttention-1's
      return program.ordered ? ordered : fused;
    case PassName::dqdkdv:
      return q_outer;
    default:
      return std::nullopt;
  }
}

/// Adds the choices of a program to those of a pass, which may stand for several programs.
inline void note_choices(PassChoices& choices, const TileProgram& program) {
  if (program.diagonal_slices > 1) choices.diagonal_slices = program.diagonal_slices;
  if (program.fp8_sums != Fp8Sums::fp32) choices.fp8_sums = to_string(program.fp8_sums);
  if (program.variant != Variant::own) choices.variant = to_string(program.variant);
  if (const auto order = backward_order(program)) choices.backward = order;
  if (program.dq_start != DqStart::cleared) choices.dq_start = to_string(program.dq_start);
  if (program.query_splits() > 1) {
    choices.query_splits = program.query_splits();
  } else if (program.splits.count > 1) {
    choices.splits = policy_of(program.splits, program.tile.block_n);
  }
  if (program.pack_gqa) choices.pack_gqa = true;
  if (program.launch.warps > 0) choices.warps = program.launch.warps;
  if (program.launch.stages > 0) choices.stages = program.launch.stages;
}

}  // namespace tilescope
