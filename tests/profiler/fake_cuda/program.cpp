// SPDX-License-Identifier: Apache-2.0
// Somebody's CUDA program on the fake driver, in as many ways as it has modes, each with launches, a word of
// its own and an exit code of its own.
#include <cuda.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "tests/profiler/fake_cuda/fake_cuda.hpp"

namespace {

void check(CUresult result) {
  if (result != CUDA_SUCCESS) std::_Exit(1);
}

/// Makes a device's context current for this thread.
void use(int device) {
  static CUcontext contexts[fake_cuda::kDevices];
  if (!contexts[device]) check(cuDevicePrimaryCtxRetain(&contexts[device], device));
  check(cuCtxPushCurrent(contexts[device]));
}

void launch(const char* name) {
  auto* function = reinterpret_cast<CUfunction>(const_cast<char*>(name));
  check(cuLaunchKernel(function, 7, 1, 1, 32, 1, 1, 0, nullptr, nullptr, nullptr));
}

void launch_on(int device, const char* name) {
  use(device);
  launch(name);
}

void plain() {
  use(0);
  for (int i = 0; i < 2; ++i) launch("fake_kernel");
}

void aborts() {
  plain();
  std::abort();
}

void devices_in_turn() {
  for (int i = 0; i < 6; ++i) launch_on(i % 2, "fake_kernel");
}

/// Two contexts of one device. What the program has made current stays so.
void contexts_in_turn() {
  CUcontext contexts[2];
  check(cuDevicePrimaryCtxRetain(&contexts[0], 0));
  contexts[1] = fake_cuda::second_context(0);
  for (int i = 0; i < 6; ++i) {
    CUcontext mine = contexts[i % 2], now = nullptr;
    check(cuCtxPushCurrent(mine));
    launch("fake_kernel");
    check(cuCtxGetCurrent(&now));
    if (now != mine) std::_Exit(6);
    check(cuCtxPopCurrent(&now));
  }
}

constexpr const char* kCollective = "ncclDevKernel_AllReduce_Sum_f32_RING_LL";

/// As ncclGroupEnd does: one thread launches on each device in turn.
void collective_of_one_thread() {
  for (const char* kernel : {"before", kCollective, "after"}) {
    for (int device = 0; device < 2; ++device) launch_on(device, kernel);
  }
  check(cuCtxSynchronize());
}

/// A thread a device, of which the second comes late.
void collective_of_two_threads() {
  use(0);
  use(1);
  std::vector<std::thread> threads;
  for (int device = 0; device < 2; ++device) {
    threads.emplace_back([device] {
      std::this_thread::sleep_for(std::chrono::milliseconds(300 * device));
      launch_on(device, kCollective);
      launch_on(device, "after");
      check(cuCtxSynchronize());
    });
  }
  for (std::thread& thread : threads) thread.join();
}

CUgraph graph_of(std::vector<const char*> kernels) {
  return reinterpret_cast<CUgraph>(new fake_cuda::Graph{std::move(kernels)});
}

void graphs() {
  use(0);
  CUgraphExec executable = nullptr;
  check(cuGraphInstantiate(&executable, graph_of({"alone"}), 0));
  check(cuGraphLaunch(executable, nullptr));
  CUgraphExecUpdateResultInfo result{};
  check(cuGraphExecUpdate(executable, graph_of({"first", "second", "third"}), &result));
  check(cuGraphLaunch(executable, nullptr));
}

/// A node of an executable graph gets another kernel, before and after the whole graph gets another.
void graph_node() {
  use(0);
  auto* graph = new fake_cuda::Graph{{"alone"}};
  const auto node = reinterpret_cast<CUgraphNode>(graph->kernels.data());
  CUgraphExec executable = nullptr;
  check(cuGraphInstantiate(&executable, reinterpret_cast<CUgraph>(graph), 0));
  check(cuGraphLaunch(executable, nullptr));
  const auto set_node = [&](const char* name) {
    CUDA_KERNEL_NODE_PARAMS parameters{};
    parameters.func = reinterpret_cast<CUfunction>(const_cast<char*>(name));
    check(cuGraphExecKernelNodeSetParams(executable, node, &parameters));
    check(cuGraphLaunch(executable, nullptr));
  };
  set_node("second");
  CUgraphExecUpdateResultInfo result{};
  check(cuGraphExecUpdate(executable, graph_of({"third"}), &result));
  check(cuGraphLaunch(executable, nullptr));
  set_node("fourth");
}

void collective_in_graph() {
  CUgraphExec executable = nullptr;
  for (int device = 0; device < 2; ++device) {
    use(device);
    check(cuGraphInstantiate(&executable, graph_of({"first", kCollective}), 0));
    check(cuGraphLaunch(executable, nullptr));
  }
  check(cuCtxSynchronize());
}

void hangs() {
  launch_on(0, "fake_kernel");
  launch(fake_cuda::kEndless);
  check(cuCtxSynchronize());
}

}  // namespace

int main(int count, char** arguments) {
  const std::map<std::string, void (*)()> modes = {
      {"plain", plain},
      {"abort", aborts},
      {"devices", devices_in_turn},
      {"contexts", contexts_in_turn},
      {"collective", collective_of_one_thread},
      {"collective-threads", collective_of_two_threads},
      {"collective-graph", collective_in_graph},
      {"graphs", graphs},
      {"graph-node", graph_node},
      {"hang", hangs},
  };
  check(cuInit(0));
  modes.at(count > 1 ? arguments[1] : "plain")();
  std::puts("the command's own output");
  return 5;
}
