// SPDX-License-Identifier: Apache-2.0
// Which work item a CTA has: the one place where a kernel asks for its number; and what of the matrix is its
// batch entry's.
#pragma once

#include <type_traits>

#include "gpu/launch/kernel_arguments.hpp"

namespace tilescope {

/// Unsigned by default, which spares CUDA-core kernels a dozen registers that the signs of divisions take;
/// those of the tensor-core kernels are counted with a signed one.
template <typename Index = unsigned>
__device__ inline Index work_item() {
  return static_cast<Index>(blockIdx.x);
}

/// What the CTA owns in a pass whose grid counts query heads, and in one that counts key/value heads.
/// @param blocks  of the owned axis: one, or all of them where one CTA works through a whole head
template <typename Index = unsigned>
__device__ inline CtaWork query_work(const KernelArguments& args, int blocks = 1) {
  return cta_work(args.grid, {args.heads, args.heads_kv}, CtaHeads::query, blocks, work_item<Index>());
}
template <typename Index = unsigned>
__device__ inline CtaWork kv_work(const KernelArguments& args, int blocks = 1) {
  return cta_work(args.grid, {args.heads, args.heads_kv}, CtaHeads::kv, blocks, work_item<Index>());
}

/// The keys that the queries of a batch entry see: where K and V end, which tiles are visited, what a mask
/// leaves. The gradients of padding are written as well, so that they end with the matrix, at args.band.
/// @tparam kPadding  an instance that knows padding; the others keep the band in constant memory
template <bool kPadding>
__device__ __forceinline__ std::conditional_t<kPadding, VisibleBand, const VisibleBand&> batch_band(
    const KernelArguments& args, int batch) {
  if constexpr (kPadding) {
    // Hidden from the optimiser: read again where it is needed, which is seldom, the band takes no registers.
    asm volatile("" : "+r"(batch));
    if (args.key_lengths) return args.band.with_keys(__ldg(args.key_lengths + batch));
  }
  return args.band;
}

}  // namespace tilescope
