// SPDX-License-Identifier: Apache-2.0
// The launch layer on a device: every work item is taken once by grids of all kinds, clusters are as large as
// asked for, and logs and step clocks are by work item where CTAs are fewer.
#include <doctest/doctest.h>

#include <cuda.h>

#include <vector>

#include "gpu/launch/launch.cuh"
#include "gpu/primitives/common/step_clock.cuh"
#include "gpu/primitives/common/tile_log.cuh"

namespace tilescope {
namespace {

/// As large and as aligned as a tensor map, which it stands for.
struct alignas(64) Parameter {
  int numbers[sizeof(CUtensorMap) / sizeof(int)];
};

__global__ void visit_items(KernelArguments args, const __grid_constant__ Parameter parameter, int* visits) {
  const auto items = static_cast<unsigned>(args.grid.size());
  for (unsigned item = work_item(); item < items; item += gridDim.x) {
    const TileLogEntry entry(args.log, 0, 0, 0, static_cast<int>(item), parameter.numbers[31], item,
                             threadIdx.x == 0);
    note_step(args, 0, item);
    if (threadIdx.x == 0) atomicAdd(visits + item, 1);
  }
}

__global__ void visit_place(int* visits) {
  if (threadIdx.x == 0) atomicAdd(visits + work_item_3d(), 1);
}

__global__ void note_cluster(unsigned* sizes) {
#if __CUDA_ARCH__ >= 900
  unsigned ctas;
  asm volatile("mov.u32 %0, %%cluster_nctarank;" : "=r"(ctas));
  if (threadIdx.x == 0) sizes[blockIdx.x] = ctas;
#endif
}

template <typename T>
std::vector<T> downloaded(const DeviceBuffer& buffer) {
  std::vector<T> host(static_cast<std::size_t>(buffer.bytes()) / sizeof(T));
  check_cuda(cudaMemcpy(host.data(), buffer.data(), host.size() * sizeof(T), cudaMemcpyDeviceToHost),
             "download");
  return host;
}

DeviceBuffer zeros(std::int64_t bytes) {
  DeviceBuffer buffer("numbers", bytes);
  buffer.zero(nullptr);
  return buffer;
}

/// A pass of that many work items.
TileProgram program_of(int items) {
  const AttentionProblem problem{.seqlen_q = items, .seqlen_k = 1};
  return build_programs(Algorithm::flash2, Direction::forward, problem, ProgramOptions::with_tile({1, 1}))
      .front();
}

constexpr LaunchShape kShape{.threads_per_cta = 64};

}  // namespace

TEST_CASE("persistent CTAs take every work item once, and log it in its place") {
  constexpr int kItems = 1000;
  const TileProgram program = program_of(kItems);
  Parameter parameter{};
  parameter.numbers[31] = 42;
  for (const CtaGrid& grid :
       {cta_for_each_item(program), persistent_ctas(program, 7), persistent_ctas(program, 3, 2)}) {
    DeviceBuffer visits = zeros(kItems * sizeof(int)), counts = zeros(kItems * sizeof(int)),
                 states = zeros(kItems * sizeof(DeviceTileState));
    KernelArguments args;
    args.grid = program.grid;
    args.log = {static_cast<DeviceTileState*>(states.data()), static_cast<int*>(counts.data()), 1};
    launch_ctas(visit_items, program.name, grid, kShape, nullptr, args, parameter,
                static_cast<int*>(visits.data()));
    check_cuda(cudaDeviceSynchronize(), "visiting");
    CHECK(downloaded<int>(visits) == std::vector<int>(kItems, 1));
    CHECK(downloaded<int>(counts) == std::vector<int>(kItems, 1));
    const auto logged = downloaded<DeviceTileState>(states);
    for (int item = 0; item < kItems; ++item) {
      REQUIRE(logged[static_cast<std::size_t>(item)].m_block == item);
      REQUIRE(logged[static_cast<std::size_t>(item)].n_block == 42);
    }
  }
}

TEST_CASE("a grid of three dimensions has each work item once") {
  const CtaGrid grid{.ctas = dim3(3, 4, 5)};
  DeviceBuffer visits = zeros(grid.size() * static_cast<std::int64_t>(sizeof(int)));
  launch_ctas(visit_place, PassName::forward, grid, kShape, nullptr, static_cast<int*>(visits.data()));
  check_cuda(cudaDeviceSynchronize(), "visiting");
  CHECK(downloaded<int>(visits) == std::vector<int>(60, 1));
}

TEST_CASE("CTAs lie in clusters of the size asked for") {
  if (current_device().chip.compute_capability < 90) return;
  const TileProgram program = program_of(100);
  for (const int size : {1, 2, 4, 8}) {
    const CtaGrid grid = persistent_ctas(program, 16, 1, size);
    CHECK(grid.size() == 16);
    DeviceBuffer sizes = zeros(grid.size() * static_cast<std::int64_t>(sizeof(unsigned)));
    launch_ctas(note_cluster, program.name, grid, kShape, nullptr, static_cast<unsigned*>(sizes.data()));
    check_cuda(cudaDeviceSynchronize(), "noting clusters");
    CHECK(downloaded<unsigned>(sizes) == std::vector<unsigned>(16, static_cast<unsigned>(size)));
  }
}

}  // namespace tilescope
