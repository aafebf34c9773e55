// SPDX-License-Identifier: Apache-2.0
// The launch layer on a device: every work item is taken once by grids of all kinds, and logs and step clocks
// are by work item where CTAs are fewer.
#include <doctest/doctest.h>

#include <cuda.h>

#include <vector>

#include "gpu/launch/device.hpp"
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
  if (threadIdx.x == 0) atomicAdd(visits + (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x, 1);
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
       {cta_for_each_item(program), persistent_ctas(kItems, 7), persistent_ctas(kItems, 2 * kItems)}) {
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

TEST_CASE("a launch that the device cannot take is refused with the pass's name") {
  constexpr LaunchShape kTooMuch{.threads_per_cta = 64, .shared_bytes = 1 << 20};
  const auto launch = [](const CtaGrid& grid, LaunchShape shape) {
    launch_ctas(visit_place, PassName::dkdv, grid, shape, nullptr, static_cast<int*>(nullptr));
  };
  CHECK_THROWS_WITH_AS(launch({.ctas = dim3(1)}, kTooMuch),
                       doctest::Contains("1048576 bytes of shared memory, pass dkdv"), DeviceError);
  CHECK_THROWS_WITH_AS(launch({.ctas = dim3(0)}, kShape), doctest::Contains("launching pass dkdv"),
                       DeviceError);
  check_cuda(cudaDeviceSynchronize(), "after a refused launch");
}

}  // namespace tilescope
