// SPDX-License-Identifier: Apache-2.0
// fp32 sums into global memory, without a result to wait for. The order of the adds is free.
#pragma once

namespace tilescope {

/// Four floats at a 16-byte aligned address; one instruction from sm_90 on.
__device__ __forceinline__ void reduce_add(float* address, float4 values) {
#if __CUDA_ARCH__ >= 900
  atomicAdd(reinterpret_cast<float4*>(address), values);
#else
  atomicAdd(address, values.x);
  atomicAdd(address + 1, values.y);
  atomicAdd(address + 2, values.z);
  atomicAdd(address + 3, values.w);
#endif
}

/// Two, at an 8-byte aligned address.
__device__ __forceinline__ void reduce_add(float* address, float2 values) {
#if __CUDA_ARCH__ >= 900
  atomicAdd(reinterpret_cast<float2*>(address), values);
#else
  atomicAdd(address, values.x);
  atomicAdd(address + 1, values.y);
#endif
}

__device__ __forceinline__ void reduce_add(float* address, float value) { atomicAdd(address, value); }

}  // namespace tilescope
