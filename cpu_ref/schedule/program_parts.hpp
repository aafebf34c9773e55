// SPDX-License-Identifier: Apache-2.0
// What the programs of every algorithm are built of.
#pragma once

#include "cpu_ref/schedule/tile_program.hpp"

namespace tilescope {

constexpr Operand load(TensorName tensor) { return {tensor, AccessKind::load}; }
constexpr Operand store(TensorName tensor) { return {tensor, AccessKind::store}; }
constexpr Operand reduce(TensorName tensor) { return {tensor, AccessKind::reduce}; }
constexpr Operand store_then_reduce(TensorName tensor) { return {tensor, AccessKind::store_then_reduce}; }

/// A pass without its accesses and its grid.
TileProgram make_pass(PassName name, const AttentionProblem& problem, Axis axis,
                      const ProgramOptions& options);
/// An elementwise pass, on the tiles of the pass that it serves.
TileProgram make_elementwise_pass(PassName name, PassName served, const AttentionProblem& problem, Axis axis,
                                  const ProgramOptions& options);
/// Rounds fp32 sums of the q axis (or the kv axis) to the element type.
TileProgram convert_pass(const AttentionProblem& problem, PassName served, Axis axis,
                         std::vector<Operand> loads, std::vector<Operand> stores,
                         const ProgramOptions& options);
/// Loads what the problem's modifiers need beside the tiles of a pass over scores.
void load_score_operands(TileProgram& program);
/// Sums a learned sink's gradient, in a pass that has delta and LSE.
void sum_sink_gradient(TileProgram& program);

inline constexpr int kRowsOfSums = 16;  // of a CTA that clears or rounds those of few tiles
/// Lets a pass that rounds dQ add the slots of it first, which it walks through; and one that rounds dK and
/// dV those of so many CTAs that share a kv tile.
void add_dq_slots(TileProgram& convert);
void add_dkdv_slots(TileProgram& convert, int slots);

// Passes of an algorithm, whose grids are not set.
std::vector<TileProgram> standard_forward_programs(const AttentionProblem& problem,
                                                   const ProgramOptions& options);
std::vector<TileProgram> standard_backward_programs(const AttentionProblem& problem,
                                                    const ProgramOptions& options);
std::vector<TileProgram> flash1_forward_programs(const AttentionProblem& problem,
                                                 const ProgramOptions& options);
std::vector<TileProgram> flash1_backward_programs(const AttentionProblem& problem,
                                                  const ProgramOptions& options);

}  // namespace tilescope
