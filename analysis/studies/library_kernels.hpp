// SPDX-License-Identifier: Apache-2.0
// Attention kernels of other people's as tile programs: what `explain` found behind their bytes, in the order
// of their grids, with as many CTAs an SM as their launches leave room for.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "analysis/model/machine/machine.hpp"
#include "analysis/records/run_record.hpp"
#include "cpu_ref/kernels/math_unit.hpp"
#include "cpu_ref/schedule/tile_program.hpp"

namespace tilescope {

enum class MaskStratum { full, causal, grouped, window, cross };

/// Of a pass at a head_dim: registers, threads and shared memory of the launch say how many CTAs an SM takes.
struct LibraryLaunch {
  PassName pass;
  int head_dim;
  TileShape tile;
  int ctas_per_sm;
  int threads = 0;                  // of a CTA; 0: as nothing spills
  std::array<int, 3> spilled = {};  // bytes of local memory of a thread: all keys, causal, window
};

struct LibraryKernel {
  std::string_view name;  // as measure_libraries has it
  MathUnit math_unit;
  std::vector<LibraryLaunch> launches;
  std::vector<MaskStratum> forward, backward;  // what it takes; none: it has no such program here
  std::int64_t rows_multiple = 1;              // of its lengths
  BackwardOrder backward_order = BackwardOrder::fused;
  Scan scan = Scan::ascending;
  bool work_counter = false;  // its CTAs stay and ask for their blocks
  /// Q comes at every step, as in CUTLASS's fused attention.
  bool reloads_queries = false;
  /// FlashAttention-4's: CTAs of masked passes come by sections of heads that share 50 MiB, longest first;
  /// the query heads of a group share a tile forward and are CTAs that add to sums of dK and dV backward.
  bool heads_by_sections = false;

  const std::vector<MaskStratum>& masks(Direction direction) const {
    return direction == Direction::forward ? forward : backward;
  }
  std::vector<int> head_dims() const;
};

/// FlashAttention-2, cuDNN and memory-efficient attention of PyTorch 2.11, a plain Triton kernel
/// (analysis/studies/foreign/triton_attention.py) and FlashAttention-4.
/// Sources: local memory is what `cuobjdump -res-usage` says of PyTorch's kernels for sm_90 and lengths that
/// are no multiples of their tiles; tiles, conventions and launches as `explain` and the records of
/// reports/foreign and reports/data/explain-*.json.gz have them; the orders of grids by the libraries' texts
/// where these are published, of cuDNN's unknown and taken as rows of blocks.
std::span<const LibraryKernel> library_kernels();

/// A pass over scores, how many of its CTAs an SM takes, and what a CTA spills.
struct LibraryPass {
  TileProgram program;
  std::int64_t ctas_per_sm = 1;
  std::int64_t spilled_cta_bytes = 0;
};
/// In launch order, without those that touch each element once.
/// @throws BadInput on an invalid problem; std::out_of_range at a head_dim that no launch is known for
std::vector<LibraryPass> library_passes(const LibraryKernel& kernel, const AttentionProblem& problem,
                                        Direction direction);

/// The passes on a machine with pages at random places, as an entry of a record.
RunEntry simulate_library(const LibraryKernel& kernel, const AttentionProblem& problem, Direction direction,
                          const Machine& machine);

}  // namespace tilescope
