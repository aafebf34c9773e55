// SPDX-License-Identifier: Apache-2.0
// Somebody's CUDA program, for the tests to profile: `profiled_program MODE` launches touch_kernel in one of
// the ways in which programs launch kernels, or die of it.
#include <cuda.h>
#include <dlfcn.h>
#include <linux/capability.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "profiler/timing/nvtx_range.hpp"
#include "tests/profiler/device_kernels.hpp"

using namespace tilescope;
using namespace tilescope::testing;

namespace {

void check(cudaError_t status) {
  if (status == cudaSuccess) return;
  std::fprintf(stderr, "%s\n", cudaGetErrorString(status));
  std::_Exit(9);
}

void* buffer() {
  void* data = nullptr;
  check(cudaMalloc(&data, kTouchBytes));
  return data;
}

void touch(int times, void* data, cudaStream_t stream = nullptr) {
  for (int i = 0; i < times; ++i) launch_touch(data, stream);
  check(cudaGetLastError());
}

void streams() {
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([] {
      cudaStream_t stream = nullptr;
      check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
      touch(8, buffer(), stream);
      check(cudaStreamSynchronize(stream));
    });
  }
  for (std::thread& thread : threads) thread.join();
}

template <class Function>
Function driver_function(const char* name) {
  static void* const driver = dlopen("libcuda.so.1", RTLD_NOW);
  void* function = driver ? dlsym(driver, name) : nullptr;
  if (!function) std::_Exit(9);
  return reinterpret_cast<Function>(function);
}

/// The primary context, then a second one in turn with it.
void contexts() {
  void* data = buffer();
  touch(2, data);
  const auto create = driver_function<CUresult (*)(CUcontext*, unsigned, CUdevice)>("cuCtxCreate_v2");
  const auto destroy = driver_function<CUresult (*)(CUcontext)>("cuCtxDestroy_v2");
  CUcontext context = nullptr;
  if (create(&context, 0, 0) != CUDA_SUCCESS) std::_Exit(9);
  touch(3, buffer());  // the new context is current
  check(cudaDeviceSynchronize());
  destroy(context);
  check(cudaSetDevice(0));
  touch(2, data);
}

void fork_between() {
  void* data = buffer();
  touch(2, data);
  const pid_t child = fork();
  if (child == 0) std::exit(0);  // its exit handlers run, the injected library's among them
  int status = 0;
  waitpid(child, &status, 0);
  touch(2, data);
}

void graph() {
  void* data = buffer();
  cudaStream_t stream = nullptr;
  check(cudaStreamCreate(&stream));
  check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  touch(3, data, stream);
  cudaGraph_t captured = nullptr;
  cudaGraphExec_t executable = nullptr;
  check(cudaStreamEndCapture(stream, &captured));
  check(cudaGraphInstantiate(&executable, captured, 0));
  for (int i = 0; i < 2; ++i) check(cudaGraphLaunch(executable, stream));
  check(cudaStreamSynchronize(stream));
}

void crash() {
  touch(40, buffer());
  check(cudaDeviceSynchronize());
  std::abort();
}

void ranges() {
  void* data = buffer();
  touch(2, data);
  {
    const NvtxRange outer("training step");
    const NvtxRange inner("forward");
    touch(3, data);
    std::thread([&] { touch(1, data); }).join();  // as a backward pass on another thread
  }
  const NvtxRange other("evaluation");
  touch(4, data);
}

/// What a container without CAP_SYS_ADMIN gives.
void without_capabilities() {
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct none[2] = {};
  if (syscall(SYS_capset, &header, none) != 0) std::_Exit(9);
  touch(2, buffer());
}

}  // namespace

int main(int count, char** arguments) {
  const std::map<std::string, void (*)()> modes = {
      {"plain", [] { touch(5, buffer()); }},
      {"many", [] { touch(200, buffer()); }},
      {"streams", streams},
      {"contexts", contexts},
      {"fork", fork_between},
      {"graph", graph},
      {"crash", crash},
      {"ranges", ranges},
      {"without-capabilities", without_capabilities},
  };
  const auto mode = count == 2 ? modes.find(arguments[1]) : modes.end();
  if (mode == modes.end()) return 2;
  mode->second();
  check(cudaDeviceSynchronize());
  return 0;
}
