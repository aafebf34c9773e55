// SPDX-License-Identifier: Apache-2.0
// Somebody else's memory as the tensors of a problem: copied in, computed on, copied out.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <tuple>

#include "cpu_ref/kernels/kernel.hpp"

namespace tilescope::python {

/// Address and strides [elements] of a (B, H, N, D) array in host memory; its extents and its element type
/// are those of the problem's tensor. Strides may be zero or negative.
using HostArray = std::tuple<std::uintptr_t, std::array<std::int64_t, 4>>;

/// Of q, k and v, as fp32 (B, H or Hkv, 1, blocks); address 0 where the problem tells them.
using GivenDescales = std::array<HostArray, 3>;
/// Numbers of query heads, (1, H, 1, 1) fp32: ALiBi's slopes and learned sinks. Without an address, those
/// that random inputs have.
using GivenNumbers = std::array<HostArray, 2>;

/// Where keys and values lie in pages: the address of int32 entries (batch, entries of a batch entry), how
/// many those are, and the pages of the pools that k and v are then, (pages, Hkv, page_size, D).
using GivenPages = std::tuple<std::uintptr_t, std::int64_t, std::int64_t>;

/// Which kernel, and how it cuts its tiles; nothing: the kernel's own choice.
struct KernelUse {
  std::string kernel;                      // empty: what the model takes by default
  std::optional<std::array<int, 2>> tile;  // block_m, block_n
  std::optional<std::string> backward;     // order of the backward pass
  std::optional<std::string> order = {};   // in which CTAs are issued
  std::optional<std::string> scan = {};    // in which a CTA walks its tiles
  std::optional<int> diagonal_slices = {};
};

/// A kernel's choices with those of `use` in their place. @throws BadInput
ProgramOptions options_of(const Kernel& kernel, const AttentionProblem& problem, const KernelUse& use);

/// @throws BadInput for an entry that is read and names no page
KvPageTable page_table_of(const AttentionProblem& problem, const GivenPages& pages);

/// Writes `out` (B, H, Nq, D) and, unless its address is 0, `lse` (B, H, Nq, 1).
/// @return how long the kernel took [s], as of the next: the call's other costs are to be held against it
/// @throws BadInput where the kernel refuses the problem, MachineLacks where it cannot run
double attention_forward(const AttentionProblem& problem, const KernelUse& use, const HostArray& q,
                         const HostArray& k, const HostArray& v, const HostArray& out, const HostArray& lse,
                         const GivenDescales& descales, const GivenNumbers& numbers, const GivenPages& pages);

/// Writes the gradients dq, dk, dv and, of learned sinks, dsink (1, H, 1, 1) of what attention_forward()
/// gave. A kernel whose backward pass needs more than `out` and `lse` makes that first.
double attention_backward(const AttentionProblem& problem, const KernelUse& use, const HostArray& dout,
                          const HostArray& q, const HostArray& k, const HostArray& v, const HostArray& out,
                          const HostArray& lse, const HostArray& dq, const HostArray& dk, const HostArray& dv,
                          const GivenNumbers& numbers, const HostArray& dsink);

/// The judge's results in fp64; those at address 0 are left out. `dout` at address 0: forward alone.
void exact(const AttentionProblem& problem, const HostArray& q, const HostArray& k, const HostArray& v,
           const HostArray& dout, const HostArray& out, const HostArray& lse, const HostArray& dq,
           const HostArray& dk, const HostArray& dv, const GivenDescales& descales,
           const GivenNumbers& numbers, const HostArray& dsink);

}  // namespace tilescope::python
