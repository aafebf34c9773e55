// SPDX-License-Identifier: Apache-2.0
// Rows and columns of the result are mixed up, which a square matrix would hide.
extern "C" __global__ void transposed_index(const float* x, float* out, int rows, int columns) {
  const int row = blockIdx.y * blockDim.y + threadIdx.y, column = blockIdx.x * blockDim.x + threadIdx.x;
  if (row < rows && column < columns) {
    const float doubled = 2 * x[row * columns + column];
    out[column * columns + row] = doubled;  // FAULT
  }
}
