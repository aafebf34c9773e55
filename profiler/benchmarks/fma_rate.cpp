// SPDX-License-Identifier: Apache-2.0
#include "profiler/benchmarks/fma_rate.hpp"

#include <algorithm>
#include <chrono>
#include <cstdint>

#ifdef __x86_64__
#include <immintrin.h>
#endif

namespace tilescope {

#ifdef __x86_64__
namespace {

// Two units with four cycles from operand to result want eight sums at once; some CPUs want more.
constexpr int kSums = 12;

__attribute__((noinline, target("avx512f"))) float run_512(std::int64_t rounds, float first) {
  __m512 sums[kSums];
  for (__m512& sum : sums) sum = _mm512_set1_ps(first);
  const __m512 factor = _mm512_set1_ps(0.5f), term = _mm512_set1_ps(0.5f);
  for (std::int64_t round = 0; round < rounds; ++round) {
#pragma GCC unroll 12
    for (int i = 0; i < kSums; ++i) sums[i] = _mm512_fmadd_ps(sums[i], factor, term);
  }
  for (int i = 1; i < kSums; ++i) sums[0] = _mm512_add_ps(sums[0], sums[i]);
  return _mm512_cvtss_f32(sums[0]);
}

__attribute__((noinline, target("avx2,fma"))) float run_256(std::int64_t rounds, float first) {
  __m256 sums[kSums];
  for (__m256& sum : sums) sum = _mm256_set1_ps(first);
  const __m256 factor = _mm256_set1_ps(0.5f), term = _mm256_set1_ps(0.5f);
  for (std::int64_t round = 0; round < rounds; ++round) {
#pragma GCC unroll 12
    for (int i = 0; i < kSums; ++i) sums[i] = _mm256_fmadd_ps(sums[i], factor, term);
  }
  for (int i = 1; i < kSums; ++i) sums[0] = _mm256_add_ps(sums[0], sums[i]);
  return _mm256_cvtss_f32(sums[0]);
}

double measured_once(int threads) {
  using Clock = std::chrono::steady_clock;
  constexpr std::int64_t kRounds = 10000;
  constexpr std::chrono::milliseconds kLong{20};
  const int lanes = fma_lanes();
  double rate = 0;
#pragma omp parallel num_threads(threads) reduction(+ : rate)
  {
    std::int64_t rounds = 0;
    float sum = 1;
    const auto began = Clock::now();
    while (Clock::now() - began < kLong) {
      sum = lanes == 16 ? run_512(kRounds, sum) : run_256(kRounds, sum);
      asm volatile("" : "+m"(sum));  // somebody wants it
      rounds += kRounds;
    }
    const std::chrono::duration<double> seconds = Clock::now() - began;
    rate += 2.0 * lanes * kSums * static_cast<double>(rounds) / seconds.count();
  }
  return rate;
}

}  // namespace

int fma_lanes() {
  if (__builtin_cpu_supports("avx512f")) return 16;
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") ? 8 : 1;
}

double measured_fma_rate(int threads) {
  constexpr int kTimes = 3;  // the best: what slows a CPU down is not its own
  double best = 0;
  for (int i = 0; i < kTimes && fma_lanes() > 1; ++i) best = std::max(best, measured_once(threads));
  return best;
}
#else
int fma_lanes() { return 1; }
double measured_fma_rate(int) { return 0; }
#endif

}  // namespace tilescope
