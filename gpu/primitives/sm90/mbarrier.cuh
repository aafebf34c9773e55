// SPDX-License-Identifier: Apache-2.0
// Barriers in shared memory that count arrivals and bytes, and their rings. Source: PTX ISA, "mbarrier".
//
// In a build with TILESCOPE_WATCH_BARRIERS every wait has a limit; past it, the thread says who waits for
// what and traps. Elsewhere a wait is two instructions.
#pragma once

#include <cstdint>
#ifdef TILESCOPE_WATCH_BARRIERS
#include <cstdio>
#endif

namespace tilescope::gpu::sm90 {

using SharedAddress = std::uint32_t;  // in the shared window [bytes]

__device__ __forceinline__ SharedAddress shared_address_of(const void* pointer) {
  return static_cast<SharedAddress>(__cvta_generic_to_shared(pointer));
}

__device__ __forceinline__ void init_barrier(SharedAddress barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}
/// Between the initialisation and the barrier that lets other threads and the copy engine use it.
__device__ __forceinline__ void fence_barrier_init() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

__device__ __forceinline__ void arrive(SharedAddress barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
/// Arrives and makes the phase wait for `bytes` more that copies will bring.
__device__ __forceinline__ void arrive_expecting(SharedAddress barrier, std::uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
               : "memory");
}
/// Whether the phase of the given parity is over. May wait for a while.
__device__ __forceinline__ bool phase_is_over(SharedAddress barrier, std::uint32_t parity) {
  std::uint32_t over;
  asm volatile(
      "{\n.reg .pred over;\nmbarrier.try_wait.parity.shared::cta.b64 over, [%1], %2;\n"
      "selp.u32 %0, 1, 0, over;\n}"
      : "=r"(over)
      : "r"(barrier), "r"(parity)
      : "memory");
  return over != 0;
}

/// The same, at once.
__device__ __forceinline__ bool phase_was_over(SharedAddress barrier, std::uint32_t parity) {
  std::uint32_t over;
  asm volatile(
      "{\n.reg .pred over;\nmbarrier.test_wait.parity.shared::cta.b64 over, [%1], %2;\n"
      "selp.u32 %0, 1, 0, over;\n}"
      : "=r"(over)
      : "r"(barrier), "r"(parity)
      : "memory");
  return over != 0;
}

/// @param what  a name for the message of a watched build
__device__ __forceinline__ void wait(SharedAddress barrier, std::uint32_t parity,
                                     [[maybe_unused]] const char* what) {
#ifdef TILESCOPE_WATCH_BARRIERS
  for (long long begin = clock64(); !phase_is_over(barrier, parity);) {
    if (clock64() - begin < 2'000'000'000LL) continue;  // about a second
    printf("block %d thread %d waits for %s (barrier at %u, parity %u)\n", static_cast<int>(blockIdx.x),
           static_cast<int>(threadIdx.x), what, barrier, parity);
    __trap();
  }
#else
  while (!phase_is_over(barrier, parity)) {
  }
#endif
}

/// For two phases, looking at both at once.
__device__ __forceinline__ void wait_for_both(SharedAddress first, std::uint32_t first_parity,
                                              const char* first_what, SharedAddress second,
                                              std::uint32_t second_parity, const char* second_what) {
  const bool first_over = phase_is_over(first, first_parity);
  const bool second_over = phase_is_over(second, second_parity);
  if (!first_over) wait(first, first_parity, first_what);
  if (!second_over) wait(second, second_parity, second_what);
}

#ifdef TILESCOPE_WATCH_BARRIERS
/// Ends a CTA that has waited for about two seconds, at barriers of any kind. One thread, which has nothing
/// else to do, watches; each of `threads` others says when it is done.
struct Watchdog {
  int* done;  // in shared memory, 0 at first

  __device__ void say_done() const { atomicAdd_block(done, 1); }
  __device__ void watch(int threads) const {
    for (long long begin = clock64(); *static_cast<volatile int*>(done) < threads;) {
      if (clock64() - begin < 4'000'000'000LL) continue;
      printf("block %d: %d of %d computing threads are done after 4e9 cycles\n", static_cast<int>(blockIdx.x),
             *done, threads);
      __trap();
    }
  }
};
#else
struct Watchdog {
  int* done = nullptr;
  __device__ __forceinline__ void say_done() const {}
  __device__ __forceinline__ void watch(int) const {}
};
#endif
/// The place of its count.
__device__ __forceinline__ Watchdog watchdog() {
#ifdef TILESCOPE_WATCH_BARRIERS
  __shared__ int done;
  if (threadIdx.x == 0) done = 0;
  return {&done};  // before a __syncthreads()
#else
  return {};
#endif
}

/// A place in a ring of kStages buffers, and the parity of the phase in which it is used. A consumer waits
/// for parity(); a producer, whose buffers are free at first, for the parity before.
template <int kStages>
struct RingPlace {
  int stage = 0;
  std::uint32_t round = 0;

  __device__ __forceinline__ std::uint32_t full_parity() const { return round; }
  __device__ __forceinline__ std::uint32_t empty_parity() const { return round ^ 1; }
  __device__ __forceinline__ RingPlace before() const {
    return stage == 0 ? RingPlace{kStages - 1, round ^ 1} : RingPlace{stage - 1, round};
  }
  __device__ __forceinline__ RingPlace next() const {
    RingPlace place = *this;
    place.advance();
    return place;
  }
  __device__ __forceinline__ void advance() {
    if constexpr (kStages == 1) {
      round ^= 1;
    } else if (++stage == kStages) {
      stage = 0;
      round ^= 1;
    }
  }
};

}  // namespace tilescope::gpu::sm90
