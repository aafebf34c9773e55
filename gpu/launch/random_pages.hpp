// SPDX-License-Identifier: Apache-2.0
// Device memory whose pages lie at random places: near the L2's capacity, what a kernel reads from DRAM
// depends on where its tensors lie, and one place says little about others. By CUDA's virtual memory
// management.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <utility>
#include <vector>

namespace tilescope {

/// Physical pages of the current device, several times as many as its allocations need, to be taken at
/// random.
class PagePool {
 public:
  /// @param allocations  bytes of each; there will be pages for all
  /// @param placement  0, 1, ...: which pages are taken, and in which order
  /// @throws MachineLacks where the device has not the memory or cannot map pages, DeviceError
  PagePool(const std::vector<std::int64_t>& allocations, std::uint64_t placement);
  ~PagePool();  // gives back what was not taken
  PagePool(const PagePool&) = delete;
  PagePool& operator=(const PagePool&) = delete;

  std::int64_t page_bytes() const { return page_bytes_; }
  /// A page that the pool then no longer has; the caller releases it.
  CUmemGenericAllocationHandle take();

 private:
  PagePool() = default;  // its destructor gives back the pages of a constructor that throws

  std::int64_t page_bytes_ = 0;
  std::vector<CUmemGenericAllocationHandle> pages_;
};

/// Consecutive addresses on pages of a pool.
class RandomPages {
 public:
  RandomPages() = default;
  /// @param bytes  one of the pool's allocations @throws as PagePool
  RandomPages(PagePool& pool, std::int64_t bytes);
  ~RandomPages();  // waits for the device
  RandomPages(RandomPages&& other) noexcept : RandomPages() { *this = std::move(other); }
  RandomPages& operator=(RandomPages&& other) noexcept {
    std::swap(address_, other.address_);
    std::swap(reserved_bytes_, other.reserved_bytes_);
    std::swap(page_bytes_, other.page_bytes_);
    std::swap(mapped_bytes_, other.mapped_bytes_);
    return *this;
  }

  /// Null for a default-constructed one.
  void* data() const { return reinterpret_cast<void*>(address_); }

 private:
  CUdeviceptr address_ = 0;
  std::int64_t reserved_bytes_ = 0, page_bytes_ = 0, mapped_bytes_ = 0;
};

}  // namespace tilescope
