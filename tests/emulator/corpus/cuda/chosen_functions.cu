// SPDX-License-Identifier: Apache-2.0
// Functions that data choose: by a table of pointers, and virtual ones.
__device__ __noinline__ float plus_one(float a) { return a + 1; }
__device__ __noinline__ float squared(float a) { return a * a; }
__device__ __noinline__ float powers(float a, int n) { return n == 0 ? 1 : a * powers(a, n - 1); }
__device__ __noinline__ float cubed(float a) { return powers(a, 3); }
using Function = float (*)(float);
__device__ Function table[3] = {plus_one, squared, cubed};

struct Scale {
  __device__ virtual float of(float a) const = 0;
};
struct Twice : Scale {
  __device__ __noinline__ float of(float a) const override { return 2 * a; }
};
struct Less : Scale {
  float by;
  __device__ explicit Less(float by) : by(by) {}
  __device__ __noinline__ float of(float a) const override { return a - by; }
};

extern "C" __global__ void chosen_functions(const float* x, const int* which, float* by_table,
                                            float* by_object) {
  const int me = threadIdx.x;
  by_table[me] = table[which[me]](x[me]);
  const Twice twice;
  const Less less(3);
  const Scale* const scale = which[me] > 0 ? static_cast<const Scale*>(&twice) : &less;
  by_object[me] = scale->of(x[me]);
}
