// SPDX-License-Identifier: Apache-2.0
#include "gpu/launch/device.hpp"

#include <algorithm>
#include <cstring>
#include <vector>

namespace tilescope {
namespace {

constexpr unsigned char kGuardByte = 0xA5;

std::string mebibytes(std::int64_t bytes) { return std::to_string((bytes + (1 << 20) - 1) >> 20) + " MiB"; }

std::string reason_without_device(cudaError_t status) {
  switch (status) {
    case cudaErrorInsufficientDriver:
      return "no NVIDIA driver, or one older than this build's CUDA runtime; install or update the driver";
    case cudaErrorNoDevice:
      return "no CUDA device is visible; check nvidia-smi and CUDA_VISIBLE_DEVICES";
    default:
      return std::string("the CUDA device cannot be used: ") + cudaGetErrorString(status);
  }
}

/// @throws MachineLacks naming the tensor, the bytes and what is free
void* allocate(const std::string& name, std::int64_t footprint) {
  void* allocation = nullptr;
  const cudaError_t status = cudaMalloc(&allocation, static_cast<std::size_t>(footprint));
  if (status == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    std::size_t free_bytes = 0, total_bytes = 0;
    check_cuda(cudaMemGetInfo(&free_bytes, &total_bytes), "asking for free device memory");
    throw MachineLacks("out of device memory: " + name + " needs " + mebibytes(footprint) + ", " +
                       mebibytes(static_cast<std::int64_t>(free_bytes)) + " of " +
                       mebibytes(static_cast<std::int64_t>(total_bytes)) +
                       " are free; a smaller batch or sequence would fit");
  }
  check_cuda(status, "allocating " + name);
  return allocation;
}

}  // namespace

void require_device() {
  int devices = 0;
  const cudaError_t status = cudaGetDeviceCount(&devices);
  if (status != cudaSuccess || devices == 0) {
    cudaGetLastError();
    throw MachineLacks(reason_without_device(status == cudaSuccess ? cudaErrorNoDevice : status) +
                       ". The cpu: kernels, simulate and report need no device");
  }
  int device = 0, major = 0, minor = 0;
  check_cuda(cudaGetDevice(&device), "asking for the current device");
  check_cuda(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device), "device attribute");
  check_cuda(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device), "device attribute");
  const auto runs_here = [&](const Kernel& kernel) { return kernel.chips.has(10 * major + minor); };
  if (std::ranges::any_of(gpu_kernels(), runs_here)) return;
  throw MachineLacks("the device has compute capability " + std::to_string(major) + "." +
                     std::to_string(minor) +
                     ", for which no GPU kernel is written. The cpu: kernels need no device");
}

DeviceFacts current_device() {
  int device = 0, shared_bytes = 0, driver = 0, runtime = 0;
  cudaDeviceProp properties{};
  check_cuda(cudaGetDevice(&device), "asking for the current device");
  check_cuda(cudaGetDeviceProperties(&properties, device), "asking for the device's properties");
  check_cuda(cudaDeviceGetAttribute(&shared_bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device),
             "asking for the shared memory of a CTA");
  check_cuda(cudaDriverGetVersion(&driver), "asking for the driver's version");
  check_cuda(cudaRuntimeGetVersion(&runtime), "asking for the runtime's version");
  const auto version = [](int number) {
    return std::to_string(number / 1000) + "." + std::to_string(number % 1000 / 10);
  };
  return {.name = properties.name,
          .chip = {.compute_capability = 10 * properties.major + properties.minor,
                   .shared_bytes_per_cta = shared_bytes},
          .driver = version(driver),
          .cuda = version(runtime)};
}

DeviceBuffer::DeviceBuffer(std::string name, std::int64_t bytes, PagePool* pool)
    : bytes_(bytes), name_(std::move(name)) {
  const std::int64_t footprint = footprint_bytes(bytes);
  if (pool) random_pages_ = RandomPages(*pool, footprint);
  allocation_ = pool ? random_pages_.data() : allocate(name_, footprint);
  check_cuda(cudaMemset(allocation_, kGuardByte, kGuardBytes), "filling a guard of " + name_);
  check_cuda(cudaMemset(static_cast<char*>(data()) + bytes, kGuardByte, kGuardBytes),
             "filling a guard of " + name_);
  poison(nullptr);
  check_cuda(cudaStreamSynchronize(nullptr), "poisoning " + name_);
}

DeviceBuffer::~DeviceBuffer() {
  if (allocation_ && !random_pages_.data()) cudaFree(allocation_);
}

void DeviceBuffer::poison(cudaStream_t stream) {
  check_cuda(cudaMemsetAsync(data(), 0xFF, static_cast<std::size_t>(bytes_), stream), "poisoning " + name_);
}

void DeviceBuffer::zero(cudaStream_t stream) {
  check_cuda(cudaMemsetAsync(data(), 0, static_cast<std::size_t>(bytes_), stream), "zeroing " + name_);
}

void DeviceBuffer::check_guards() const {
  std::vector<unsigned char> guard(kGuardBytes);
  for (const bool front : {true, false}) {
    const char* source =
        front ? static_cast<const char*>(allocation_) : static_cast<const char*>(data()) + bytes_;
    check_cuda(cudaMemcpy(guard.data(), source, kGuardBytes, cudaMemcpyDeviceToHost),
               "reading a guard of " + name_);
    const auto first = std::ranges::find_if(guard, [](unsigned char byte) { return byte != kGuardByte; });
    if (first == guard.end()) continue;
    const std::int64_t offset = first - guard.begin() + (front ? -kGuardBytes : bytes_);
    throw DeviceError("a kernel wrote outside " + name_ + ": its first wrong byte is byte " +
                      std::to_string(offset) + ", " + name_ + " has bytes 0 ... " +
                      std::to_string(bytes_ - 1));
  }
}

Stream::Stream() {
  check_cuda(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "creating a stream");
}

void Stream::synchronize(const std::string& what) const { check_cuda(cudaStreamSynchronize(stream_), what); }

}  // namespace tilescope
