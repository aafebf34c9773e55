// SPDX-License-Identifier: Apache-2.0
// What a step of a CTA asks of the units of its SM, in clocks: from the tile program, the row of the kernel
// and the machine, without any number of a kernel.
#pragma once

#include <optional>
#include <string>

#include "analysis/model/machine/machine.hpp"
#include "cpu_ref/kernels/kernel.hpp"

namespace tilescope {

/// Clocks of the units of an SM. Warps wait for the first three; the copy engine and the stores that nobody
/// waits for use the others beside them.
struct UnitClocks {
  double tensor = 0;      // matrix products
  double arithmetic = 0;  // of scores: exponentials, maxima, sums, conversions
  double operands = 0;    // bytes of shared memory that WGMMAs take while they multiply
  double shared = 0;      // its other bytes
  double in = 0;          // bytes from L2
  double out = 0;         // bytes to L2
  double l2 = 0;          // both, of the SM's share of the L2's rate
};

/// How a CTA of a pass over scores goes through its tiles. [clocks]
struct CtaClocks {
  UnitClocks step;          // alone
  double between = 0;       // from a step to the next while the SM is full
  double masked = 0;        // so much more where a step's scores are masked one by one
  double alone = 0;         // of a group of warps, one to each quarter of the SM, that has it to itself
  double masked_alone = 0;  // so much more, likewise
  /// Of a group likewise, forward, if it begins its products one after the other: its arithmetic runs beside
  /// the second alone, and it waits for two operands.
  double chain = 0;
  double loaded = 0;  // from a tile's arrival to the next one's
  double begin = 0;   // of a block, before its first step: what it waits for until its first tiles are there
  double end = 0;     // behind its last: until what it has computed is stored
  double seen = 0;    // in an ordered pass, from when sums are out until another CTA has seen that they are
  double once = 0;    // before the first block of a CTA that stays, and behind its last
  int skipping_rows = 0;          // see WarpWork
  bool masks_keys_alone = false;  // rows beyond the matrix ask for no mask
  double multiplied = 0;          // of a step, at the full rate of the tensor cores
};

/// What is not known of kernel or machine that clocks are made of, as a sentence; nothing where all is.
std::optional<std::string> lacks_for_clocks(const Kernel& kernel, const TileProgram& program,
                                            const Machine& machine);

/// @param ctas_at_once  that run at once, as evenly over the SMs as they can
/// @return nothing where lacks_for_clocks() says something
std::optional<CtaClocks> cta_clocks(const Kernel& kernel, const TileProgram& program, const Machine& machine,
                                    std::int64_t ctas_at_once);

/// A pass without products: what it takes is its bytes and its waits for them.
bool is_elementwise(const TileProgram& program);

/// Of a CTA of such a pass: as often as its threads ask for 16 bytes each until they have its rows, they wait
/// for them; of one that combines splits, for their LSEs and then for their results.
double clocks_of_elementwise(const Kernel& kernel, const TileProgram& program);

}  // namespace tilescope
