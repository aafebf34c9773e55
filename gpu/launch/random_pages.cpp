// SPDX-License-Identifier: Apache-2.0
#include "gpu/launch/random_pages.hpp"

#include <cuda_runtime.h>

#include <algorithm>
#include <string>

#include "cpu_ref/numeric/philox.hpp"
#include "gpu/launch/device.hpp"

namespace tilescope {
namespace {

constexpr std::int64_t kLeastPageBytes = std::int64_t{2} << 20;  // smaller pages are not the hardware's
/// Pages for each that is taken, and at least so many: pages that the driver hands out one after the other
/// follow each other in memory, and of a pool hardly larger than the tensors most would again.
constexpr std::int64_t kPoolFactor = 4, kLeastPool = 1024;

/// Through the runtime, so that a program that links this starts without a driver.
template <typename Function>
Function* driver_function(const char* name) {
  constexpr unsigned int kVersion = 12000;  // whose declarations these are
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
  check_cuda(cudaGetDriverEntryPointByVersion(name, &function, kVersion, cudaEnableDefault, &found),
             std::string("asking the driver for ") + name);
  if (function && found == cudaDriverEntryPointSuccess) return reinterpret_cast<Function*>(function);
  throw MachineLacks(std::string("the NVIDIA driver lacks ") + name +
                     ", which pages at random places need; update it");
}

/// The part of the driver that maps pages, under its own names.
struct Driver {
#define TILESCOPE_FIND(name) decltype(::name)* name = driver_function<decltype(::name)>(#name)
  TILESCOPE_FIND(cuGetErrorName);
  TILESCOPE_FIND(cuMemGetAllocationGranularity);
  TILESCOPE_FIND(cuMemCreate);
  TILESCOPE_FIND(cuMemRelease);
  TILESCOPE_FIND(cuMemAddressReserve);
  TILESCOPE_FIND(cuMemAddressFree);
  TILESCOPE_FIND(cuMemMap);
  TILESCOPE_FIND(cuMemUnmap);
  TILESCOPE_FIND(cuMemSetAccess);
#undef TILESCOPE_FIND
};

const Driver& driver() {
  static const Driver functions;
  return functions;
}

/// @throws as check_cuda
void check_driver(CUresult result, const std::string& what) {
  if (result == CUDA_SUCCESS) return;
  const char* name = nullptr;
  driver().cuGetErrorName(result, &name);
  const std::string text = what + ": " + (name ? name : std::to_string(result));
  if (result == CUDA_ERROR_OUT_OF_MEMORY) throw MachineLacks(text);
  if (result == CUDA_ERROR_NOT_SUPPORTED) {
    throw MachineLacks(text + "; this device cannot map pages: use contiguous memory");
  }
  throw DeviceError(text);
}

CUmemAllocationProp on_current_device() {
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  check_cuda(cudaGetDevice(&properties.location.id), "asking for the current device");
  return properties;
}

std::int64_t round_up(std::int64_t bytes, std::int64_t page_bytes) {
  return (bytes + page_bytes - 1) / page_bytes * page_bytes;
}

/// The same order on every machine.
template <typename T>
void shuffle(std::vector<T>& items, std::uint64_t seed) {
  for (std::size_t left = items.size(); left > 1; --left) {
    const Philox4 random = philox4x32(seed, {{static_cast<std::uint32_t>(left), 0, 0, 0}});
    std::swap(items[left - 1], items[random.x[0] % left]);
  }
}

}  // namespace

PagePool::PagePool(const std::vector<std::int64_t>& allocations, std::uint64_t placement) : PagePool() {
  check_cuda(cudaFree(nullptr), "making the device's context");  // the driver's calls need it
  const CUmemAllocationProp properties = on_current_device();
  std::size_t granularity = 0;
  check_driver(
      driver().cuMemGetAllocationGranularity(&granularity, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM),
      "asking for the size of a page");
  page_bytes_ = round_up(kLeastPageBytes, static_cast<std::int64_t>(granularity));
  std::int64_t needed = 0;
  for (const std::int64_t bytes : allocations) needed += round_up(bytes, page_bytes_) / page_bytes_;
  const std::int64_t wanted = std::max(kPoolFactor * needed, kLeastPool);
  while (static_cast<std::int64_t>(pages_.size()) < wanted) {
    CUmemGenericAllocationHandle page = 0;
    const CUresult result =
        driver().cuMemCreate(&page, static_cast<std::size_t>(page_bytes_), &properties, 0);
    const bool enough = static_cast<std::int64_t>(pages_.size()) >= needed;
    if (result == CUDA_ERROR_OUT_OF_MEMORY && enough) break;  // a smaller pool has to do
    check_driver(result, "taking " + std::to_string(needed) + " pages of " +
                             std::to_string(page_bytes_ >> 20) + " MiB of device memory");
    pages_.push_back(page);
  }
  shuffle(pages_, placement);
}

PagePool::~PagePool() {
  for (const CUmemGenericAllocationHandle page : pages_) driver().cuMemRelease(page);
}

CUmemGenericAllocationHandle PagePool::take() {
  const CUmemGenericAllocationHandle page = pages_.back();
  pages_.pop_back();
  return page;
}

RandomPages::RandomPages(PagePool& pool, std::int64_t bytes) : RandomPages() {
  page_bytes_ = pool.page_bytes();
  const std::int64_t whole_pages = round_up(bytes, page_bytes_);
  check_driver(driver().cuMemAddressReserve(&address_, static_cast<std::size_t>(whole_pages), 0, 0, 0),
               "reserving addresses");
  reserved_bytes_ = whole_pages;
  while (mapped_bytes_ < reserved_bytes_) {
    const CUmemGenericAllocationHandle page = pool.take();
    const CUresult mapped = driver().cuMemMap(address_ + static_cast<CUdeviceptr>(mapped_bytes_),
                                              static_cast<std::size_t>(page_bytes_), 0, page, 0);
    driver().cuMemRelease(page);  // it lives as long as it is mapped
    check_driver(mapped, "mapping a page");
    mapped_bytes_ += page_bytes_;
  }
  CUmemAccessDesc access{};
  access.location = on_current_device().location;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  check_driver(driver().cuMemSetAccess(address_, static_cast<std::size_t>(reserved_bytes_), &access, 1),
               "making pages accessible");
}

RandomPages::~RandomPages() {
  if (reserved_bytes_ == 0) return;
  cudaDeviceSynchronize();  // as cudaFree does; whoever ran something there has asked whether it failed
  for (std::int64_t at = 0; at < mapped_bytes_; at += page_bytes_) {
    driver().cuMemUnmap(address_ + static_cast<CUdeviceptr>(at), static_cast<std::size_t>(page_bytes_));
  }
  driver().cuMemAddressFree(address_, static_cast<std::size_t>(reserved_bytes_));
}

}  // namespace tilescope
