// SPDX-License-Identifier: Apache-2.0
// A warp stores to 32 rows: one sector a lane.
extern "C" __global__ void transpose_plain(const float* x, float* out, int rows, int columns) {
  const int column = blockIdx.x * blockDim.x + threadIdx.x, row = blockIdx.y * blockDim.y + threadIdx.y;
  if (row < rows && column < columns) out[column * rows + row] = x[row * columns + column];
}
