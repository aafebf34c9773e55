// SPDX-License-Identifier: Apache-2.0
// The registry of the kernels that run on this CPU.
#include <array>

#include "cpu_ref/flash1_attention.hpp"
#include "cpu_ref/flash2_attention.hpp"
#include "cpu_ref/kernel.hpp"
#include "cpu_ref/standard_attention.hpp"

namespace tilescope {
namespace {

std::optional<std::string> cpu_refusal(const AttentionProblem& problem, Direction direction,
                                       const ProgramOptions&) {
  if (direction == Direction::forward || !is_fp8(problem.dtype)) return std::nullopt;
  return "no kernel has a backward pass for " + std::string(to_string(problem.dtype)) +
         "; fp32, fp16 and bf16 have one, and the fp8 types run forward";
}

ProgramOptions cpu_options(const AttentionProblem&) {
  ProgramOptions options = ProgramOptions::with_tile({64, 64});
  options.backward = BackwardOrder::fused;
  return options;
}

/// Checks what a caller could have forgotten, then runs the direction.
template <auto forward, auto backward>
void run(const ProgramOptions& options, Direction direction, TensorSet& tensors, TileObserver* observer) {
  if (const auto reason = cpu_refusal(tensors.problem(), direction, options)) throw BadInput(*reason);
  direction == Direction::forward ? forward(options, tensors, observer)
                                  : backward(options, tensors, observer);
}

}  // namespace

std::span<const Kernel> cpu_kernels() {
  static const std::array<Kernel, 3> kernels = {
      {{"cpu:standard",
        "attention with S and P in memory, the papers' baseline",
        Algorithm::standard,
        {},
        cpu_refusal,
        cpu_options,
        run<standard_forward, standard_backward>},
       {"cpu:flash1",
        "FlashAttention: K and V outside, O re-read and re-written each step",
        Algorithm::flash1,
        {},
        cpu_refusal,
        cpu_options,
        run<flash1_forward, flash1_backward>},
       {"cpu:flash2",
        "FlashAttention-2: Q outside, O kept on chip, LSE for the backward pass",
        Algorithm::flash2,
        {BackwardOrder::fused, BackwardOrder::split, BackwardOrder::rows},
        cpu_refusal,
        cpu_options,
        run<flash2_forward, flash2_backward>}}};
  return kernels;
}

}  // namespace tilescope
