// SPDX-License-Identifier: Apache-2.0
// Two transpositions of an n x n matrix, for `tilescope emulate`: by one thread an element, whose stores are
// not coalesced, and through a tile in shared memory. nvcc -ptx -lineinfo -arch=sm_80 transpose.cu makes
// transpose.ptx, in whose .file the path was cut.
constexpr int kTile = 32, kRows = 8;

extern "C" __global__ void transpose_naive(const float* in, float* out, int n) {
  const int x = blockIdx.x * kTile + threadIdx.x;
  for (int y = blockIdx.y * kTile + threadIdx.y; y < (blockIdx.y + 1) * kTile; y += kRows) {
    out[x * n + y] = in[y * n + x];
  }
}

extern "C" __global__ void transpose_tiled(const float* in, float* out, int n) {
  __shared__ float tile[kTile][kTile + 1];
  const int x = threadIdx.x;
  for (int y = threadIdx.y; y < kTile; y += kRows) {
    tile[y][x] = in[(blockIdx.y * kTile + y) * n + blockIdx.x * kTile + x];
  }
  __syncthreads();
  for (int y = threadIdx.y; y < kTile; y += kRows) {
    out[(blockIdx.x * kTile + y) * n + blockIdx.y * kTile + x] = tile[x][y];
  }
}
