// SPDX-License-Identifier: Apache-2.0
// Both sides coalesced, through a tile in shared memory.
constexpr int kTile = 32, kRows = 8;

extern "C" __global__ void transpose_through_shared(const float* x, float* out, int rows, int columns) {
  __shared__ float tile[kTile][kTile + 1];
  int column = blockIdx.x * kTile + threadIdx.x, row = blockIdx.y * kTile + threadIdx.y;
  for (int i = 0; i < kTile; i += kRows)
    if (row + i < rows && column < columns)
      tile[threadIdx.y + i][threadIdx.x] = x[(row + i) * columns + column];
  __syncthreads();
  column = blockIdx.y * kTile + threadIdx.x, row = blockIdx.x * kTile + threadIdx.y;
  for (int i = 0; i < kTile; i += kRows)
    if (row + i < columns && column < rows)
      out[(row + i) * rows + column] = tile[threadIdx.x][threadIdx.y + i];
}
