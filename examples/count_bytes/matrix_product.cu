// SPDX-License-Identifier: Apache-2.0
// How many bytes does a matrix product of one's own move? Exits with 3, and the reason, where nothing can be
// counted.
#include <cstdio>

#include "profiler/work_profiler.hpp"

__global__ void multiply(const float* a, const float* b, float* c, int n) {
  const int row = blockIdx.y * blockDim.y + threadIdx.y, column = blockIdx.x * blockDim.x + threadIdx.x;
  float sum = 0;
  for (int k = 0; k < n; ++k) sum += a[row * n + k] * b[k * n + column];
  c[row * n + column] = sum;
}

int main() try {
  constexpr int kRows = 2048;
  float* matrices[3];
  for (float*& matrix : matrices) cudaMalloc(&matrix, sizeof(float) * kRows * kRows);
  tilescope::WorkProfiler profiler("traffic", {});
  const auto product = profiler.measure("matrix product", [&](cudaStream_t stream) {
    multiply<<<dim3(kRows / 32, kRows / 32), dim3(32, 32), 0, stream>>>(matrices[0], matrices[1], matrices[2],
                                                                        kRows);
  });
  for (const auto& [metric, value] : product.kernel.measured)
    std::printf("%-24s %.0f\n", metric.c_str(), value);
  std::printf("%-24s %.3f ms\n", "median time", 1e3 * product.time.median_s());
} catch (const tilescope::MachineLacks& lack) {
  std::fprintf(stderr, "%s\n", lack.what());
  return 3;
}
