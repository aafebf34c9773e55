// SPDX-License-Identifier: Apache-2.0
// What the devices say of themselves.
#include <cstdio>

#include "emulator/runtime/devices.hpp"
#include "emulator/runtime/errors.hpp"

using namespace tilescope::gpu::emulator;

extern "C" {

cudaError_t cudaGetDeviceCount(int* count) {
  *count = 0;
  if (stuck_failure()) {  // which says nothing of how many there are
    *count = device_choice().devices;
    return cudaSuccess;
  }
  return as_call("cudaGetDeviceCount", [&] {
    if (device_choice().devices == 0) throw CudaFailure(cudaErrorNoDevice, "TILESCOPE_EMULATED_DEVICES is 0");
    *count = device_choice().devices;
  });
}
cudaError_t cudaGetDevice(int* number) {
  return as_call("cudaGetDevice", [&] { *number = current_device().number(); });
}
cudaError_t cudaSetDevice(int number) {
  return as_call("cudaSetDevice", [&] { choose_device(number); });
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int number) {
  return as_call("cudaDeviceGetAttribute", [&] {
    device(number);
    *value = attribute_of_device(attribute);
  });
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int number) {
  return as_call("cudaGetDeviceProperties", [&] {
    device(number);
    *properties = {};
    const bool hopper = device_choice().compute_capability == 90;
    std::snprintf(properties->name, sizeof properties->name, "emulated %s", hopper ? "H200" : "A100");
    properties->major = attribute_of_device(cudaDevAttrComputeCapabilityMajor);
    properties->minor = attribute_of_device(cudaDevAttrComputeCapabilityMinor);
    properties->multiProcessorCount = attribute_of_device(cudaDevAttrMultiProcessorCount);
    properties->totalGlobalMem = Device::kTotalBytes;
    properties->sharedMemPerBlock =
        static_cast<std::size_t>(attribute_of_device(cudaDevAttrMaxSharedMemoryPerBlock));
    properties->sharedMemPerBlockOptin =
        static_cast<std::size_t>(attribute_of_device(cudaDevAttrMaxSharedMemoryPerBlockOptin));
    properties->warpSize = attribute_of_device(cudaDevAttrWarpSize);
    properties->maxThreadsPerBlock = attribute_of_device(cudaDevAttrMaxThreadsPerBlock);
  });
}

cudaError_t cudaDriverGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int* version) { return cudaDriverGetVersion(version); }

// Copies between devices are all the same; their kernels see their own device's memory.
cudaError_t cudaDeviceCanAccessPeer(int* can, int number, int peer) {
  return as_call("cudaDeviceCanAccessPeer", [&] { *can = &device(number) != &device(peer); });
}
cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned) {
  return as_call("cudaDeviceEnablePeerAccess", [&] { device(peer); });
}
}
