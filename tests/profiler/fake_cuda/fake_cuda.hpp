// SPDX-License-Identifier: Apache-2.0
// What programs on the fake driver have to know of it.
#pragma once

#include <cuda.h>
#include <cupti.h>

#include <string>
#include <vector>

namespace fake_cuda {

inline constexpr int kDevices = 2;
inline constexpr const char* kEndless = "endless_kernel";  // a kernel that never ends

/// What a CUgraph and a CUgraphExec point to.
struct Graph {
  std::vector<const char*> kernels;
  const Graph* made_from = nullptr;  // of a CUgraphExec
};

int device_of(CUcontext context);

/// What `function` is asked to return: each time, or with "once" behind it the first time.
/// TILESCOPE_FAKE_REFUSAL="cuptiSubscribe=39" makes that call return 39.
CUptiResult refusal(const std::string& function);

/// Makes a context of the device beside its primary one.
CUcontext second_context(int device);

}  // namespace fake_cuda
