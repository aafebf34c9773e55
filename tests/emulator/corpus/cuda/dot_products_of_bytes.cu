// SPDX-License-Identifier: Apache-2.0
// dp4a: four products of bytes at once.
extern "C" __global__ void dot_products_of_bytes(const int* a, const int* b, int* out, int words) {
  const int row = blockIdx.x * blockDim.x + threadIdx.x;
  int sum = 0;
  for (int i = 0; i < words; ++i) sum = __dp4a(a[row * words + i], b[i], sum);
  out[row] = sum;
}
