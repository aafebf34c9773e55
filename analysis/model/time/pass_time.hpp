// SPDX-License-Identifier: Apache-2.0
// Predicted time of a pass: CTAs of known clocks on the SMs in the grid's order, beside what L2 and DRAM
// need.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "analysis/model/machine/machine.hpp"
#include "analysis/model/time/step_clocks.hpp"
#include "analysis/records/run_record.hpp"
#include "cpu_ref/kernels/kernel.hpp"

namespace tilescope {

/// Tiles of a block.
struct BlockSteps {
  double computed = 0;               // on the mean of the parts that leave out tiles by themselves
  double masked = 0;                 // of these, that the mask hides a part of
  double most = 0, most_masked = 0;  // of the part that computes the most
  double loaded = 0;                 // that some part computes

  BlockSteps& operator+=(const BlockSteps& other);
  BlockSteps& operator*=(double times);
};

/// From a block's first step to the end of its last one. The parts share the SM; the longest one takes as
/// long as it would alone, and none goes on before its tile is there. [clocks]
double clocks_of_steps(const BlockSteps& steps, const CtaClocks& clocks);

/// Until the last of the pass's blocks ends, handed out as the program says. [clocks]
/// @param steps  of each, in the order in which they begin
/// @param slots  CTAs that run at once
double end_of_ctas(const std::vector<BlockSteps>& steps, std::int64_t slots, const CtaClocks& clocks,
                   HandOut hand_out);

/// Clocks of a step of a CTA whose last block is ragged, over those of the block before it, since it has
/// fewer rows to multiply, or more scores to mask; 1 where none is ragged, and where clocks are not known.
/// @param launched_together  CTAs that run at once, see launched_together()
double ragged_pace(const Kernel& kernel, const TileProgram& program, const Machine& machine,
                   std::int64_t launched_together);

/// What is not known of kernel or machine, as a sentence, of a pass with products that has no predicted time.
std::optional<std::string> lacks_for_prediction(const Kernel& kernel, const TileProgram& program,
                                                const Machine& machine);

/// Of a launch that finds the L2 cold.
/// @param launched_together  CTAs that run at once, see launched_together()
/// @param follows  another pass of its direction
/// @return nothing where the kernel's row or the machine does not say enough: a bound is all that is known
std::optional<PredictedTime> predicted_time(const Kernel& kernel, const TileProgram& program,
                                            const Machine& machine, std::int64_t launched_together,
                                            const PassRecord& pass, bool follows);

}  // namespace tilescope
