// SPDX-License-Identifier: Apache-2.0
// A kernel's run on a machine model, as an entry of a record: closed forms and replay of every pass.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "analysis/model/machine/machine.hpp"
#include "analysis/records/run_record.hpp"
#include "cpu_ref/kernels/kernel.hpp"

namespace tilescope {

struct SimulationOptions {
  std::optional<std::int64_t> l2_bytes = std::nullopt;     // of LRU; default: the machine's L2
  std::optional<std::int64_t> ctas_per_sm = std::nullopt;  // default: what the kernel's CTAs leave room for
  std::optional<std::int64_t> spilled_cta_bytes =
      std::nullopt;  // of registers; default: what the kernel says
  /// Where the tensors lie. An L2 that is simulated as LRU knows no addresses, and moves the same.
  PagePlacement pages = PagePlacement::contiguous;
  bool replay = true;   // without, closed forms alone
  bool predict = true;  // the passes' times too, where the kernel's structure is known
  /// DRAM bytes of a GPU kernel have intervals, where counters judged the replay of the machine's L2.
  bool dram_intervals = false;
  bool l2_curve = false;                  // DRAM bytes of LRU caches of every size as well
  std::function<void()> on_retired = {};  // after each replayed CTA, for progress
};

/// A pass of one direction.
struct PlannedPass {
  Direction direction;
  TileProgram program;
};

/// How many of a pass's CTAs run at once, as the kernel launches them: by the shared memory and warps that it
/// takes on the machine's chip, or on sm_90 where that is not known; a CPU kernel by what its tiles need.
std::int64_t launched_together(const Kernel& kernel, const TileProgram& program, const Machine& machine);

/// `options` with what a machine decides, unless they say it already. head_swizzled takes as many heads to an
/// L2 swizzle as share the machine's effective L2 with their K and V: the largest power of two of key/value
/// heads, times the query heads that read each (FlashAttention-3, hopper/tile_scheduler.hpp). A sawtooth scan
/// turns with each wave of co-resident CTAs of the direction's first pass that has inner tiles. Automatic
/// splits fill its SMs.
ProgramOptions options_on(const Machine& machine, const Kernel& kernel, const AttentionProblem& problem,
                          Direction direction, ProgramOptions options);

/// The passes of the kernel in launch order, with options_on(machine).
/// @throws BadInput on an invalid problem or tile
std::vector<PlannedPass> plan_passes(const Kernel& kernel, const AttentionProblem& problem,
                                     std::span<const Direction> directions, const ProgramOptions& options,
                                     const Machine& machine);

/// Name, tile, FLOPs and closed form of a pass: what is known of it without running or replaying it.
/// @throws BadInput where counts overflow
PassRecord counted_pass(Direction direction, const TileProgram& program);

/// What a launch does with the registers that its compiler could not keep. [bytes]
struct SpilledRegisters {
  std::int64_t cta_bytes = 0;  // of a CTA: local memory of a thread times threads
  std::int64_t ctas = 0, co_resident_ctas = 1;
};

/// DRAM writes of spilled registers [bytes].
///
/// A CTA stores them once and those after it on its SM store theirs over them. So each line is written back
/// at least once, when the launch ends, and once more whenever the L2 has taken in as many bytes as it keeps
/// dirty: by the next CTA all of them where a wave of CTAs moves that much, and in proportion where it moves
/// less. Source: counters of gpu:flash2-mma and FlashAttention-2 on H200s (reports/prediction/causes.md).
/// @param moved_bytes  that the launch reads from DRAM and writes there for its tiles
/// @param kept_bytes  that stay dirty in the L2
std::int64_t spilled_write_bytes(const SpilledRegisters& spilled, std::int64_t moved_bytes,
                                 std::int64_t kept_bytes);

/// Counts and, unless told not to, replays each pass.
/// @throws BadInput where counts overflow, MachineLacks where a replay does not fit memory
RunEntry simulate_run(const Kernel& kernel, const AttentionProblem& problem,
                      std::span<const PlannedPass> passes, const Machine& machine,
                      const SimulationOptions& options = {});

}  // namespace tilescope
