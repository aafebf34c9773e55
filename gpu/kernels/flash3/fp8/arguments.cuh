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

/// Shared memory of a CTA, by address.
template <Flash3Fp8Shape kShape>
struct Flash3Fp8Shared {
  static constexpr Flash3Fp8Layout kLayout{kShape};
  sm90::SharedAddress base;

  using Address = std::uint32_t;
  __device__ __forceinline__ Address at(int offset, int index, int bytes) const {
    return base + offset + index * bytes;
  }
  // Q, item and barriers of a warpgroup: `buffer` is stage * consumers + warpgroup.
  __device__ __forceinline__ Address q(int buffer) const {
    return at(kLayout.q, buffer, kShape.q_tile().bytes());
  }
  __device__ __forceinline__ Address k(int stage) const {
    return at(kLayout.k, stage, kShape.kv_tile().bytes());
  }
  __device__ __forceinline__ Address v(int stage) const {
    return at(kLayout.v, stage, kShape.kv_tile().bytes());
  }
  __device__ __forceinline__ Address transposed(int stage) const {
    return at(kLayout.transposed, stage, kShape.transposed_tile().bytes());
  }
  __device__ __forceinline__ Address q_full(int buffer) const { return at(kLayout.q_full, buffer, 8); }
  __device__ __forceinline__ Address q_empty(int buffer) const { return at(kLayout.q_empty, buffer, 8); }
  __device__ __forceinline__ Address k_full(int stage) const { return at(kLayout.k_full, stage, 8); }
  __device__ __forceinline__ Address k_empty(int stage) const { return at(kLayout.k_empty, stage, 8); }
  __device__ __forceinline__ Address v_full(int stage) const { return at(kLayout.v_full, stage, 8); }
  __device__ __forceinline__ Address v_empty(int stage) const { return at(kLayout.v_empty, stage, 8); }
  __device__ __forceinline__ Address transposed_full(int stage) const {
    return at(kLayout.transposed_full, stage, 8);
  }
  __device__ __forceinline__ Address transposed_empty(int stage) const {
    return at(kLayout.transposed_empty, stage, 8);
  }
};

}  // namespace detail

}  // namespace tilescope::gpu
