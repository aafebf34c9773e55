// SPDX-License-Identifier: Apache-2.0
// How wgmma sums products of fp8, to the bit: cpu_ref/primitives/fp8_matmul.hpp says it, fp8_dot() does it
// one number after the other.
#include <cuda_fp8.h>
#include <cuda_runtime.h>
#include <doctest/doctest.h>

#include <cmath>
#include <functional>
#include <random>
#include <vector>

#include "cpu_ref/judge/fp8_dot.hpp"
#include "gpu/primitives/sm90/byte_layout.hpp"
#include "gpu/primitives/sm90/fences.cuh"
#include "gpu/primitives/sm90/mbarrier.cuh"
#include "gpu/primitives/sm90/wgmma.cuh"
#include "tests/gpu/kernels/flash3/on_device.hpp"

using namespace tilescope;
using namespace tilescope::gpu::sm90;
using tilescope::testing::OnDevice;

namespace fp8_sums_test {

constexpr int kRows = 64, kCols = 32, kDepth = 256;  // eight instructions

/// C (64 x 32) += A (64 x 256) B (32 x 256)^T, a CTA each.
template <WgmmaType kType, bool kFromRegisters>
__global__ void add_products(const std::uint8_t* a, const std::uint8_t* b, float* c) {
  constexpr PanelTile kA{kRows, kDepth, 1}, kB{kCols, kDepth, 1};
  __shared__ __align__(1024) unsigned char shared[kA.bytes() + kB.bytes()];
  const int thread = static_cast<int>(threadIdx.x);
  a += blockIdx.x * kRows * kDepth;
  b += blockIdx.x * kCols * kDepth;
  c += blockIdx.x * kRows * kCols;
  for (int i = thread; i < kRows * kDepth; i += 128) shared[kA.offset(i / kDepth, i % kDepth)] = a[i];
  for (int i = thread; i < kCols * kDepth; i += 128) {
    shared[kA.bytes() + kB.offset(i / kDepth, i % kDepth)] = b[i];
  }
  std::uint32_t fragments[kDepth / 8] = {};
  for (int i = 0; i < kDepth / 8; ++i) {
    for (int byte = 0; byte < 4; ++byte) {
      const Entry entry = left_byte_entry(thread, i % 4, byte);
      fragments[i] |= static_cast<std::uint32_t>(a[entry.row * kDepth + 32 * (i / 4) + entry.col])
                      << 8 * byte;
    }
  }
  float sums[kCols / 2];
  for (int i = 0; i < kCols / 2; ++i) {
    const Entry entry = accumulator_entry(thread, i);
    sums[i] = c[entry.row * kCols + entry.col];
  }
  fence_async_proxy();
  __syncthreads();
  const std::uint32_t address = shared_address_of(shared);
  const Operand left(kA, Major::k, address), right(kB, Major::k, address + kA.bytes());
  fence_wgmma();
#pragma unroll
  for (int step = 0; step < kDepth / 32; ++step) {
    const std::uint64_t b_step = right.at(k_step(kB, Major::k, step));
    if constexpr (kFromRegisters) {
      multiply<kCols, kType>(sums, fragments + 4 * step, b_step, true);
    } else {
      multiply<kCols, kType>(sums, left.at(k_step(kA, Major::k, step)), b_step, true);
    }
  }
  commit_wgmma();
  wait_for_wgmma<0>();
  for (int i = 0; i < kCols / 2; ++i) {
    const Entry entry = accumulator_entry(thread, i);
    c[entry.row * kCols + entry.col] = sums[i];
  }
}

float value_of(ElementType dtype, std::uint8_t bits) {
  if (dtype == ElementType::fp8e4m3) {
    __nv_fp8_e4m3 x;
    x.__x = bits;
    return static_cast<float>(x);
  }
  __nv_fp8_e5m2 x;
  x.__x = bits;
  return static_cast<float>(x);
}
std::uint8_t bits_of(ElementType dtype, float x) {
  return dtype == ElementType::fp8e4m3 ? __nv_fp8_e4m3(x).__x : __nv_fp8_e5m2(x).__x;
}

using Random = std::mt19937;
/// A number of place `place` of a sum.
using Draw = std::function<float(Random&, int place)>;
/// Sums that are not as fp8_dot() has them.
template <WgmmaType kType, bool kFromRegisters>
int wrong_sums(ElementType dtype, const Draw& draw, const Draw& draw_start) {
  constexpr int kBlocks = 8;
  Random random(17);
  const auto fill = [&](int rows) {
    std::vector<std::uint8_t> x;
    for (int i = 0; i < kBlocks * rows * kDepth; ++i) x.push_back(bits_of(dtype, draw(random, i % kDepth)));
    return x;
  };
  const std::vector<std::uint8_t> a = fill(kRows), b = fill(kCols);
  std::vector<float> start;
  for (int i = 0; i < kBlocks * kRows * kCols; ++i) start.push_back(draw_start(random, i));
  const OnDevice<std::uint8_t> a_device(a), b_device(b);
  const OnDevice<float> sums(start);
  add_products<kType, kFromRegisters><<<kBlocks, 128>>>(a_device.data, b_device.data, sums.data);
  const std::vector<float> result = sums.host();
  const auto widen = [dtype](const std::vector<std::uint8_t>& bits) {
    std::vector<double> x;
    for (const std::uint8_t byte : bits) x.push_back(static_cast<double>(value_of(dtype, byte)));
    return x;
  };
  const std::vector<double> left = widen(a), right = widen(b);
  int wrong = 0;
  for (std::size_t i = 0; i < result.size(); ++i) {
    const std::size_t block = i / (kRows * kCols), row = block * kRows + i / kCols % kRows,
                      col = block * kCols + i % kCols;
    const double expected =
        fp8_dot(dtype, &left[row * kDepth], &right[col * kDepth], kDepth, static_cast<double>(start[i]));
    wrong += static_cast<double>(result[i]) != expected;
  }
  return wrong;
}

template <WgmmaType kType>
void check_sums(ElementType dtype) {
  CAPTURE(to_string(dtype));
  const auto normal = [](Random& random) { return std::normal_distribution<float>()(random); };
  const auto uniform = [](Random& random, int below) {
    return static_cast<int>(random() % static_cast<unsigned>(below));
  };
  const Draw kinds[] = {
      [&](Random& r, int) { return normal(r); },
      // every exponent, subnormal numbers and zeros
      [&](Random& r, int) { return uniform(r, 8) == 0 ? 0.0f : std::ldexp(normal(r), uniform(r, 20) - 12); },
      // in each instruction one that is much larger
      [&](Random& r, int place) { return place % 32 == place / 32 ? 16.0f : std::ldexp(normal(r), -5); },
      // of one sign: cuts add up
      [&](Random& r, int) { return std::fabs(normal(r)) + 0.25f; }};
  const Draw none = [](Random&, int) { return 0.0f; };
  const Draw wide = [&](Random& r, int) { return std::ldexp(normal(r), uniform(r, 40) - 20); };
  for (const Draw& kind : kinds) {
    CAPTURE(&kind - kinds);
    CHECK(wrong_sums<kType, false>(dtype, kind, none) == 0);
    CHECK(wrong_sums<kType, false>(dtype, kind, wide) == 0);
    CHECK(wrong_sums<kType, true>(dtype, kind, wide) == 0);
  }
}

}  // namespace fp8_sums_test

TEST_CASE("sums of fp8 products are cut to 13 bits, 32 products and the sum so far at once") {
  fp8_sums_test::check_sums<WgmmaType::e4m3>(ElementType::fp8e4m3);
  fp8_sums_test::check_sums<WgmmaType::e5m2>(ElementType::fp8e5m2);
}
