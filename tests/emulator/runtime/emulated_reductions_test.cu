// SPDX-License-Identifier: Apache-2.0
// What kernels add to memory on the emulated device, which counts the sectors that each request touches.
#define DOCTEST_CONFIG_IMPLEMENT_WITH_MAIN
#include <cuda_runtime.h>
#include <doctest/doctest.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "gpu/kernels/flash2_mma/dkdv.cuh"

namespace {

using tilescope::sm80::WarpAccumulator;

constexpr int kRows = 32, kCols = 32, kStride = 40;  // of a warp's dQ; of the memory

constexpr float number(int row, int col) { return static_cast<float>(1000 * row + col + 1); }

__global__ void reduce(float* out, int rows, int cols) {
  const int lane = static_cast<int>(threadIdx.x);
  WarpAccumulator<2, kCols / 16> dq;
  for (int i = 0; i < 2; ++i) {
    for (int j = 0; j < kCols / 8; ++j) {
      for (int x = 0; x < 4; ++x)
        dq.tile[i][j].x[x] = number(16 * i + 8 * (x / 2) + lane / 4, 8 * j + 2 * (lane & 3) + x % 2);
    }
  }
  tilescope::sm80::reduce_edge(dq, out + lane / 4 * kStride, kStride, rows - lane / 4, cols, lane,
                               [](int) { return true; });
}

/// The sectors that the launch writes, from the line that the device prints of it.
long sectors_written(float* out, int rows, int cols) {
  std::FILE* const log = std::tmpfile();
  REQUIRE(log != nullptr);
  const int before = dup(STDERR_FILENO);
  dup2(fileno(log), STDERR_FILENO);
  reduce<<<1, 32>>>(out, rows, cols);
  const cudaError_t status = cudaDeviceSynchronize();
  std::fflush(stderr);
  dup2(before, STDERR_FILENO);
  close(before);
  REQUIRE(status == cudaSuccess);
  std::rewind(log);
  long written = -1;
  char line[512];
  while (std::fgets(line, sizeof line, log) != nullptr) {
    const char* const read = std::strstr(line, "sectors read, ");
    if (read != nullptr) std::sscanf(read, "sectors read, %ld written", &written);
  }
  std::fclose(log);
  return written;
}

}  // namespace

TEST_CASE("the edge of flash2-mma's dQ is added where it lies, each sector in one request") {
  setenv("TILESCOPE_EMULATED_LOG", "1", 1);
  float* out = nullptr;
  constexpr std::size_t kNumbers = kStride * (kRows + 8);
  REQUIRE(cudaMalloc(&out, kNumbers * sizeof(float)) == cudaSuccess);
  for (const int rows : {1, 2, 7, 8, 9, 17, kRows}) {
    for (const int cols : {1, 7, 8, 16, 17, kCols}) {
      CAPTURE(rows);
      CAPTURE(cols);
      REQUIRE(cudaMemset(out, 0, kNumbers * sizeof(float)) == cudaSuccess);
      CHECK(sectors_written(out, rows, cols) == rows * ((cols + 7) / 8));
      std::vector<float> host(kNumbers);
      REQUIRE(cudaMemcpy(host.data(), out, kNumbers * sizeof(float), cudaMemcpyDeviceToHost) == cudaSuccess);
      int wrong = 0;
      for (int i = 0; i < static_cast<int>(kNumbers); ++i) {
        const int row = i / kStride, col = i % kStride;
        wrong += host[static_cast<std::size_t>(i)] != (row < rows && col < cols ? number(row, col) : 0.0f);
      }
      CHECK(wrong == 0);
    }
  }
  cudaFree(out);
}
