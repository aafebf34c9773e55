// SPDX-License-Identifier: Apache-2.0
// A ring of buffers between who fills them and who uses them, as one side of it sees it: for each buffer a
// barrier that says it is full and one that says it is empty, and the place where this side is.
#pragma once

#include "gpu/primitives/sm90/mbarrier.cuh"

namespace tilescope::gpu::sm90 {

template <int kStages>
struct Pipe {
  static constexpr int kBarrierBytes = 2 * 8 * kStages;

  SharedAddress barriers;
  RingPlace<kStages> place = {};

  __device__ __forceinline__ int stage() const { return place.stage; }
  __device__ __forceinline__ SharedAddress full() const { return barriers + 8 * place.stage; }
  __device__ __forceinline__ SharedAddress empty() const { return barriers + 8 * (kStages + place.stage); }

  /// By one thread, before any other call. @param fills, releases  arrivals that make a buffer full, or empty
  __device__ __forceinline__ void init(int fills, int releases) const {
    for (int stage = 0; stage < kStages; ++stage) {
      init_barrier(barriers + 8 * stage, fills);
      init_barrier(barriers + 8 * (kStages + stage), releases);
    }
  }
  /// Who fills: waits until the buffer may be written. The buffers are empty at first.
  __device__ __forceinline__ void wait_empty(const char* what) const {
    wait(empty(), place.empty_parity(), what);
  }
  /// Who uses: waits until the buffer has been filled ...
  __device__ __forceinline__ void wait_full(const char* what) const {
    wait(full(), place.full_parity(), what);
  }
  /// ... and gives it back, as far as this thread is concerned.
  __device__ __forceinline__ void release() {
    arrive(empty());
    place.advance();
  }
  /// On to the next buffer, for who fills.
  __device__ __forceinline__ void advance() { place.advance(); }
};

}  // namespace tilescope::gpu::sm90
