// SPDX-License-Identifier: Apache-2.0
// Numbers of 16 lanes and, behind them, a scale of every eight. All 32 lanes store a number, half of them
// zeros where the scales lie. As reported of a vector attention at head size 64:
// https://github.com/ggml-org/llama.cpp/pull/28358
extern "C" __global__ void scales_behind_numbers(const float* x, float* out, int count) {
  __shared__ int words[64];
  int* const numbers = words;
  float* const scales = reinterpret_cast<float*>(words + count);
  const int lane = threadIdx.x;
  const float mine = lane < count ? x[lane] : 0;
  float most = fabsf(mine);
  for (int step = 4; step > 0; step /= 2) most = fmaxf(most, __shfl_xor_sync(~0u, most, step));
#ifdef MENDED
  if (lane < count)
#endif
    numbers[lane] = most > 0 ? __float2int_rn(127 * mine / most) : 0;  // FAULT
  if (lane < count && lane % 8 == 0) scales[lane / 8] = most / 127;
  __syncwarp();
  if (lane < count) out[lane] = numbers[lane] * scales[lane / 8];
}
