// SPDX-License-Identifier: Apache-2.0
// One operand on its way through shared memory: a ring of buffers between who fills them and who uses them,
// as one side of it sees it. Each buffer has a barrier that says it is full and one that says it is empty;
// each side knows the place where it is.
//
//   who fills   wait_empty(); write buffer(), or ask the copy engine to, which tells full(); advance()
//   who uses    wait_full(); read buffer(); release()
#pragma once

#include "gpu/primitives/sm90/mbarrier.cuh"
#include "gpu/primitives/sm90/shared_layout.hpp"

namespace tilescope::gpu::sm90 {

template <PipeLayout kLayout>
struct Pipe {
  using Place = RingPlace<kLayout.stages>;

  Place place{};
  SharedAddress base;  // of the CTA's shared memory
  int ring;            // of several

  __device__ __forceinline__ explicit Pipe(SharedAddress base, int ring = 0) : base(base), ring(ring) {}
  /// The same place of another ring.
  __device__ __forceinline__ Pipe of_ring(int other) const {
    Pipe pipe = *this;
    pipe.ring = other;
    return pipe;
  }
  __device__ __forceinline__ int index(int stage) const { return kLayout.index(stage, ring); }
  __device__ __forceinline__ int index() const { return index(place.stage); }
  __device__ __forceinline__ SharedAddress buffer_at(int stage) const {
    return base + kLayout.buffers + index(stage) * kLayout.buffer_bytes;
  }
  __device__ __forceinline__ SharedAddress full_at(int stage) const {
    return base + kLayout.full + 8 * index(stage);
  }
  __device__ __forceinline__ SharedAddress empty_at(int stage) const {
    return base + kLayout.empty + 8 * index(stage);
  }
  __device__ __forceinline__ int stage() const { return place.stage; }
  __device__ __forceinline__ SharedAddress buffer() const { return buffer_at(place.stage); }
  __device__ __forceinline__ SharedAddress full() const { return full_at(place.stage); }
  __device__ __forceinline__ SharedAddress empty() const { return empty_at(place.stage); }

  /// By one thread, before any other call. @param fills, releases  arrivals that make a buffer full, or empty
  __device__ __forceinline__ void init(int fills, int releases) const {
    for (int buffer = 0; buffer < kLayout.count(); ++buffer) {
      init_barrier(base + kLayout.full + 8 * buffer, fills);
      init_barrier(base + kLayout.empty + 8 * buffer, releases);
    }
  }

  /// Who fills: waits until the buffer may be written. The buffers are empty at first.
  __device__ __forceinline__ void wait_empty(const char* what) const { wait_empty(place, what); }
  template <int kRing>
  __device__ __forceinline__ void wait_empty(const RingPlace<kRing>& at, const char* what) const {
    wait(empty_at(at.stage), at.empty_parity(), what);
  }
  /// On to the next buffer.
  __device__ __forceinline__ void advance() { place.advance(); }

  /// Who uses: waits until the buffer has been filled ...
  __device__ __forceinline__ void wait_full(const char* what) const { wait_full(place, what); }
  template <int kRing>
  __device__ __forceinline__ void wait_full(const RingPlace<kRing>& at, const char* what) const {
    wait(full_at(at.stage), at.full_parity(), what);
  }
  /// ... or asks whether it has ...
  __device__ __forceinline__ bool is_full(const Place& at) const {
    return phase_was_over(full_at(at.stage), at.full_parity());
  }
  /// ... and gives it back, on to the next. @param arrives  of several threads, those that the barrier counts
  __device__ __forceinline__ void release(bool arrives = true) {
    if (arrives) arrive(empty());
    advance();
  }
};

}  // namespace tilescope::gpu::sm90
