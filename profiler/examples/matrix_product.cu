// SPDX-License-Identifier: Apache-2.0
// A program of one's own, measured from inside: how many bytes does a tiled matrix product move, and how many
// did its author expect? Exits with 3 where there is no device that may be counted on.
#include <cuda_runtime.h>

#include <cstdio>

#include "profiler/work_profiler.hpp"

namespace {

constexpr int kTile = 32;

/// C = A B for square fp32 matrices of n rows, a multiple of kTile. A CTA computes one tile of C.
__global__ void multiply(const float* a, const float* b, float* c, int n) {
  __shared__ float a_tile[kTile][kTile], b_tile[kTile][kTile];
  const int x = static_cast<int>(threadIdx.x), y = static_cast<int>(threadIdx.y);
  const int row = static_cast<int>(blockIdx.y) * kTile + y;
  const int column = static_cast<int>(blockIdx.x) * kTile + x;
  float sum = 0;
  for (int first = 0; first < n; first += kTile) {
    a_tile[y][x] = a[row * n + first + x];
    b_tile[y][x] = b[(first + y) * n + column];
    __syncthreads();
    for (int k = 0; k < kTile; ++k) sum += a_tile[y][k] * b_tile[k][x];
    __syncthreads();
  }
  c[row * n + column] = sum;
}

int measure_product(int n) {
  const std::size_t bytes = sizeof(float) * static_cast<std::size_t>(n) * static_cast<std::size_t>(n);
  // [README: the lines that profiler/README.md shows]
  tilescope::WorkProfiler profiler("traffic", {});
  float *a = nullptr, *b = nullptr, *c = nullptr;
  for (float** matrix : {&a, &b, &c}) cudaMalloc(matrix, bytes);

  const tilescope::WorkMeasurement product = profiler.measure("matrix product", [&](cudaStream_t stream) {
    multiply<<<dim3(n / kTile, n / kTile), dim3(kTile, kTile), 0, stream>>>(a, b, c, n);
  });

  const double expected_bytes = 2.0 * n / kTile * bytes;  // each tile of C reads a row and a column of tiles
  std::printf("SM<-L2 %.0f bytes, expected %.0f; DRAM read %.0f; %d registers; %.3f ms\n",
              product.kernel.measured.at("sm_l2_read_bytes"), expected_bytes,
              product.kernel.measured.at("dram_read_bytes"),
              static_cast<int>(product.kernel.launch.registers.value_or(0)), 1e3 * product.time.median_s());
  // [README]
  return cudaGetLastError() == cudaSuccess ? 0 : 1;
}

}  // namespace

int main() {
  try {
    return measure_product(2048);
  } catch (const tilescope::MachineLacks& lack) {
    std::fprintf(stderr, "%s\n", lack.what());
    return 3;
  }
}
