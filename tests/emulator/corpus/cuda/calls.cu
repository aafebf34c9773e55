// SPDX-License-Identifier: Apache-2.0
// Functions that are called: one by name, one that calls itself, one by a pointer.
__device__ __noinline__ float polynomial(float x, const float* coefficients, int degree) {
  float value = 0;
  for (int i = degree; i >= 0; --i) value = value * x + coefficients[i];
  return value;
}
__device__ __noinline__ int fibonacci(int n) { return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2); }

extern "C" __global__ void calls(const float* x, float* out, int* numbers, int n) {
  const float coefficients[] = {1.0f, -2.0f, 0.5f, 0.25f};
  const int at = blockIdx.x * blockDim.x + threadIdx.x;
  if (at >= n) return;
  out[at] = polynomial(x[at], coefficients, 3);
  numbers[at] = fibonacci(at % 10);
}
