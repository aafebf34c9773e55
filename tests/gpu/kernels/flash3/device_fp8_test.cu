// SPDX-License-Identifier: Apache-2.0
// flash3's forward pass in fp8: what the registry's tests do not ask for, descales of each instance, the two
// ways of summing and rows that one key makes up.
#include <cuda_fp8.h>
#include <cuda_runtime.h>
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "cpu_ref/numeric/random_inputs.hpp"
#include "cpu_ref/primitives/kernel_scale.hpp"
#include "gpu/kernels/flash3/flash3.hpp"
#include "gpu/kernels/flash3/fp8/launch.cuh"
#include "tests/gpu/device/device_cases.hpp"
#include "tests/gpu/kernels/flash3/on_device.hpp"

using namespace tilescope;
using namespace tilescope::gpu;
using tilescope::testing::OnDevice;

namespace flash3_fp8_test {

/// Of one head.
struct Problem {
  int seqlen_q = 1, seqlen_k = 1, head_dim = 64;
  float scale = 0.09f;
};

float of_bf16(std::uint16_t bits) {
  const std::uint32_t wide = static_cast<std::uint32_t>(bits) << 16;
  float x;
  std::memcpy(&x, &wide, sizeof x);
  return x;
}
std::vector<std::uint8_t> random_bytes(std::size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<std::uint8_t> x(count);
  for (std::uint8_t& byte : x) byte = __nv_fp8_e4m3(normal(random)).__x;
  return x;
}

/// O of inputs of that type.
template <typename Choice, sm90::WgmmaType kType = sm90::WgmmaType::e4m3>
std::vector<float> run(const Problem& p, const std::vector<std::uint8_t>& q,
                       const std::vector<std::uint8_t>& k, const std::vector<std::uint8_t>& v) {
  constexpr Flash3Fp8Shape kShape = Choice::shape;
  const OnDevice<std::uint8_t> q_device(q), k_device(k), v_device(v);
  std::vector<std::uint16_t> o(q.size(), 0x7FFF);
  const OnDevice<std::uint16_t> o_device(o);
  const OnDevice<float> lse_device(std::vector<float>(static_cast<std::size_t>(p.seqlen_q)));
  const OnDevice<WorkCounter> counter({WorkCounter{0}});
  KernelArguments args;
  const auto tensor = [&](TensorName name, void* data, int rows) {
    const std::int64_t head = std::int64_t{rows} * p.head_dim;
    args.tensors[static_cast<std::size_t>(name)] = {data, head, head, p.head_dim};
  };
  tensor(TensorName::q, q_device.data, p.seqlen_q);
  tensor(TensorName::k, k_device.data, p.seqlen_k);
  tensor(TensorName::v, v_device.data, p.seqlen_k);
  tensor(TensorName::out, o_device.data, p.seqlen_q);
  args.tensors[static_cast<std::size_t>(TensorName::lse)] = {lse_device.data, p.seqlen_q, p.seqlen_q, 1};
  args.band = {p.seqlen_q, p.seqlen_k, kUnbounded, kUnbounded};
  args.grid.num_blocks = num_m_blocks(args.band, kShape.tile);
  args.grid.num_heads = 1;
  args.scan = Scan::descending;
  args.heads = args.heads_kv = 1;
  args.counter = counter.data;
  args.head_dim = p.head_dim;
  args.softmax_scale = p.scale;
  args.softmax_scale_log2 = KernelScale::exponent_scale(static_cast<double>(p.scale));
  launch_flash3_fp8_forward<kType, Choice>(flash3_fp8_arguments<kShape>(args), 132, nullptr);
  REQUIRE(cudaDeviceSynchronize() == cudaSuccess);
  cudaMemcpy(o.data(), o_device.data, o.size() * 2, cudaMemcpyDeviceToHost);
  std::vector<float> out(o.size());
  std::transform(o.begin(), o.end(), out.begin(), of_bf16);
  return out;
}

/// Of heads or of tiles, of the instance that `Choice` is.
template <typename Choice>
void check_descales(bool by_tile, bool causal, int splits) {
  constexpr Descale kRandom{Descale::From::random};
  AttentionProblem problem{.heads = 4,
                           .heads_kv = 2,
                           .seqlen_q = 150,
                           .seqlen_k = 700,
                           .head_dim = Choice::shape.head_dim,
                           .dtype = ElementType::fp8e4m3,
                           .causal = causal};
  problem.descales = {.q = kRandom, .k = kRandom, .v = kRandom};
  if (by_tile) problem.descales.block = Choice::shape.tile;
  TensorSet inputs(problem);
  fill_random_inputs(inputs, Direction::forward);
  if (by_tile) {  // of a tile of zeros, say
    inputs.descales(TensorName::k).floats()[1] = inputs.descales(TensorName::v).floats()[1] = 0.0f;
  }
  Kernel row = find_gpu_kernel(Flash3::name).row;
  row.tile_choices = nullptr;  // of which it would take another on so few keys
  ProgramOptions options = row.default_options(problem);
  options.set_tile(Direction::forward, Choice::shape.tile);
  options.fp8_sums = Choice::shape.sums;
  options.splits = {SplitPolicy::Kind::number, splits};
  Reference reference(std::move(inputs), Direction::forward);
  testing::judge_on_device(reference, row, options, Direction::forward, false);
}

/// Mean relative error of O where every value is the same, so that O should be that value: what the sums
/// lose over many keys.
template <typename Choice>
double drift_of_constant_values(int seqlen_k) {
  const Problem p{.seqlen_q = 128, .seqlen_k = seqlen_k, .head_dim = 128, .scale = 0.0f};
  constexpr float kValue = 1.125f;
  const auto elements = static_cast<std::size_t>(seqlen_k) * 128;
  const std::vector<float> out = run<Choice>(p, random_bytes(128 * 128, 1), random_bytes(elements, 2),
                                             std::vector<std::uint8_t>(elements, __nv_fp8_e4m3(kValue).__x));
  double sum = 0;
  for (const float x : out) sum += static_cast<double>(x / kValue - 1.0f);
  return sum / static_cast<double>(out.size());
}

struct DominatedError {
  double followed = 0;  // of rows whose maximum must have been raised to the key that makes them up
  double lagging = 0;   // of the others, where it may lag
};

/// Largest relative error of O in rows of two keys, one of the first kv tile and one of the next, whose P is
/// 2^(n / 8) as large: the same n for the rows of a warp, which raise their maxima together, from 0 on. O is
/// the later key's value times its part of the row.
template <typename Choice, typename Element, sm90::WgmmaType kType>
DominatedError error_where_a_key_dominates() {
  constexpr int kKeys = 2 * Choice::shape.tile.block_n, kHeadDim = Choice::shape.head_dim;
  constexpr int kWarpRows = 16, kBits = 7, kStepsOfPower = 8, kLargestLagging = 7;
  constexpr float kLn2 = 0.693147181f;
  const Problem p{
      .seqlen_q = kWarpRows << kBits, .seqlen_k = kKeys, .head_dim = kHeadDim, .scale = kLn2 / kStepsOfPower};
  const auto byte = [](float x) { return Element(x).__x; };
  std::vector<std::uint8_t> q(static_cast<std::size_t>(p.seqlen_q * kHeadDim), byte(0.0f));
  std::vector<std::uint8_t> k(static_cast<std::size_t>(kKeys * kHeadDim), byte(0.0f)), v = k;
  const auto at = [&](auto& x, int row, int col) -> auto& {
    return x[static_cast<std::size_t>(row * kHeadDim + col)];
  };
  // The score of the later key is n, bit by bit; a further column hides all keys but two.
  for (int i = 0; i < p.seqlen_q; ++i) {
    const int n = i / kWarpRows;
    for (int bit = 0; bit < kBits; ++bit) at(q, i, bit) = byte(static_cast<float>(n & 1 << bit));
    at(q, i, kBits) = byte(32.0f);
  }
  for (int j = 1; j < kKeys - 1; ++j) at(k, j, kBits) = byte(-32.0f);
  for (int bit = 0; bit < kBits; ++bit) at(k, 0, bit) = byte(1.0f);
  for (int col = 0; col < kHeadDim; ++col) at(v, 0, col) = byte(1.0f);

  const std::vector<float> out = run<Choice, kType>(p, q, k, v);
  DominatedError error;
  for (int i = 0; i < p.seqlen_q; ++i) {
    const int n = i / kWarpRows;
    const double prob = std::exp2(static_cast<double>(n) / kStepsOfPower), exact = prob / (prob + 1);
    double& largest = prob > kLargestLagging ? error.followed : error.lagging;
    for (int col = 0; col < kHeadDim; ++col) {
      largest = std::max(largest, std::fabs(static_cast<double>(at(out, i, col)) / exact - 1));
    }
  }
  return error;
}

template <typename Choice>
void check_dominated_rows() {
  constexpr double kOfBf16 = 0x1p-9, kOfSums = 0x1p-11;
  const DominatedError e5m2 = error_where_a_key_dominates<Choice, __nv_fp8_e5m2, sm90::WgmmaType::e5m2>();
  CHECK(e5m2.followed < kOfBf16 + kOfSums);
  CHECK(e5m2.lagging < 0x1p-3 + kOfBf16 + kOfSums);
}

}  // namespace flash3_fp8_test

using namespace flash3_fp8_test;

TEST_CASE("flash3 fp8: descales of heads and of tiles") {
  for (const bool by_tile : {false, true}) {
    for (const bool causal : {false, true}) {
      CAPTURE(by_tile);
      const int splits = by_tile == causal ? 1 : 3;
      check_descales<Flash3Fp8Choice<128>>(by_tile, causal, splits);
      check_descales<Flash3Fp8Choice<128, Fp8Sums::fast>>(by_tile, causal, splits);
      check_descales<Flash3Fp8Choice<64>>(by_tile, causal, splits);
      check_descales<Flash3Fp8Choice<64, Fp8Sums::two_level, true>>(by_tile, causal, splits);
      check_descales<Flash3Fp8Choice<256>>(by_tile, causal, splits);
      check_descales<Flash3Fp8Choice<256, Fp8Sums::fast>>(by_tile, causal, splits);
    }
  }
}

TEST_CASE("flash3 fp8: sums of many keys in two levels lose nothing, fast ones most") {
  CHECK(std::fabs(drift_of_constant_values<Flash3Fp8Choice<128>>(65536)) < 1e-3);
  const double fast = drift_of_constant_values<Flash3Fp8Choice<128, Fp8Sums::fast>>(65536);
  MESSAGE("fast sums: mean relative error ", fast);
  CHECK(fast < -0.1);
}

TEST_CASE("flash3 fp8: the maximum follows a key that makes up a row, so that its P is not rounded") {
  check_dominated_rows<Flash3Fp8Choice<64>>();
  check_dominated_rows<Flash3Fp8Choice<128>>();
  check_dominated_rows<Flash3Fp8Choice<256>>();
  check_dominated_rows<Flash3Fp8Choice<256, Fp8Sums::fast>>();
}
