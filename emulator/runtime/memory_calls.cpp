// SPDX-License-Identifier: Apache-2.0
// Allocations, copies and fills.
#include <cstring>

#include "emulator/runtime/devices.hpp"
#include "emulator/runtime/errors.hpp"
#include "emulator/runtime/streams.hpp"

namespace tilescope::gpu::emulator {
namespace {

/// Some rows of bytes that are as far apart as the pitch says.
struct Area {
  const void* from;
  std::size_t pitch, width, height;

  std::size_t extent() const { return height == 0 || width == 0 ? 0 : (height - 1) * pitch + width; }
};

/// @throws CudaFailure where the area is not all in one allocation of a device
void require_device(const Area& area, const char* what) {
  if (area.extent() == 0 || owner_of(area.from, area.extent())) return;
  throw CudaFailure(cudaErrorInvalidValue, std::string(what) + " of " + std::to_string(area.extent()) +
                                               " bytes is not in one allocation of a device");
}

void require_ends(const Area& to, const Area& from, cudaMemcpyKind kind) {
  if (kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice)
    require_device(to, "the destination");
  if (kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice) require_device(from, "the source");
}

void copy(void* to, std::size_t to_pitch, const void* from, std::size_t from_pitch, std::size_t width,
          std::size_t height, cudaMemcpyKind kind, cudaStream_t stream) {
  if (width > to_pitch || width > from_pitch)
    throw CudaFailure(cudaErrorInvalidValue, "rows wider than their pitch");
  require_ends({to, to_pitch, width, height}, {from, from_pitch, width, height}, kind);
  issue(stream, [=] {
    for (std::size_t row = 0; row < height; ++row) {
      std::memmove(static_cast<std::byte*>(to) + row * to_pitch,
                   static_cast<const std::byte*>(from) + row * from_pitch, width);
    }
  });
}

void fill(void* to, int value, std::size_t bytes, cudaStream_t stream) {
  require_device({to, bytes, bytes, 1}, "what is filled");
  issue(stream, [=] { std::memset(to, value, bytes); });
}

}  // namespace
}  // namespace tilescope::gpu::emulator

using namespace tilescope::gpu::emulator;

extern "C" {

cudaError_t cudaMalloc(void** allocation, std::size_t bytes) {
  meet_failures();
  return as_call("cudaMalloc", [&] { *allocation = current_device().allocate(bytes, "cudaMalloc"); });
}
cudaError_t cudaMallocAsync(void** allocation, std::size_t bytes, cudaStream_t) {
  return as_call("cudaMallocAsync",
                 [&] { *allocation = current_device().allocate(bytes, "cudaMallocAsync"); });
}
cudaError_t cudaFree(void* allocation) {
  meet_failures();
  return as_call("cudaFree", [&] {
    if (allocation) {
      Device* const owner = owner_of(allocation, 1);
      (owner ? *owner : current_device()).release(allocation);
    }
  });
}
cudaError_t cudaFreeAsync(void* allocation, cudaStream_t stream) {
  return as_call("cudaFreeAsync", [&] {
    Device& device = current_device();
    issue(stream, [&device, allocation] { device.release(allocation); });
  });
}
cudaError_t cudaMemGetInfo(std::size_t* free_bytes, std::size_t* total_bytes) {
  return as_call("cudaMemGetInfo", [&] {
    *free_bytes = current_device().free_bytes();
    *total_bytes = Device::kTotalBytes;
  });
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  return as_call("cudaMemcpy", [&] { copy(to, bytes, from, bytes, bytes, 1, kind, stream); });
}
cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) {
  meet_failures();
  return cudaMemcpyAsync(to, from, bytes, kind, nullptr);
}
cudaError_t cudaMemcpy2DAsync(void* to, std::size_t to_pitch, const void* from, std::size_t from_pitch,
                              std::size_t width, std::size_t height, cudaMemcpyKind kind,
                              cudaStream_t stream) {
  return as_call("cudaMemcpy2D", [&] { copy(to, to_pitch, from, from_pitch, width, height, kind, stream); });
}
cudaError_t cudaMemcpyToSymbol(const void* symbol, const void* from, std::size_t bytes, std::size_t offset,
                               cudaMemcpyKind) {
  void* address = nullptr;
  if (const cudaError_t failed = cudaGetSymbolAddress(&address, symbol)) return failed;
  return as_call("cudaMemcpyToSymbol", [&] {
    std::byte* const to = static_cast<std::byte*>(address) + offset;
    require_device({to, bytes, bytes, 1}, "the destination");
    issue(nullptr, [=] { std::memcpy(to, from, bytes); });
  });
}

cudaError_t cudaMemsetAsync(void* to, int value, std::size_t bytes, cudaStream_t stream) {
  return as_call("cudaMemset", [&] { fill(to, value, bytes, stream); });
}
cudaError_t cudaMemset(void* to, int value, std::size_t bytes) {
  return cudaMemsetAsync(to, value, bytes, nullptr);
}
}
