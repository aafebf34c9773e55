// SPDX-License-Identifier: Apache-2.0
// One length guards two arrays, of which the second has every other element of a shorter storage.
// As reported of a kernel in Triton: https://github.com/triton-lang/triton/issues/10336
extern "C" __global__ void length_of_another_view(const int* values, const int* bins, int* out, int length,
                                                  int step, int in_bins) {
  const int me = threadIdx.x;
#ifdef MENDED
  length = min(length, in_bins);
#endif
  if (me < length) {
    out[me] = values[me] + bins[me * step];  // FAULT
  }
}
