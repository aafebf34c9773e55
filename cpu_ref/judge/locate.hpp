// SPDX-License-Identifier: Apache-2.0
// Where a kernel first goes wrong: the first tile access that its program does not have, the first tile and
// quantity whose sum is not what it should be, the first output element out of bounds.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cpu_ref/judge/equivalence.hpp"
#include "cpu_ref/launch/tile_observer.hpp"
#include "cpu_ref/schedule/tile_program.hpp"

namespace tilescope {

/// Where a kernel first goes wrong: the pass, what is wrong in it, and the tile.
struct Divergence {
  PassName pass = PassName::forward;
  std::string quantity;     // "access", "visit", a member of TileState, or a tensor
  int batch = 0, head = 0;  // of the access's tensor, or the query head
  int m_block = -1, n_block = -1;
  TileShape tile;      // of the pass: what m_block and n_block count
  std::string detail;  // what was seen and what should have been
};

/// "pass forward, batch 0, head 1, m_block 2 (queries 32 ... 47), n_block 0 (keys 0 ... 23): probs: ..."
std::string describe(const Divergence& divergence, const AttentionProblem& problem);

/// The first access of `log` that differs from the program's list, or is missing, or too much.
std::optional<Divergence> first_wrong_access(const TileProgram& program, const PassLog& log);

/// The first visited tile of `log` that differs from the program's list, or is missing, or too much. Passes
/// that do not multiply work on whole rows and visit no tiles.
std::optional<Divergence> first_wrong_visit(const TileProgram& program, const PassLog& log);

/// The first tile whose state is not what fp64 gives for the same tiles in the same order; after them the
/// first row of sums in memory that is not what the tiles add up to.
/// @param tensors, arithmetic  as TileReplay takes them
std::optional<Divergence> first_wrong_state(const TileProgram& program, const PassLog& log,
                                            const TensorSet& tensors, const Arithmetic& arithmetic = {});

/// The first tensor that the pass leaves as the direction's later passes take it, and that is not what it
/// should be: an output or the fp32 sums behind one by the judge's bound, delta by that of its terms. So the
/// pass that sums dQ is told from the one that rounds it.
/// @param programs  all of the direction, `program` among them
std::optional<Divergence> first_wrong_tensor(const Reference& reference, const TileProgram& program,
                                             const std::vector<TileProgram>& programs);

/// In the order of the kernel's passes: its first wrong access, wrong tile (of standard attention: of a
/// stored matrix), or tensor out of bounds; nothing if there is none.
/// @param reference  as the observed run left it
std::optional<Divergence> first_divergence(const Reference& reference, const Kernel& kernel,
                                           const ProgramOptions& options, Direction direction,
                                           const TileObserver& observer);

/// Runs the kernel under observation and gives its first divergence.
std::optional<Divergence> locate(Reference& reference, const Kernel& kernel, const ProgramOptions& options,
                                 Direction direction);

}  // namespace tilescope
