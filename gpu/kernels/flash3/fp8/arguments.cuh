// SPDX-License-Identifier: Apache-2.0
// What flash3's forward pass in fp8 is launched with besides, and a CTA's shared memory by address.
#pragma once

#include "gpu/kernels/flash3/forward/arguments.cuh"
#include "gpu/kernels/flash3/fp8/shapes.hpp"

namespace tilescope::gpu {

/// One number for so many query heads that follow each other, or one for each of their tiles. None is
/// negative; of V, one below 1e-20 counts as that.
struct Flash3Descale : DeviceDescales {
  __device__ __forceinline__ float at(int batch_head, int block) const {
    return data ? __ldg(data + batch_head / heads * blocks + (blocks > 1 ? block : 0)) : 1.0f;
  }
};

struct Flash3Fp8Arguments : Flash3ForwardArguments {
  Flash3Descale descale_q, descale_k, descale_v;
};

namespace detail {

/// Shared memory of a CTA, and its operands' pipes, which each thread sees from its own side.
template <Flash3Fp8Shape kShape>
struct Flash3Fp8Shared {
  static constexpr Flash3Fp8Layout kLayout{kShape};
  sm90::SharedAddress base;

  /// Q with its item, of each of the warpgroups.
  __device__ __forceinline__ auto q(int group = 0) const { return sm90::Pipe<kLayout.q>(base, group); }
  __device__ __forceinline__ auto k() const { return sm90::Pipe<kLayout.k>(base); }
  /// As it was loaded, and as the WGMMAs take it.
  __device__ __forceinline__ auto v() const { return sm90::Pipe<kLayout.v>(base); }
  __device__ __forceinline__ auto transposed() const { return sm90::Pipe<kLayout.transposed>(base); }
};

}  // namespace detail

}  // namespace tilescope::gpu
