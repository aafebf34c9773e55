// SPDX-License-Identifier: Apache-2.0
// The CUDA runtime on an emulated device: what programs meet of it, and what it says of their errors.
#define DOCTEST_CONFIG_IMPLEMENT_WITH_MAIN
#include <cuda_runtime.h>
#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "emulator/runtime/fatbin.hpp"

namespace {

constexpr int kThreads = 64;

__constant__ int table[2] = {3, 0};
__device__ int launches;

struct Pair {
  double factor;
  int first;
};

/// to[i] = from[i] reversed in its CTA, times factor, plus the table
template <typename T>
__global__ void reverse(const T* from, T* to, int n, Pair pair) {
  extern __shared__ char dynamic[];
  T* const values = reinterpret_cast<T*>(dynamic);
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  values[threadIdx.x] = i < n ? from[i] : T(0);
  __syncthreads();
  const T other = values[blockDim.x - 1 - threadIdx.x];
  if (i < n) to[i] = T(pair.factor) * other + T(pair.first + table[0] + table[1]);
  if (i == 0) atomicAdd(&launches, 1);
}

__global__ void write_beyond(int* numbers, int n) { numbers[n + static_cast<int>(threadIdx.x)] = 1; }

/// Threads read what others write, with a barrier between or none.
__global__ void exchange(int* numbers, bool waits) {
  __shared__ int values[kThreads];
  values[threadIdx.x] = static_cast<int>(threadIdx.x);
  if (waits) __syncthreads();
  numbers[threadIdx.x] = values[kThreads - 1 - threadIdx.x];
}

/// Of clusters that the kernel is compiled for.
__global__ void __cluster_dims__(2, 1, 1) pairs() {
  unsigned in_cluster = 0;
  asm("mov.u32 %0, %%cluster_nctaid.x;" : "=r"(in_cluster));
  if (in_cluster != 2) asm("trap;");
}

template <typename T>
T* allocated(std::size_t count) {
  void* memory = nullptr;
  REQUIRE(cudaMalloc(&memory, count * sizeof(T)) == cudaSuccess);
  return static_cast<T*>(memory);
}

template <typename T>
std::vector<T> downloaded(const T* from, std::size_t count) {
  std::vector<T> host(count);
  REQUIRE(cudaMemcpy(host.data(), from, count * sizeof(T), cudaMemcpyDeviceToHost) == cudaSuccess);
  return host;
}

int launches_so_far() {
  void* counter = nullptr;
  REQUIRE(cudaGetSymbolAddress(&counter, launches) == cudaSuccess);
  return downloaded(static_cast<int*>(counter), 1)[0];
}

/// The exit code of a child that runs `body` on a device of its own; a failure that sticks stays there.
template <typename Body>
int in_child(Body&& body) {
  const pid_t child = fork();
  if (child == 0) _exit(body());
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

}  // namespace

TEST_CASE("a launch has its arguments, dynamic shared memory, constants and variables") {
  constexpr int kN = 2 * kThreads;
  std::vector<float> numbers(kN);
  for (int i = 0; i < kN; ++i) numbers[static_cast<std::size_t>(i)] = static_cast<float>(i);
  auto *const from = allocated<float>(kN), *const to = allocated<float>(kN);
  REQUIRE(cudaMemcpy(from, numbers.data(), kN * sizeof(float), cudaMemcpyHostToDevice) == cudaSuccess);
  const int more = 4;
  REQUIRE(cudaMemcpyToSymbol(table, &more, sizeof more, sizeof more) == cudaSuccess);
  const int before = launches_so_far();
  reverse<<<2, kThreads, kThreads * sizeof(float)>>>(from, to, kN, Pair{2, 1});
  REQUIRE(cudaGetLastError() == cudaSuccess);
  REQUIRE(cudaDeviceSynchronize() == cudaSuccess);
  const std::vector<float> result = downloaded(to, kN);
  for (int i = 0; i < kN; ++i) {
    const int mirrored = i / kThreads * kThreads + kThreads - 1 - i % kThreads;
    CHECK(result[static_cast<std::size_t>(i)] == static_cast<float>(2 * mirrored + 1 + 3 + 4));
  }
  CHECK(launches_so_far() == before + 1);
  CHECK(cudaFree(from) == cudaSuccess);
  CHECK(cudaFree(to) == cudaSuccess);
}

TEST_CASE("fresh memory reads as NaN, is aligned, and is given back") {
  std::size_t before = 0, during = 0, after = 0, total = 0;
  REQUIRE(cudaMemGetInfo(&before, &total) == cudaSuccess);
  auto* const numbers = allocated<float>(3);
  REQUIRE(cudaMemGetInfo(&during, &total) == cudaSuccess);
  CHECK(reinterpret_cast<std::uintptr_t>(numbers) % 256 == 0);
  for (const float number : downloaded(numbers, 3)) CHECK(number != number);
  CHECK(before - during == 3 * sizeof(float));
  REQUIRE(cudaFree(numbers) == cudaSuccess);
  REQUIRE(cudaMemGetInfo(&after, &total) == cudaSuccess);
  CHECK(after == before);
  CHECK(cudaFree(numbers) == cudaErrorInvalidValue);
  CHECK(cudaGetLastError() == cudaErrorInvalidValue);
  CHECK(cudaGetLastError() == cudaSuccess);
}

TEST_CASE("copies beyond an allocation are refused") {
  auto* const bytes = allocated<char>(100);
  std::array<char, 101> host{};
  CHECK(cudaMemcpy(bytes, host.data(), 101, cudaMemcpyHostToDevice) == cudaErrorInvalidValue);
  CHECK(cudaMemcpy(host.data(), bytes + 1, 100, cudaMemcpyDeviceToHost) == cudaErrorInvalidValue);
  CHECK(cudaMemset(bytes, 0, 101) == cudaErrorInvalidValue);
  CHECK(cudaMemcpy2DAsync(bytes, 30, host.data(), 10, 10, 4, cudaMemcpyHostToDevice, nullptr) == cudaSuccess);
  CHECK(cudaMemcpy2DAsync(bytes, 31, host.data(), 10, 10, 4, cudaMemcpyHostToDevice, nullptr) ==
        cudaErrorInvalidValue);
  cudaGetLastError();
  cudaFree(bytes);
}

TEST_CASE("a captured stream's work is done by each launch of the graph") {
  auto *const from = allocated<int>(kThreads), *const to = allocated<int>(kThreads);
  cudaStream_t stream = nullptr;
  REQUIRE(cudaStreamCreate(&stream) == cudaSuccess);
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;
  REQUIRE(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal) == cudaSuccess);
  const int before = launches_so_far();
  CHECK(cudaMemsetAsync(from, 0, kThreads * sizeof(int), stream) == cudaSuccess);
  reverse<<<1, kThreads, kThreads * sizeof(int), stream>>>(from, to, kThreads, Pair{1, 5});
  CHECK(cudaStreamSynchronize(stream) == cudaErrorStreamCaptureInvalidated);
  REQUIRE(cudaStreamEndCapture(stream, &graph) == cudaSuccess);
  CHECK(launches_so_far() == before);
  REQUIRE(cudaGraphInstantiate(&executable, graph, 0) == cudaSuccess);
  for (int i = 0; i < 2; ++i) REQUIRE(cudaGraphLaunch(executable, stream) == cudaSuccess);
  CHECK(launches_so_far() == before + 2);
  CHECK(cudaStreamDestroy(stream) == cudaSuccess);
  CHECK(cudaStreamSynchronize(stream) == cudaErrorInvalidResourceHandle);
  cudaGetLastError();
  cudaFree(from);
  cudaFree(to);
}

TEST_CASE("an event in a captured stream is not recorded by the graph, which outlives it") {
  cudaStream_t stream = nullptr;
  cudaEvent_t before = nullptr, inside = nullptr, destroyed = nullptr;
  for (cudaEvent_t* event : {&before, &inside, &destroyed}) REQUIRE(cudaEventCreate(event) == cudaSuccess);
  REQUIRE(cudaStreamCreate(&stream) == cudaSuccess);
  REQUIRE(cudaEventRecord(before, stream) == cudaSuccess);
  REQUIRE(cudaEventRecord(inside, stream) == cudaSuccess);
  float milliseconds = -1;
  CHECK(cudaEventElapsedTime(&milliseconds, before, inside) == cudaSuccess);
  CHECK(milliseconds >= 0);

  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;
  REQUIRE(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal) == cudaSuccess);
  CHECK(cudaEventRecord(inside, stream) == cudaSuccess);
  CHECK(cudaEventRecord(destroyed, stream) == cudaSuccess);
  REQUIRE(cudaStreamEndCapture(stream, &graph) == cudaSuccess);
  REQUIRE(cudaGraphInstantiate(&executable, graph, 0) == cudaSuccess);
  REQUIRE(cudaEventDestroy(destroyed) == cudaSuccess);
  CHECK(cudaGraphLaunch(executable, stream) == cudaSuccess);
  CHECK(cudaDeviceSynchronize() == cudaSuccess);
  CHECK(cudaEventElapsedTime(&milliseconds, before, inside) == cudaErrorInvalidResourceHandle);
  cudaGetLastError();
  for (const cudaEvent_t event : {before, inside}) CHECK(cudaEventDestroy(event) == cudaSuccess);
  CHECK(cudaStreamDestroy(stream) == cudaSuccess);
}

TEST_CASE("a launch beyond the device's limits is refused, and leaves nothing behind") {
  const auto refused = [](dim3 grid, dim3 block, std::size_t shared_bytes) {
    reverse<<<grid, block, shared_bytes>>>(static_cast<int*>(nullptr), static_cast<int*>(nullptr), 0, Pair{});
    return cudaGetLastError();
  };
  CHECK(refused(1, 1025, 0) == cudaErrorInvalidConfiguration);
  CHECK(refused(0, 32, 0) == cudaErrorInvalidConfiguration);
  CHECK(refused(1, 32, 48 * 1024 + 1) == cudaErrorInvalidValue);
  CHECK(cudaFuncSetAttribute(reverse<int>, cudaFuncAttributeMaxDynamicSharedMemorySize, 227 * 1024 + 1) ==
        cudaErrorInvalidValue);
  cudaGetLastError();
  CHECK(cudaFuncSetAttribute(reverse<int>, cudaFuncAttributeMaxDynamicSharedMemorySize, 227 * 1024) ==
        cudaSuccess);
  CHECK(refused(1, 32, 48 * 1024 + 1) == cudaSuccess);
  CHECK(cudaDeviceSynchronize() == cudaSuccess);
  const auto exchanged = [](std::size_t shared_bytes) {
    auto* const numbers = allocated<int>(kThreads);
    exchange<<<1, kThreads, shared_bytes>>>(numbers, true);
    const cudaError_t status = cudaGetLastError();
    CHECK(cudaDeviceSynchronize() == cudaSuccess);
    cudaFree(numbers);
    return status;
  };
  CHECK(exchanged(48 * 1024 - kThreads * sizeof(int)) == cudaSuccess);
  CHECK(exchanged(48 * 1024) == cudaErrorInvalidValue);  // its own 256 bytes come on top
  pairs<<<4, 32>>>();
  CHECK(cudaGetLastError() == cudaSuccess);
  CHECK(cudaDeviceSynchronize() == cudaSuccess);
  pairs<<<3, 32>>>();
  CHECK(cudaGetLastError() == cudaErrorInvalidClusterSize);
}

TEST_CASE("an access beyond an allocation fails the launch, and every call after it") {
  const int code = in_child([] {
    void *numbers = nullptr, *others = nullptr;
    if (cudaMalloc(&numbers, 4 * kThreads) != cudaSuccess) return 1;
    write_beyond<<<1, kThreads>>>(static_cast<int*>(numbers), 1);
    if (cudaDeviceSynchronize() != cudaErrorLaunchFailure) return 2;
    if (cudaMalloc(&others, 1) != cudaErrorLaunchFailure) return 3;
    return cudaGetLastError() == cudaErrorLaunchFailure && cudaGetLastError() == cudaErrorLaunchFailure ? 0
                                                                                                        : 4;
  });
  CHECK(code == 0);
}

TEST_CASE("a race fails the launch where races are looked for") {
  const auto status_of = [](bool waits, const char* races) {
    return in_child([=] {
      setenv("TILESCOPE_EMULATED_RACES", races, 1);
      void* numbers = nullptr;
      if (cudaMalloc(&numbers, kThreads * sizeof(int)) != cudaSuccess) return 1;
      exchange<<<1, kThreads>>>(static_cast<int*>(numbers), waits);
      return cudaDeviceSynchronize() == cudaErrorLaunchFailure ? 2 : 0;
    });
  };
  CHECK(status_of(true, "1") == 0);
  CHECK(status_of(false, "1") == 2);
  CHECK(status_of(false, "0") == 0);
}

TEST_CASE("compressed PTX is refused by name, machine code alone has none") {
  struct {
    std::uint32_t header[4] = {0xba55ed50, 0x00100001, 0x48, 0};
    std::uint32_t entry[18] = {0x01010001, 0x40, 8, 0, 6, 0x40, 0x00090000, 90, 0, 0, 0x8011};
  } fatbin;
  struct {
    std::uint32_t magic = 0x466243b1, version = 1;
    const void *data, *more = nullptr;
  } wrapper{.data = &fatbin};
  using tilescope::gpu::emulator::ptx_texts;
  CHECK_THROWS_WITH(ptx_texts(&wrapper),
                    "the PTX in this program is compressed: compile with nvcc --compress-mode=none");
  fatbin.entry[10] = 0x11;
  std::memcpy(fatbin.entry + 16, "// PTX\n", 8);
  REQUIRE(ptx_texts(&wrapper).size() == 1);
  CHECK(ptx_texts(&wrapper)[0].text == "// PTX\n");
  CHECK(ptx_texts(&wrapper)[0].compute_capability == 90);
  fatbin.entry[0] = 0x01010002;
  CHECK(ptx_texts(&wrapper).empty());
}
