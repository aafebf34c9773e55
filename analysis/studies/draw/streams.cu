// SPDX-License-Identifier: Apache-2.0
// Streams that several CTAs read at a set pace and lag: how long an L2 that is full of such lines keeps one.
//   nvcc -std=c++17 -O2 -arch=sm_90 -o streams streams.cu
//   tilescope profile --json FILE -- bash -c "./streams <streams.txt"
// For each line of standard input "NAME streams ctas_of_stream steps step_kib period_clocks groups lag_clocks
// mode": one launch. CTA c reads stream c / ctas_of_stream; it lags by (c % ctas_of_stream % groups) *
// lag_clocks. mode 0: bulk copies, 1: 16-byte loads.
#include <cuda_runtime.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

#define CHECK(call)                                                   \
  do {                                                                \
    cudaError_t e = (call);                                           \
    if (e != cudaSuccess) {                                           \
      std::fprintf(stderr, "%s: %s\n", #call, cudaGetErrorString(e)); \
      std::exit(1);                                                   \
    }                                                                 \
  } while (0)

struct Job {
  int streams, ctas_of_stream, steps, step_bytes, period, groups, lag, mode;
};

constexpr int kChunk = 16384;

__global__ void __launch_bounds__(128)
    streams_kernel(const char* data, Job job, unsigned* arrived, int* sms, long long* late) {
  extern __shared__ __align__(128) char buffer[];
  __shared__ __align__(8) uint64_t barrier;
  const int cta = blockIdx.x, stream = cta / job.ctas_of_stream, member = cta % job.ctas_of_stream;
  const uint32_t bar = (uint32_t)__cvta_generic_to_shared(&barrier);
  const uint32_t shared = (uint32_t)__cvta_generic_to_shared(buffer);
  if (threadIdx.x == 0) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(bar));
    asm volatile("fence.mbarrier_init.release.cluster;");
    int sm;
    asm("mov.u32 %0, %%smid;" : "=r"(sm));
    sms[cta] = sm;
    atomicAdd(arrived, 1u);
    while (*(volatile unsigned*)arrived < gridDim.x) {
    }
  }
  __syncthreads();
  const long long begin = clock64() + (long long)(member % job.groups) * job.lag;
  const char* at = data + (long long)stream * job.steps * job.step_bytes;
  long long latest = 0;
  int4 sum = make_int4(0, 0, 0, 0);
  for (int step = 0; step < job.steps; ++step, at += job.step_bytes) {
    const long long due = begin + (long long)step * job.period;
    while (clock64() < due) {
    }
    if (clock64() - due > latest) latest = clock64() - due;
    if (job.mode == 0) {
      if (threadIdx.x == 0) {
        asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(bar), "r"(job.step_bytes)
                     : "memory");
        for (int chunk = 0; chunk < job.step_bytes; chunk += kChunk) {
          const int bytes = job.step_bytes - chunk < kChunk ? job.step_bytes - chunk : kChunk;
          asm volatile(
              "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                  shared + chunk),
              "l"(at + chunk), "r"(bytes), "r"(bar)
              : "memory");
        }
      }
      int done = 0;
      while (!done) {
        asm volatile(
            "{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.s32 %0, 1, 0, p; }"
            : "=r"(done)
            : "r"(bar), "r"(step & 1)
            : "memory");
      }
    } else {
      for (int i = threadIdx.x * 16; i < job.step_bytes; i += blockDim.x * 16) {
        int4 v;
        asm volatile("ld.global.cg.v4.s32 {%0,%1,%2,%3}, [%4];"
                     : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                     : "l"(at + i));
        sum.x ^= v.x ^ v.y ^ v.z ^ v.w;
      }
    }
    __syncthreads();
  }
  if (sum.x == 0x12345678) sms[cta] = -1;
  if (threadIdx.x == 0) late[cta] = latest;
}

int main() {
  const int shared = 200 << 10;
  CHECK(cudaFuncSetAttribute(streams_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared));
  const size_t most = (size_t)1 << 30;
  char* data;
  unsigned* arrived;
  int* sms;
  long long* late;
  CHECK(cudaMalloc(&data, most));
  CHECK(cudaMalloc(&arrived, 4));
  CHECK(cudaMalloc(&sms, 4 * 1024));
  CHECK(cudaMalloc(&late, 8 * 1024));
  CHECK(cudaMemset(data, 1, most));
  char name[64];
  Job job;
  int kib;
  while (std::scanf("%63s %d %d %d %d %d %d %d %d", name, &job.streams, &job.ctas_of_stream, &job.steps, &kib,
                    &job.period, &job.groups, &job.lag, &job.mode) == 9) {
    job.step_bytes = kib << 10;
    const int ctas = job.streams * job.ctas_of_stream;
    const double bytes = (double)job.streams * job.steps * job.step_bytes;
    if (ctas > 132 || job.step_bytes > shared || bytes > most) {
      std::printf("%s refused\n", name);
      continue;
    }
    CHECK(cudaMemset(arrived, 0, 4));
    streams_kernel<<<ctas, 128, shared>>>(data, job, arrived, sms, late);
    CHECK(cudaGetLastError());
    CHECK(cudaDeviceSynchronize());
    std::vector<int> sm(ctas);
    std::vector<long long> behind(ctas);
    CHECK(cudaMemcpy(sm.data(), sms, 4 * ctas, cudaMemcpyDeviceToHost));
    CHECK(cudaMemcpy(behind.data(), late, 8 * ctas, cudaMemcpyDeviceToHost));
    long long most_behind = 0;
    for (long long b : behind) most_behind = b > most_behind ? b : most_behind;
    std::printf(
        "{\"name\": \"%s\", \"streams\": %d, \"ctas_of_stream\": %d, \"steps\": %d, \"kib\": %d, \"period\": "
        "%d, \"groups\": %d, \"lag\": %d, "
        "\"mode\": %d, \"must\": %.0f, \"behind\": %lld, \"sms\": [",
        name, job.streams, job.ctas_of_stream, job.steps, kib, job.period, job.groups, job.lag, job.mode,
        bytes, most_behind);
    for (int c = 0; c < ctas; ++c) std::printf("%s%d", c ? ", " : "", sm[c]);
    std::printf("]}\n");
    std::fflush(stdout);
  }
}
