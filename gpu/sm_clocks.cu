// SPDX-License-Identifier: Apache-2.0
#include "gpu/device.hpp"
#include "gpu/sm_clocks.hpp"

namespace tilescope {
namespace {

__device__ long long nanoseconds_now() {
  long long now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  return now;
}

__global__ void note_moment(SmMoment* of_sm) {
  unsigned sm;
  asm volatile("mov.u32 %0, %%smid;" : "=r"(sm));
  if (sm >= kMostSmIds) return;
  // Right after the device's clock has moved, which it does in steps.
  const long long before = nanoseconds_now();
  long long now = before;
  while (now == before) now = nanoseconds_now();
  of_sm[sm] = {clock64(), now};
}

}  // namespace

void note_moments(SmMoment* of_sm, cudaStream_t stream) {
  int device = 0, sms = 0, shared_bytes = 0;
  check_cuda(cudaGetDevice(&device), "asking for the device");
  check_cuda(cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, device), "counting SMs");
  // All of an SM's, so that each SM is given one CTA.
  check_cuda(cudaDeviceGetAttribute(&shared_bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device),
             "asking for shared memory");
  check_cuda(cudaFuncSetAttribute(note_moment, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes),
             "shared memory of a whole SM");
  note_moment<<<sms, 1, static_cast<std::size_t>(shared_bytes), stream>>>(of_sm);
  check_cuda(cudaGetLastError(), "noting the clocks of SMs");
}

}  // namespace tilescope
