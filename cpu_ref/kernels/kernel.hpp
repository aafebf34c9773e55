// SPDX-License-Identifier: Apache-2.0
// One row of a kernel registry: what a kernel is called, what it can, on what, which program it executes, and
// how to run it. The CPU kernels' rows are in cpu_ref/kernels/cpu_kernels.cpp, a GPU kernel's in its folder
// of gpu/kernels/.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cpu_ref/kernels/chip.hpp"
#include "cpu_ref/kernels/features.hpp"
#include "cpu_ref/kernels/math_unit.hpp"
#include "cpu_ref/kernels/warp_work.hpp"
#include "cpu_ref/launch/tile_observer.hpp"
#include "cpu_ref/numeric/tensor.hpp"
#include "cpu_ref/schedule/problem.hpp"
#include "cpu_ref/schedule/tile_program.hpp"
#include "cpu_ref/schedule/visit_tables.hpp"

namespace tilescope {

/// What the CTAs of one launch take of a GPU's SM.
struct LaunchShape {
  int threads_per_cta = 0;
  std::int64_t shared_bytes = 0;  // dynamic shared memory of a CTA
  int ctas_per_sm = 0;            // that its registers and threads leave room for; 0: not known
  int spilled_bytes = 0;          // local memory of a thread that holds registers; 0: none, or not known
  bool operator==(const LaunchShape&) const = default;
};

/// One of the ways in which a GPU kernel is compiled for a pass.
struct PassChoice {
  TileShape tile;
  PassLaunch launch = {};
  bool operator==(const PassChoice&) const = default;
};

/// When a forward pass raises a row's maximum, to which P is relative, and rescales what it has summed.
enum class Rescaling : std::uint8_t {
  always,       // at each larger score, as the CPU kernels do
  conditional,  // once P would leave its range: its roundings are others than a mirror's
};

/// How a kernel's arithmetic is other than its mirror's beyond the order of fp32 sums.
struct Arithmetic {
  Rescaling rescaling = Rescaling::always;
  /// The error of P V's sums in fp8, relative to the sum of its terms' absolute values. Its mirror cuts sums
  /// as it does (Fp8Sums); but where rescaling is conditional, the two round P to other numbers and so cut
  /// other bits.
  double fp8_sum_error = 0;
  /// S and dP are stored in the element type, and their sums have another order than a mirror's: some are
  /// rounded to the other side.
  bool stores_scores = false;

  /// Where rescaling is conditional: no P is larger, relative to the maximum that its row keeps; in 16 bits,
  /// e4m3 and e5m2.
  double largest_prob = 1, largest_e4m3_prob = 1, largest_e5m2_prob = 1;
  /// The power of 2 that a P of 1 is kept as in e4m3; none: its mirror's.
  std::optional<int> e4m3_prob_log2 = std::nullopt;

  double sum_error(ElementType type) const { return is_fp8(type) ? fp8_sum_error : 0.0; }
  double largest_kept_prob(ElementType type) const {
    return type == ElementType::fp8e4m3   ? largest_e4m3_prob
           : type == ElementType::fp8e5m2 ? largest_e5m2_prob
                                          : largest_prob;
  }
};

struct Kernel {
  std::string_view name;     // "cpu:flash2"
  std::string_view summary;  // one line for `tilescope list kernels`
  Algorithm algorithm;
  MathUnit math_unit = MathUnit::simd;
  int rung = 0;           // of the ladder of its room, from 1; 0: stands beside it
  bool on_ranks = false;  // launched by the GPUs of a distributed program, each on its part of the problem
  std::vector<BackwardOrder> backward_orders;  // the first is the default; empty: algorithm has only one
  Capabilities can;
  std::vector<Fp8Sums> fp8_sums = {Fp8Sums::fp32};  // the first is the default
  std::vector<Variant> variants = {Variant::own};   // of its forward pass
  /// The tile shapes and orders that the kernel takes by itself.
  ProgramOptions (*default_options)(const AttentionProblem&);
  /// Runs the passes of one direction. Forward reads q, k, v and allocates and writes out, lse (flash1 also
  /// row_max, row_sum). Backward reads those and dout, and allocates and writes dq, dk, dv.
  /// Null where this build or machine cannot run the kernel.
  void (*run)(const ProgramOptions&, Direction, TensorSet&, TileObserver*);

  // GPU kernels have these; null for those of the CPU, which take any tile.
  /// The tile shapes that a pass is compiled for on a problem, the kernel's own choice first.
  std::vector<TileShape> (*tile_choices)(const AttentionProblem&, PassName) = nullptr;
  /// The same with the warps and stages that the tuner can choose; each tile first as the kernel runs it by
  /// itself.
  std::vector<PassChoice> (*pass_choices)(const AttentionProblem&, PassName) = nullptr;
  /// Threads and shared memory of a pass's CTAs.
  LaunchShape (*launch_shape)(const TileProgram&, const Chip&) = nullptr;
  /// Whether a pass may begin before the one before it has ended, for which it waits by itself; null: none.
  bool (*begins_early)(const TileProgram&) = nullptr;
  /// How the warps of a pass over scores share its tiles; null: not known, so that no time is predicted.
  WarpWork (*warp_work)(const TileProgram&) = nullptr;
  /// Which operands of a pass the copy engine loads, and how; null: none.
  std::vector<Boxes> (*boxes)(const TileProgram&) = nullptr;
  /// TileProgram::bit_reads of a pass over scores; null: 0.
  int (*bit_reads)(const TileProgram&) = nullptr;
  ChipRange chips = {};
  /// The problems for which it stands before the ladder; null: none.
  bool (*first_choice)(const AttentionProblem&) = nullptr;
  /// What else it cannot do forward, or backward, as half a sentence; null: nothing.
  std::optional<std::string> (*forward_lack)(const AttentionProblem&, const ProgramOptions&) = nullptr;
  std::optional<std::string> (*backward_lack)(const AttentionProblem&, const ProgramOptions&) = nullptr;
  Arithmetic arithmetic = {};
  /// Tiles that the mask cuts can be cut finer: into parts of so many rows and keys, or a multiple of it.
  /// 0: they are computed whole.
  int smallest_part = 0;
  FeatureSet lacks_in_parts = {};  // what it can do in whole tiles alone

  std::vector<TileProgram> programs(Direction direction, const AttentionProblem& problem,
                                    const ProgramOptions& options) const {
    std::vector<TileProgram> all = build_programs(algorithm, direction, problem, options);
    for (TileProgram& program : all) {
      if (boxes) program.boxes = boxes(program);
      if (bit_reads && !program.phases.empty()) program.bit_reads = bit_reads(program);
      if (program.bit_reads > 0) program.words.pass = program.words.pass + visit_words(program);
    }
    return all;
  }
  bool on_gpu() const { return launch_shape != nullptr; }
  /// Why this kernel cannot run the problem in that direction, as half a sentence ("computes fp32 only, not
  /// fp16"), or nothing if it can.
  std::optional<std::string> refusal(const AttentionProblem& problem, Direction direction,
                                     const ProgramOptions& options) const;
  /// Why its passes cannot run on a chip, as half a sentence, or nothing if they can. Precondition: no
  /// refusal.
  std::optional<std::string> chip_lack(const Chip& chip, const AttentionProblem& problem, Direction direction,
                                       const ProgramOptions& options) const;
};

/// The default options for one of several launches that add to the same dQ, which is cleared apart.
ProgramOptions options_with_shared_dq(const Kernel& kernel, const AttentionProblem& problem);

/// The order called `name`. @throws BadInput for one that the kernel has not
BackwardOrder backward_order_of(const Kernel& kernel, const std::string& name);

/// The kernels that run on this CPU: cpu:standard, cpu:flash1, cpu:flash2.
std::span<const Kernel> cpu_kernels();

}  // namespace tilescope
