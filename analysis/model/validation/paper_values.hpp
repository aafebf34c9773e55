// SPDX-License-Identifier: Apache-2.0
// Numbers that papers print, each with where it stands. Nothing here is computed.
#pragma once

namespace tilescope {

/// FlashAttention (arXiv:2205.14135), Figure 2, left: GPT-2 medium, N = 1024, d = 64, 16 heads, batch 64,
/// A100, forward and backward. Two versions of the paper print different traffic and times.
struct PaperFigure2Left {
  const char* version;
  double standard_gflop, flash_gflop;
  double standard_gigabytes, flash_gigabytes;
  double standard_milliseconds, flash_milliseconds;
};
inline constexpr PaperFigure2Left kPaperFigure2Left[] = {
    {"version 2", 66.6, 75.2, 40.3, 4.4, 41.7, 7.3},
    {"version 1", 66.6, 75.2, 35.3, 4.4, 35.1, 11.7},
};

/// The same figure, middle: HBM accesses of the forward pass against block size. The paper draws them without
/// numbers; these were read off the drawing by a third party, to two digits.
struct PaperFigure2Middle {
  int block_n;  // Bc
  double gigabytes;
};
inline constexpr PaperFigure2Middle kPaperFigure2Middle[] = {{64, 6.6}, {128, 3.4}, {256, 1.7}, {512, 0.9}};

/// FlashAttention-3 (arXiv:2407.08608), section 4.3, table of numerical errors: RMSE of the output against
/// FP64, entries of Q, K, V ~ N(0, 1) + N(0, 100) * Bernoulli(0.001).
struct PaperError {
  const char* dtype;
  const char* method;
  const char* kernel;  // ours that computes as the method does
  double rmse;
};
inline constexpr PaperError kPaperErrors[] = {
    {"fp16", "baseline", "standard, rounded twice", 3.2e-4},
    {"fp16", "FlashAttention-2 and -3", "cpu:flash2", 1.9e-4},
    {"fp8e4m3", "baseline", "standard, rounded twice, a scale a tensor", 2.4e-2},
    {"fp8e4m3", "FlashAttention-3", "cpu:flash2, block scales, incoherent", 9.1e-3},
    {"fp8e4m3", "FlashAttention-3 without block quantisation", "cpu:flash2, a scale a tensor, incoherent",
     9.3e-3},
    {"fp8e4m3", "FlashAttention-3 without incoherent processing", "cpu:flash2, block scales", 2.4e-2},
};

}  // namespace tilescope
