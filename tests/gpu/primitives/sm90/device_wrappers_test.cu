// SPDX-License-Identifier: Apache-2.0
// Each wrapper of gpu/primitives/sm90 on the device, with small integers: results are exact.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <doctest/doctest.h>

#include <random>
#include <vector>

#include "common/errors.hpp"
#include "gpu/primitives/sm90/encode_tensor_map.hpp"
#include "gpu/primitives/sm90/fences.cuh"
#include "gpu/primitives/sm90/mbarrier.cuh"
#include "gpu/primitives/sm90/named_barrier.cuh"
#include "gpu/primitives/sm90/stage_accumulator.cuh"
#include "gpu/primitives/sm90/tma.cuh"
#include "gpu/primitives/sm90/wgmma.cuh"
#include "tests/gpu/primitives/sm90/matrix_product.cuh"

using namespace tilescope;
using namespace tilescope::gpu::sm90;

namespace sm90_test {

template <typename T>
class DeviceArray {
 public:
  explicit DeviceArray(std::size_t size) : size_(size) {
    REQUIRE(cudaMalloc(&data_, size * sizeof(T)) == cudaSuccess);
    cudaMemset(data_, 0xFF, size * sizeof(T));  // NaN
  }
  explicit DeviceArray(const std::vector<T>& host) : DeviceArray(host.size()) {
    cudaMemcpy(data_, host.data(), size_ * sizeof(T), cudaMemcpyHostToDevice);
  }
  ~DeviceArray() { cudaFree(data_); }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;
  T* data() { return data_; }
  std::vector<T> host() {
    std::vector<T> copy(size_);
    REQUIRE(cudaDeviceSynchronize() == cudaSuccess);
    cudaMemcpy(copy.data(), data_, size_ * sizeof(T), cudaMemcpyDeviceToHost);
    return copy;
  }

 private:
  T* data_ = nullptr;
  std::size_t size_;
};

std::uint16_t bits(WgmmaType type, int value) {
  return type == WgmmaType::fp16 ? __half_as_ushort(__float2half(static_cast<float>(value)))
                                 : __bfloat16_as_ushort(__float2bfloat16(static_cast<float>(value)));
}

TensorMapParameters matrix_map(WgmmaType type, int rows, int cols, int box_rows) {
  TensorMapParameters map;
  map.element = type == WgmmaType::fp16 ? MapElement::fp16 : MapElement::bf16;
  map.rank = 2;
  map.extent = {static_cast<std::uint64_t>(cols), static_cast<std::uint64_t>(rows)};
  map.stride_bytes = {2, 2 * static_cast<std::uint64_t>(cols)};
  map.box = {64, static_cast<std::uint32_t>(box_rows)};
  return map;
}

constexpr int kDepth = 64;  // K: four steps

/// One warpgroup: C (64 x N) = A B^T. A lies as 64 x K (or K x 64), B as N x K (or K x N).
template <int kN, WgmmaType kType, Major kMajorA, Major kMajorB, bool kFromRegisters>
__global__ void one_product(const __grid_constant__ CUtensorMap a, const __grid_constant__ CUtensorMap b,
                            const std::uint16_t* a_rows, float* c) {
  constexpr PanelTile kA = kMajorA == Major::k ? PanelTile{64, kDepth} : PanelTile{kDepth, 64};
  constexpr PanelTile kB = kMajorB == Major::k ? PanelTile{kN, kDepth} : PanelTile{kDepth, kN};
  extern __shared__ __align__(1024) unsigned char shared[];
  const std::uint32_t a_tile = shared_address_of(shared), b_tile = a_tile + kA.bytes(),
                      barrier = b_tile + kB.bytes();
  const int thread = static_cast<int>(threadIdx.x);
  if (thread == 0) {
    init_barrier(barrier, 1);
    fence_barrier_init();
  }
  __syncthreads();
  if (thread == 0) {
    arrive_expecting(barrier, kA.bytes() + kB.bytes());
    load_box(a_tile, a, barrier, 0, 0, CacheHint::normal);
    for (int panel = 0; panel < kB.panels(); ++panel) {
      load_box(b_tile + panel * kB.panel_bytes(), b, barrier, 64 * panel, 0, CacheHint::normal);
    }
  }
  wait(barrier, 0, "the operands");
  float d[kN / 2];
  std::uint32_t fragments[kDepth / 4];
  if constexpr (kFromRegisters) {
    for (int i = 0; i < kDepth / 4; ++i) {
      const Entry low = left_operand_entry(thread, i % 4, 0);
      const std::uint16_t* x = a_rows + low.row * kDepth + 16 * (i / 4) + low.col;
      fragments[i] = x[0] | static_cast<std::uint32_t>(x[1]) << 16;
    }
  }
  const Operand left(kA, kMajorA, a_tile), right(kB, kMajorB, b_tile);
  fence_wgmma();
#pragma unroll
  for (int step = 0; step < kDepth / 16; ++step) {
    const std::uint64_t b_step = right.at(k_step(kB, kMajorB, step));
    if constexpr (kFromRegisters) {
      multiply<kN, kType, kMajorB>(d, fragments + 4 * step, b_step, step > 0);
    } else {
      multiply<kN, kType, kMajorA, kMajorB>(d, left.at(k_step(kA, kMajorA, step)), b_step, step > 0);
    }
  }
  commit_wgmma();
  wait_for_wgmma<0>();
  for (int i = 0; i < kN / 2; ++i) {
    const Entry entry = accumulator_entry(thread, i);
    c[entry.row * kN + entry.col] = d[i];
  }
}

template <int kN, WgmmaType kType, Major kMajorA, Major kMajorB, bool kFromRegisters>
void check_product() {
  CAPTURE(kN);
  CAPTURE(static_cast<int>(kType));
  CAPTURE(static_cast<int>(kMajorA));
  CAPTURE(static_cast<int>(kMajorB));
  CAPTURE(kFromRegisters);
  std::mt19937 random(static_cast<unsigned>(kN));
  std::uniform_int_distribution<int> small(-8, 8);
  std::vector<int> a(64 * kDepth), b(kN * kDepth);
  for (int& x : a) x = small(random);
  for (int& x : b) x = small(random);
  std::vector<std::uint16_t> a_bits(a.size()), b_bits(b.size());
  for (int row = 0; row < 64; ++row) {
    for (int k = 0; k < kDepth; ++k) {
      a_bits[kMajorA == Major::k ? row * kDepth + k : k * 64 + row] = bits(kType, a[row * kDepth + k]);
    }
  }
  for (int col = 0; col < kN; ++col) {
    for (int k = 0; k < kDepth; ++k) {
      b_bits[kMajorB == Major::k ? col * kDepth + k : k * kN + col] = bits(kType, b[col * kDepth + k]);
    }
  }
  DeviceArray<std::uint16_t> a_device(a_bits), b_device(b_bits);
  DeviceArray<float> c(64 * kN);
  const auto a_map = encode_tensor_map(matrix_map(kType, 64, 64, 64), a_device.data());
  const auto b_map = encode_tensor_map(
      kMajorB == Major::k ? matrix_map(kType, kN, kDepth, kN) : matrix_map(kType, kDepth, kN, kDepth),
      b_device.data());
  const auto kernel = one_product<kN, kType, kMajorA, kMajorB, kFromRegisters>;
  const int shared_bytes = 2 * 64 * kDepth + 2 * ((kN + 63) / 64 * 64) * kDepth + 8;
  REQUIRE(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes) ==
          cudaSuccess);
  kernel<<<1, 128, shared_bytes>>>(a_map, b_map, a_device.data(), c.data());
  const std::vector<float> result = c.host();
  int wrong = 0;
  for (int row = 0; row < 64; ++row) {
    for (int col = 0; col < kN; ++col) {
      int sum = 0;
      for (int k = 0; k < kDepth; ++k) sum += a[row * kDepth + k] * b[col * kDepth + k];
      wrong += result[row * kN + col] != static_cast<float>(sum);
    }
  }
  CHECK(wrong == 0);
}

template <int kN, WgmmaType kType>
void check_width() {
  check_product<kN, kType, Major::k, Major::k, false>();
  check_product<kN, kType, Major::k, Major::k, true>();
  check_product<kN, kType, Major::mn, Major::k, false>();
  if constexpr (kN % 64 == 0) {
    check_product<kN, kType, Major::k, Major::mn, false>();
    check_product<kN, kType, Major::k, Major::mn, true>();
    check_product<kN, kType, Major::mn, Major::mn, false>();
  }
}

/// Loads a box of 16 x 64, adds 1 to what lies in it, and stores it elsewhere.
__global__ void move_box(const __grid_constant__ CUtensorMap from, const __grid_constant__ CUtensorMap to,
                         int col, int row) {
  extern __shared__ __align__(1024) unsigned char shared[];
  const std::uint32_t tile = shared_address_of(shared), barrier = tile + 16 * 128;
  if (threadIdx.x == 0) {
    init_barrier(barrier, 1);
    fence_barrier_init();
    arrive_expecting(barrier, 16 * 128);
    load_box(tile, from, barrier, col, row, 1, 2, CacheHint::evict_first);
  }
  __syncthreads();
  wait(barrier, 0, "the box");
  auto* element = reinterpret_cast<__nv_bfloat16*>(shared);
  for (unsigned i = threadIdx.x; i < 16 * 64; i += blockDim.x) element[i] += __float2bfloat16(1.0f);
  fence_async_proxy();
  __syncthreads();
  if (threadIdx.x == 0) {
    store_box(to, tile, col, row, 1, 2);
    commit_stores();
    wait_for_stores<0>();
  }
}

/// Adds 4 x 32 numbers 0, 1, 2 ... as a box of a matrix.
__global__ void add_numbers(const __grid_constant__ CUtensorMap matrix) {
  __shared__ __align__(128) float numbers[128];
  numbers[threadIdx.x] = static_cast<float>(threadIdx.x);
  fence_async_proxy();
  __syncthreads();
  if (threadIdx.x == 0) {
    add_box(matrix, shared_address_of(numbers), 32, 2, 0, 0);
    commit_stores();
    wait_for_stores<0>();
  }
}

struct SmallPair {
  static constexpr Sm90ProductShape shape{128, 256, 64, 4, 2, 2};
};
struct SmallAlone {
  static constexpr Sm90ProductShape shape{128, 256, 64, 3, 1, 2};
};

template <typename Choice>
void check_matrix_product(int m, int n, int k) {
  constexpr Sm90ProductShape kShape = Choice::shape;
  std::mt19937 random(7);
  std::uniform_int_distribution<int> small(-2, 2);
  std::vector<int> a(static_cast<std::size_t>(m * k)), b(static_cast<std::size_t>(n * k));
  std::vector<std::uint16_t> a_bits, b_bits;
  for (int& x : a) a_bits.push_back(bits(WgmmaType::bf16, x = small(random)));
  for (int& x : b) b_bits.push_back(bits(WgmmaType::bf16, x = small(random)));
  DeviceArray<std::uint16_t> a_device(a_bits), b_device(b_bits), c(static_cast<std::size_t>(m * n));
  const Sm90ProductArguments arguments{
      encode_tensor_map(matrix_map(WgmmaType::bf16, m, k, kShape.block_m), a_device.data()),
      encode_tensor_map(matrix_map(WgmmaType::bf16, n, k, kShape.block_n / kShape.cluster), b_device.data()),
      encode_tensor_map(matrix_map(WgmmaType::bf16, m, n, 16), c.data()),
      m,
      n,
      k};
  void (*const kernel)(Sm90ProductArguments) = sm90_matrix_product<Choice>;
  REQUIRE(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kShape.shared_bytes()) ==
          cudaSuccess);
  cudaLaunchConfig_t launch{};
  launch.gridDim = dim3(4);
  launch.blockDim = dim3(static_cast<unsigned>(kShape.threads()));
  launch.dynamicSmemBytes = static_cast<std::size_t>(kShape.shared_bytes());
  cudaLaunchAttribute cluster{};
  cluster.id = cudaLaunchAttributeClusterDimension;
  cluster.val.clusterDim = {static_cast<unsigned>(kShape.cluster), 1, 1};
  launch.attrs = &cluster;
  launch.numAttrs = 1;
  REQUIRE(cudaLaunchKernelEx(&launch, kernel, arguments) == cudaSuccess);
  const std::vector<std::uint16_t> result = c.host();
  int wrong = 0;
  for (int row = 0; row < m; ++row) {
    for (int col = 0; col < n; ++col) {
      int sum = 0;
      for (int i = 0; i < k; ++i)
        sum += a[static_cast<std::size_t>(row * k + i)] * b[static_cast<std::size_t>(col * k + i)];
      wrong += result[static_cast<std::size_t>(row * n + col)] != bits(WgmmaType::bf16, sum);
    }
  }
  CHECK(wrong == 0);
}

}  // namespace sm90_test

using namespace sm90_test;

TEST_CASE("products of small integers are exact at every width, type, major and source of A") {
  check_width<32, WgmmaType::bf16>();
  check_width<64, WgmmaType::fp16>();
  check_width<64, WgmmaType::bf16>();
  check_width<96, WgmmaType::fp16>();
  check_width<128, WgmmaType::fp16>();
  check_width<128, WgmmaType::bf16>();
  check_width<160, WgmmaType::bf16>();
  check_width<192, WgmmaType::bf16>();
  check_width<224, WgmmaType::fp16>();
  check_width<256, WgmmaType::bf16>();
  check_width<256, WgmmaType::fp16>();
}

TEST_CASE("boxes are clipped at the tensor's ends") {
  constexpr int kBatch = 3, kHeads = 2, kRows = 21, kCols = 104;
  std::vector<std::uint16_t> host(kBatch * kHeads * kRows * kCols);
  for (std::size_t i = 0; i < host.size(); ++i) host[i] = bits(WgmmaType::bf16, static_cast<int>(i % 120));
  for (const int col : {0, 64}) {
    for (const int row : {0, 8, 16}) {
      DeviceArray<std::uint16_t> from(host), to(host.size());
      const auto map = [&](void* data) {
        return encode_tensor_map(head_panels(MapElement::bf16, kBatch, kHeads, kRows, kCols,
                                             kHeads * kRows * kCols, kRows * kCols, kCols, 16),
                                 data);
      };
      move_box<<<1, 128, 16 * 128 + 8>>>(map(from.data()), map(to.data()), col, row);
      const std::vector<std::uint16_t> result = to.host();
      int wrong = 0;
      for (std::size_t i = 0; i < host.size(); ++i) {
        const int c = static_cast<int>(i) % kCols, r = static_cast<int>(i) / kCols % kRows,
                  head = static_cast<int>(i) / (kCols * kRows);
        const bool inside = head == 2 * kHeads + 1 && row <= r && r < row + 16 && col <= c && c < col + 64;
        wrong += result[i] != (inside ? bits(WgmmaType::bf16, static_cast<int>(i % 120) + 1) : 0xFFFF);
      }
      CHECK(wrong == 0);
    }
  }
}

TEST_CASE("the copy engine adds") {
  DeviceArray<float> matrix(std::vector<float>(8 * 64, 1.0f));
  TensorMapParameters parameters;
  parameters.element = MapElement::fp32;
  parameters.rank = 4;
  parameters.extent = {64, 8, 1, 1};
  parameters.stride_bytes = {4, 256, 2048, 2048};
  parameters.box = {32, 4, 1, 1};
  parameters.swizzle = Swizzle::none;
  add_numbers<<<3, 128>>>(encode_tensor_map(parameters, matrix.data()));
  const std::vector<float> sums = matrix.host();
  int wrong = 0;
  for (int i = 0; i < 8 * 64; ++i) {
    const int row = i / 64 - 2, col = i % 64 - 32;
    const bool inside = 0 <= row && row < 4 && 0 <= col;
    wrong += sums[static_cast<std::size_t>(i)] !=
             (inside ? 1.0f + 3.0f * static_cast<float>(32 * row + col) : 1.0f);
  }
  CHECK(wrong == 0);
}

TEST_CASE("a tensor that breaks a rule of maps is bad input, with the rule") {
  DeviceArray<float> matrix(std::vector<float>(8 * 64));
  CHECK_THROWS_WITH_AS(encode_tensor_map(matrix_map(WgmmaType::bf16, 8, 64, 8),
                                         reinterpret_cast<const std::byte*>(matrix.data()) + 4),
                       doctest::Contains("no tensor map: "), BadInput);
}

TEST_CASE("the matrix product is exact, alone and in pairs of CTAs") {
  check_matrix_product<SmallAlone>(512, 768, 320);
  check_matrix_product<SmallPair>(512, 768, 320);
  check_matrix_product<SmallPair>(1280, 512, 64);
}
