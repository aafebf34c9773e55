// SPDX-License-Identifier: Apache-2.0
// Sums that begin with what lay in the output, which the caller has only allocated.
extern "C" __global__ void adds_to_empty(const float* x, float* out, int rows, int columns) {
  const int row = blockIdx.x * blockDim.x + threadIdx.x;
  if (row >= rows) return;
  for (int column = 0; column < columns; ++column) out[row] += x[row * columns + column];  // FAULT
}
