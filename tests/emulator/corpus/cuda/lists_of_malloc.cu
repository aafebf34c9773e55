// SPDX-License-Identifier: Apache-2.0
// Each thread keeps what it finds in a list, whose parts it allocates and frees.
struct Entry {
  int value;
  Entry* next;
};

extern "C" __global__ void lists_of_malloc(const int* x, int* sums, int each) {
  const int me = blockIdx.x * blockDim.x + threadIdx.x;
  Entry* first = nullptr;
  for (int i = 0; i < each; ++i) {
    if (x[me * each + i] % 2 == 0) continue;
    Entry* const entry = static_cast<Entry*>(malloc(sizeof(Entry)));
    *entry = {x[me * each + i], first};
    first = entry;
  }
  int sum = 0;
  while (first) {
    Entry* const entry = first;
    sum += entry->value;
    first = entry->next;
    free(entry);
  }
  sums[me] = sum;
}
