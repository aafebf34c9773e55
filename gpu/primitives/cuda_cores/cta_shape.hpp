// SPDX-License-Identifier: Apache-2.0
// The shape of the CTAs of the CUDA-core kernels. Plain C++: the registry, the launches and the kernels use
// it.
#pragma once

namespace tilescope::cuda_cores {

inline constexpr int kWarps =
    4;  // FlashAttention-2's choice for 128-row tiles: more would share the rows out
inline constexpr int kThreads = 32 * kWarps;
inline constexpr int kBackwardGroups = 2;  // of four warps: the roles of backward.cuh
inline constexpr int kBackwardCtasPerSm = 1;
inline constexpr int kLaneRows = 4;  // lanes of a warp along the rows of a product
inline constexpr int kLaneCols = 8;  // and along its columns

}  // namespace tilescope::cuda_cores
