// SPDX-License-Identifier: Apache-2.0
// Kernels that move bytes between this GPU and another one's memory, and nothing else.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace tilescope {

/// `bytes` is a multiple of 16. Loads of `source`, a peer's memory; `target` takes what keeps them alive.
void launch_link_read(const void* source, void* target, std::int64_t bytes, int ctas, cudaStream_t stream);
/// Stores to `target`, a peer's memory.
void launch_link_write(void* target, std::int64_t bytes, int ctas, cudaStream_t stream);

}  // namespace tilescope
