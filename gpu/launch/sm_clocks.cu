// SPDX-License-Identifier: Apache-2.0
#include "gpu/launch/device.hpp"
#include "gpu/launch/sm_clocks.hpp"

namespace tilescope {
namespace {

__device__ long long nanoseconds_now() {
  long long now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  return now;
}

__global__ void note_moment(SmMoments* moments) {
  unsigned sm;
  asm volatile("mov.u32 %0, %%smid;" : "=r"(sm));
  // Right after the device's clock has moved, which it does in steps.
  const long long before = nanoseconds_now();
  long long now = before;
  while (now == before) now = nanoseconds_now();
  if (sm < kMostSmIds) moments->of_sm[sm] = {clock64(), now};
  // Stays until all have come, so that no other CTA of this grid is given to this SM.
  atomicAdd(&moments->arrived, 1);
  constexpr unsigned kNanoseconds = 100;
  while (*static_cast<volatile int*>(&moments->arrived) < static_cast<int>(gridDim.x)) {
    __nanosleep(kNanoseconds);
  }
}

}  // namespace

void note_moments(SmMoments* moments, cudaStream_t stream) {
  int device = 0, sms = 0, shared_bytes = 0;
  check_cuda(cudaGetDevice(&device), "asking for the device");
  check_cuda(cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, device), "counting SMs");
  // All of an SM's, so that each SM is given one CTA.
  check_cuda(cudaDeviceGetAttribute(&shared_bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device),
             "asking for shared memory");
  check_cuda(cudaFuncSetAttribute(note_moment, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes),
             "shared memory of a whole SM");
  note_moment<<<sms, 1, static_cast<std::size_t>(shared_bytes), stream>>>(moments);
  check_cuda(cudaGetLastError(), "noting the clocks of SMs");
}

}  // namespace tilescope
