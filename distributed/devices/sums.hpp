// SPDX-License-Identifier: Apache-2.0
// The arithmetic between launches: partial outputs merged, partial gradients added, sums rounded. In fp32.
#pragma once

#include <array>
#include <cstdint>

#include "distributed/execution/accumulation_plan.hpp"
#include "gpu/launch/kernel_arguments.hpp"

struct CUstream_st;  // *cudaStream_t

namespace tilescope {

/// Rows of (batch, heads, rows, cols) that a pass goes through.
struct PassRows {
  std::int64_t batch = 1, heads = 1, rows = 0, cols = 0;
};

/// Attention of `rows` query rows, from row `first` of the target on, over some of the keys.
struct OutputPart {
  DeviceTensor out, lse;
  std::int64_t first = 0, rows = 0;
};
struct MergeArguments {
  PassRows extent;
  DeviceTensor out, lse;  // merged in place; an lse of -inf: nothing there yet
  std::array<OutputPart, kMostParts> parts;
  int count = 0;
};
/// Merges parts of element type `dtype` into `out` of the same type, or of fp32. With m the largest lse, row
/// by row: out = sum(exp(lse_i - m) out_i) / sum(exp(lse_i - m)), lse = m + log(sum): no exponential
/// overflows, and parts are rounded once, however many there are.
void launch_merge(const MergeArguments& arguments, ElementType dtype, bool fp32_target, CUstream_st* stream);

/// sums = part, or sums += part, for a part of element type `dtype`.
void launch_add_part(const PassRows& extent, const DeviceTensor& sums, const DeviceTensor& part,
                     ElementType dtype, bool store, CUstream_st* stream);
/// to += from; from = 0 if asked for.
void launch_add_sums(const PassRows& extent, const DeviceTensor& to, const DeviceTensor& from,
                     bool clears_source, CUstream_st* stream);
/// result = factor * sums, rounded.
void launch_round(const PassRows& extent, const DeviceTensor& result, const DeviceTensor& sums,
                  ElementType dtype, float factor, CUstream_st* stream);
void launch_fill(float* data, std::int64_t count, float value, CUstream_st* stream);

}  // namespace tilescope
