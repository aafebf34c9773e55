// SPDX-License-Identifier: Apache-2.0
// The registry of the kernels that run on this CPU.
#include <array>

#include "cpu_ref/kernels/cpu_kernels.hpp"
#include "cpu_ref/kernels/kernel.hpp"

namespace tilescope {
namespace {

constexpr FeatureSet kNarrowTypes{Feature::fp8e4m3, Feature::fp8e5m2};
constexpr FeatureSet kBackwardFeatures{Feature::fp32,      Feature::fp16,         Feature::bf16,
                                       Feature::causal,    Feature::window,       Feature::grouped_heads,
                                       Feature::dropout,   Feature::signed_scale, Feature::key_padding,
                                       Feature::mask_rules};
Capabilities capabilities_of(Algorithm algorithm) {
  FeatureSet forward = kBackwardFeatures | kNarrowTypes | FeatureSet{Feature::paged_keys, Feature::fp8_keys},
             backward = kBackwardFeatures;
  if (algorithm != Algorithm::flash1) {
    forward = forward | score_mod_features() |
              FeatureSet{Feature::value_dim, Feature::descales, Feature::shared_kv};
    backward = backward | score_mod_features() | FeatureSet{Feature::value_dim};
  }
  if (algorithm == Algorithm::flash2) {
    forward = forward | FeatureSet{Feature::split_keys, Feature::packed_heads};
    backward = backward | FeatureSet{Feature::query_splits};
  }
  return {.forward = forward, .backward = backward};
}

/// The tiles that a kernel takes by itself. Speed on the CPU hardly depends on them: of 36 shapes from 32x32
/// to 256x256, these were within 5 % of the fastest for fp32 at head_dim 32 ... 256 (Zen 5, AVX-512). They do
/// not depend on the number of threads, so that results do not either.
template <Algorithm algorithm>
ProgramOptions cpu_options(const AttentionProblem& problem) {
  // 64 rows of accumulators and 128 keys: with fp32 tiles of 128 columns, Q^T, O and S take 32 KiB each, K
  // and V 64 KiB each, together no more than the smallest L2 caches. Twice as wide heads get half as many
  // keys, but for bf16, which takes half as much.
  const bool wide = problem.head_dim > 128 && problem.dtype != ElementType::bf16;
  const TileShape tile = {64, wide ? 64 : 128};
  ProgramOptions options = ProgramOptions::with_tile(tile);
  // FlashAttention-1 reads and writes O once for each kv tile, so that wider ones pay.
  if (algorithm == Algorithm::flash1) options[PassName::forward].tile.block_n *= 2;
  // Narrow K and V are widened once for each q tile, so that taller ones pay.
  if (algorithm == Algorithm::flash2 && problem.dtype != ElementType::fp32)
    options[PassName::forward].tile.block_m = 128;
  if (algorithm == Algorithm::flash2 && problem.descales.by_block())
    options[PassName::forward].tile = problem.descales.block;
  // Five matmuls instead of split's seven; its reductions are ordered, so that it repeats bitwise as well.
  options.backward = BackwardOrder::fused;
  return options;
}

/// Checks what a caller could have forgotten, then runs the direction.
template <Algorithm algorithm, auto forward, auto backward>
void run(const ProgramOptions& options, Direction direction, TensorSet& tensors, TileObserver* observer) {
  if (const auto reason = missing_feature(capabilities_of(algorithm), tensors.problem(), direction)) {
    throw BadInput("a CPU kernel " + *reason);
  }
  direction == Direction::forward ? forward(options, tensors, observer)
                                  : backward(options, tensors, observer);
}

}  // namespace

std::span<const Kernel> cpu_kernels() {
  static const std::array<Kernel, 3> kernels = {
      {{.name = "cpu:standard",
        .summary = "attention with S and P in memory, the papers' baseline",
        .algorithm = Algorithm::standard,
        .rung = 1,
        .backward_orders = {},
        .can = capabilities_of(Algorithm::standard),
        .default_options = cpu_options<Algorithm::standard>,
        .run = run<Algorithm::standard, standard_forward, standard_backward>},
       {.name = "cpu:flash1",
        .summary = "FlashAttention: K and V outside, O re-read and re-written each step",
        .algorithm = Algorithm::flash1,
        .rung = 2,
        .backward_orders = {},
        .can = capabilities_of(Algorithm::flash1),
        .default_options = cpu_options<Algorithm::flash1>,
        .run = run<Algorithm::flash1, flash1_forward, flash1_backward>},
       {.name = "cpu:flash2",
        .summary = "FlashAttention-2: Q outside, O kept on chip, LSE for the backward pass",
        .algorithm = Algorithm::flash2,
        .rung = 3,
        .backward_orders = {BackwardOrder::fused, BackwardOrder::split, BackwardOrder::q_outer,
                            BackwardOrder::single_launch},
        .can = capabilities_of(Algorithm::flash2),
        .fp8_sums = {Fp8Sums::fp32, Fp8Sums::two_level, Fp8Sums::fast},
        .default_options = cpu_options<Algorithm::flash2>,
        .run = run<Algorithm::flash2, flash2_forward, flash2_backward>,
        .smallest_part = 1}}};
  return kernels;
}

}  // namespace tilescope
