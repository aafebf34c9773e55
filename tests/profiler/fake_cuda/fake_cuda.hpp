// SPDX-License-Identifier: Apache-2.0
// What programs on the fake driver have to know of it.
#pragma once

#include <cuda.h>

#include <vector>

namespace fake_cuda {

inline constexpr int kDevices = 2;
inline constexpr const char* kEndless = "endless_kernel";  // a kernel that never ends

/// What a CUgraph and a CUgraphExec point to.
struct Graph {
  std::vector<const char*> kernels;
  const Graph* made_from = nullptr;  // of a CUgraphExec
};

/// Makes a context of the device beside its primary one.
CUcontext second_context(int device);

}  // namespace fake_cuda
