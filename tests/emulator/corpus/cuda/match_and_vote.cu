// SPDX-License-Identifier: Apache-2.0
// Atomics of lanes that have one key are joined in one: match, ballots, the position of the highest bit.
extern "C" __global__ void match_and_vote(const int* keys, int* counts, int* highest, int n) {
  const int at = blockIdx.x * blockDim.x + threadIdx.x;
  const unsigned present = __ballot_sync(0xffffffff, at < n);
  if (at >= n) return;
  const int key = keys[at];
  const unsigned same = __match_any_sync(present, key);
  if ((threadIdx.x & 31) == 31 - __clz(same)) atomicAdd(&counts[key], __popc(same));
  int all = 0;
  __match_all_sync(present, key, &all);
  highest[at] = all ? -1 : 31 - __clz(same);
}
