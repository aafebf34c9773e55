// SPDX-License-Identifier: Apache-2.0
// Products of 128 bits, by carries.
extern "C" __global__ void wide_integers(const unsigned long long* a, const unsigned long long* b,
                                         unsigned long long* low, unsigned long long* high) {
  const int at = threadIdx.x;
  unsigned __int128 product = static_cast<unsigned __int128>(a[at]) * b[at];
  product += (static_cast<unsigned __int128>(b[at]) << 64) + a[at];
  low[at] = static_cast<unsigned long long>(product);
  high[at] = static_cast<unsigned long long>(product >> 64);
}
