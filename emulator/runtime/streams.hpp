// SPDX-License-Identifier: Apache-2.0
// Streams, events and graphs. Work is done when it is issued, which is an order that every program must bear;
// what is issued to a stream that is being captured is kept instead, and done by each launch of the graph.
#pragma once

#include <cuda_runtime_api.h>

#include <functional>

namespace tilescope::gpu::emulator {

using Work = std::function<void()>;

/// Does the work now, or keeps it. What it throws sticks: the work has been accepted, and fails on the
/// device.
/// @throws CudaFailure where there is no such stream
void issue(cudaStream_t stream, Work work);

/// @throws CudaFailure where there is no such stream, or it is being captured
void require_idle(cudaStream_t stream);

}  // namespace tilescope::gpu::emulator
