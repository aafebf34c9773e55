/* SPDX-License-Identifier: Apache-2.0
 * An allocator for PyTorch whose 2 MiB pages of device memory lie at random places, as those of
 * gpu/launch/random_pages.cpp: what a library's kernel reads from DRAM depends on them near the L2's capacity.
 * cc -shared -fPIC -O2 -o random_pages.so random_pages.c -ldl; measure_libraries loads it.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

/* As cuda.h declares them, which a machine with PyTorch alone does not have. */
typedef unsigned long long Handle, Address;
typedef struct {
  int type, handle_types, location_type, location_id;
  void* metadata;
  unsigned char flags[8];
} AllocationProperties;
typedef struct {
  int location_type, location_id, flags;
} Access;
enum { kPinned = 1, kOnDevice = 1, kReadWrite = 3 };

static int (*create_page)(Handle*, size_t, const AllocationProperties*, unsigned long long);
static int (*release_page)(Handle);
static int (*reserve)(Address*, size_t, size_t, Address, unsigned long long);
static int (*give_back)(Address, size_t);
static int (*map_page)(Address, size_t, size_t, Handle, unsigned long long);
static int (*unmap)(Address, size_t);
static int (*set_access)(Address, size_t, const Access*, size_t);
static int (*synchronize)(void);

static const size_t kPage = (size_t)2 << 20;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static Handle* pages = NULL; /* that nothing is mapped on */
static size_t free_pages = 0;
static int device_of_pool = 0;

static void check(int result, const char* what) {
  if (result == 0) return;
  fprintf(stderr, "random_pages: %s: CUresult %d\n", what, result);
  abort(); /* an allocator of PyTorch has no way to refuse */
}

static void find_driver(void) {
  if (create_page) return;
  void* driver = dlopen("libcuda.so.1", RTLD_NOW);
  if (!driver) check(-1, "no libcuda.so.1");
#define FIND(function, name) \
  if (!(*(void**)&function = dlsym(driver, name))) check(-1, name)
  FIND(release_page, "cuMemRelease");
  FIND(reserve, "cuMemAddressReserve");
  FIND(give_back, "cuMemAddressFree");
  FIND(map_page, "cuMemMap");
  FIND(unmap, "cuMemUnmap");
  FIND(set_access, "cuMemSetAccess");
  FIND(synchronize, "cuCtxSynchronize");
  FIND(create_page, "cuMemCreate");
#undef FIND
}

static Handle new_page(void) {
  AllocationProperties properties = {kPinned, 0, kOnDevice, device_of_pool, NULL, {0}};
  Handle page = 0;
  check(create_page(&page, kPage, &properties, 0), "cuMemCreate");
  return page;
}

static uint64_t next_random(uint64_t* state) { /* xorshift64* (Vigna 2016) */
  *state ^= *state >> 12;
  *state ^= *state << 25;
  *state ^= *state >> 27;
  return *state * 2685821657736338717ull;
}

/* Takes so many pages, from which allocations are made in random order; gives back those of the pool before. */
void random_pages_pool(size_t wanted, uint64_t placement, int device) {
  pthread_mutex_lock(&lock);
  find_driver();
  while (free_pages > 0) check(release_page(pages[--free_pages]), "cuMemRelease");
  device_of_pool = device;
  pages = realloc(pages, wanted * sizeof *pages);
  for (; free_pages < wanted; ++free_pages) pages[free_pages] = new_page();
  uint64_t state = 0x9e3779b97f4a7c15ull * (placement + 1);
  for (size_t left = wanted; left > 1; --left) {
    const size_t other = next_random(&state) % left;
    const Handle page = pages[left - 1];
    pages[left - 1] = pages[other];
    pages[other] = page;
  }
  pthread_mutex_unlock(&lock);
}

void* random_pages_alloc(ptrdiff_t bytes, int device, void* stream) {
  (void)stream;
  if (bytes <= 0) return NULL;
  pthread_mutex_lock(&lock);
  find_driver();
  device_of_pool = device;
  const size_t whole = ((size_t)bytes + kPage - 1) / kPage * kPage;
  Address address = 0;
  check(reserve(&address, whole, 0, 0, 0), "cuMemAddressReserve");
  for (size_t at = 0; at < whole; at += kPage) {
    const Handle page = free_pages > 0 ? pages[--free_pages] : new_page();
    check(map_page(address + at, kPage, 0, page, 0), "cuMemMap");
    check(release_page(page), "cuMemRelease"); /* it lives as long as it is mapped */
  }
  const Access access = {kOnDevice, device, kReadWrite};
  check(set_access(address, whole, &access, 1), "cuMemSetAccess");
  pthread_mutex_unlock(&lock);
  return (void*)(uintptr_t)address;
}

void random_pages_free(void* memory, ptrdiff_t bytes, int device, void* stream) {
  (void)device;
  (void)stream;
  if (!memory) return;
  pthread_mutex_lock(&lock);
  check(synchronize(), "cuCtxSynchronize");
  const size_t whole = ((size_t)bytes + kPage - 1) / kPage * kPage;
  const Address address = (Address)(uintptr_t)memory;
  for (size_t at = 0; at < whole; at += kPage) check(unmap(address + at, kPage), "cuMemUnmap");
  check(give_back(address, whole), "cuMemAddressFree");
  pthread_mutex_unlock(&lock);
}
