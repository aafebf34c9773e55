// SPDX-License-Identifier: Apache-2.0
#include "emulator/runtime/errors.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>

#include "common/demangle.hpp"

namespace tilescope::gpu::emulator {
namespace {

thread_local cudaError_t last_failure = cudaSuccess;

std::atomic<cudaError_t> stuck = cudaSuccess;  // for good
std::atomic<bool> is_met = false;              // whether a call has waited for what failed

struct ErrorText {
  cudaError_t status;
  const char *name, *text;
};
#define TILESCOPE_ERROR(name, text) \
  { name, #name, text }
/// Those that the emulated runtime returns; the words are CUDA's where programs show them.
constexpr std::array kErrors{
    ErrorText TILESCOPE_ERROR(cudaSuccess, "no error"),
    ErrorText TILESCOPE_ERROR(cudaErrorInvalidValue, "invalid argument"),
    ErrorText TILESCOPE_ERROR(cudaErrorMemoryAllocation, "out of memory"),
    ErrorText TILESCOPE_ERROR(cudaErrorInvalidConfiguration, "invalid configuration argument"),
    ErrorText TILESCOPE_ERROR(cudaErrorInvalidSymbol, "invalid device symbol"),
    ErrorText TILESCOPE_ERROR(cudaErrorInvalidDeviceFunction, "invalid device function"),
    ErrorText TILESCOPE_ERROR(cudaErrorNoDevice, "no CUDA-capable device is detected"),
    ErrorText TILESCOPE_ERROR(cudaErrorInvalidDevice, "invalid device ordinal"),
    ErrorText TILESCOPE_ERROR(cudaErrorNoKernelImageForDevice,
                              "no kernel image is available for execution on the device"),
    ErrorText TILESCOPE_ERROR(cudaErrorInvalidPtx, "a PTX JIT compilation failed"),
    ErrorText TILESCOPE_ERROR(cudaErrorInvalidResourceHandle, "invalid resource handle"),
    ErrorText TILESCOPE_ERROR(cudaErrorSymbolNotFound, "named symbol not found"),
    ErrorText TILESCOPE_ERROR(cudaErrorNotReady, "device not ready"),
    ErrorText TILESCOPE_ERROR(cudaErrorIllegalAddress, "an illegal memory access was encountered"),
    ErrorText TILESCOPE_ERROR(cudaErrorLaunchOutOfResources, "too many resources requested for launch"),
    ErrorText TILESCOPE_ERROR(cudaErrorPeerAccessAlreadyEnabled, "peer access is already enabled"),
    ErrorText TILESCOPE_ERROR(cudaErrorLaunchFailure, "unspecified launch failure"),
    ErrorText TILESCOPE_ERROR(cudaErrorInvalidClusterSize, "invalid cluster size"),
    ErrorText TILESCOPE_ERROR(cudaErrorNotSupported, "operation not supported"),
    ErrorText TILESCOPE_ERROR(cudaErrorStreamCaptureInvalidated,
                              "operation failed due to a previous error during capture"),
    ErrorText TILESCOPE_ERROR(cudaErrorUnknown, "unknown error")};
#undef TILESCOPE_ERROR

const ErrorText& words_of(cudaError_t status) {
  for (const ErrorText& error : kErrors) {
    if (error.status == status) return error;
  }
  return kErrors.back();
}

/// With the names of kernels as C++ has them.
std::string readable(const std::string& message) {
  constexpr const char* kOfNames = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_";
  const std::size_t begin = message.find("_Z");
  if (begin == std::string::npos) return message;
  const std::size_t end = std::min(message.find_first_not_of(kOfNames, begin), message.size());
  return message.substr(0, begin) + demangle(message.substr(begin, end - begin)) +
         readable(message.substr(end));
}

}  // namespace

void say(const std::string& message) {
  std::fprintf(stderr, "emulated device: %s\n", readable(message).c_str());
}

cudaError_t note_failure(cudaError_t status, const std::string& message, bool sticks) {
  if (sticks) {
    stuck = status;
  } else {
    last_failure = status;
  }
  // Nobody waits for these to happen: "not ready" is an answer, not a failure.
  if (status != cudaErrorNotReady) say(message);
  return status;
}

cudaError_t stuck_failure() { return is_met ? stuck.load() : cudaSuccess; }
bool has_failed() { return stuck != cudaSuccess; }
void meet_failures() {
  if (has_failed()) is_met = true;
}

}  // namespace tilescope::gpu::emulator

using namespace tilescope::gpu::emulator;

extern "C" {

cudaError_t cudaPeekAtLastError() { return stuck_failure() ? stuck_failure() : last_failure; }

cudaError_t cudaGetLastError() {
  const cudaError_t last = cudaPeekAtLastError();
  last_failure = cudaSuccess;
  return last;
}

const char* cudaGetErrorName(cudaError_t status) { return words_of(status).name; }
const char* cudaGetErrorString(cudaError_t status) { return words_of(status).text; }
}
