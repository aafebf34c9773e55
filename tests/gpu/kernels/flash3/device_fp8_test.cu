// SPDX-License-Identifier: Apache-2.0
// flash3's forward pass in fp8: what the registry's tests cannot ask for, descales, the two ways of summing
// and rows that one key makes up, against attention computed in double precision.
#include <cuda_fp8.h>
#include <cuda_runtime.h>
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "gpu/kernels/flash3/fp8/instance.cuh"
#include "tests/gpu/kernels/flash3/on_device.hpp"

using namespace tilescope;
using namespace tilescope::gpu;
using tilescope::testing::OnDevice;

namespace flash3_fp8_test {

struct Problem {
  int heads = 1, heads_kv = 1, seqlen_q = 1, seqlen_k = 1, head_dim = 64;
  bool causal = false;
  float scale = 0.09f;
};

float value(std::uint8_t bits) {
  __nv_fp8_e4m3 x;
  x.__x = bits;
  return static_cast<float>(x);
}
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

/// O of inputs of that type. @param set_descales  sets those of the arguments
template <typename Choice, sm90::ProductType kType = sm90::ProductType::e4m3, typename SetDescales>
std::vector<float> run(const Problem& p, const std::vector<std::uint8_t>& q,
                       const std::vector<std::uint8_t>& k, const std::vector<std::uint8_t>& v,
                       SetDescales&& set_descales) {
  constexpr Flash3Fp8Shape kShape = Choice::shape;
  const OnDevice<std::uint8_t> q_device(q), k_device(k), v_device(v);
  std::vector<std::uint16_t> o(q.size(), 0x7FFF);
  const OnDevice<std::uint16_t> o_device(o);
  const OnDevice<float> lse_device(std::vector<float>(static_cast<std::size_t>(p.heads * p.seqlen_q)));
  const OnDevice<WorkCounter> counter({WorkCounter{0}});
  KernelArguments args;
  const auto tensor = [&](TensorName name, void* data, int heads, int rows) {
    const std::int64_t head = std::int64_t{rows} * p.head_dim;
    args.tensors[static_cast<std::size_t>(name)] = {data, heads * head, head, p.head_dim};
  };
  tensor(TensorName::q, q_device.data, p.heads, p.seqlen_q);
  tensor(TensorName::k, k_device.data, p.heads_kv, p.seqlen_k);
  tensor(TensorName::v, v_device.data, p.heads_kv, p.seqlen_k);
  tensor(TensorName::out, o_device.data, p.heads, p.seqlen_q);
  args.tensors[static_cast<std::size_t>(TensorName::lse)] = {lse_device.data, p.heads * p.seqlen_q,
                                                             p.seqlen_q, 1};
  args.band = {p.seqlen_q, p.seqlen_k, kUnbounded, p.causal ? 0 : kUnbounded};
  args.grid.num_blocks = num_m_blocks(args.band, kShape.tile);
  args.grid.num_heads = p.heads;
  args.scan = Scan::descending;
  args.heads = p.heads;
  args.heads_kv = p.heads_kv;
  args.head_dim = p.head_dim;
  args.softmax_scale = p.scale;
  args.softmax_scale_log2 = p.scale * 1.44269504f;
  Flash3Fp8Arguments passed = flash3_fp8_arguments<kShape>(args, counter.data);
  set_descales(passed);
  launch_flash3_fp8_forward<kType, Choice>(passed, 132, nullptr);
  REQUIRE(cudaDeviceSynchronize() == cudaSuccess);
  cudaMemcpy(o.data(), o_device.data, o.size() * 2, cudaMemcpyDeviceToHost);
  std::vector<float> out(o.size());
  std::transform(o.begin(), o.end(), out.begin(), of_bf16);
  return out;
}

/// Relative error of O, of e4m3 inputs that are multiplied by the descales of (head, block), `blocks` a head.
template <typename Choice>
double error_with_descales(const Problem& p, bool by_tile) {
  const TileShape tile = Choice::shape.tile;
  const int group = p.heads / p.heads_kv, q_blocks = by_tile ? ceil_div(p.seqlen_q, tile.block_m) : 1,
            kv_blocks = by_tile ? ceil_div(p.seqlen_k, tile.block_n) : 1;
  const auto q = random_bytes(static_cast<std::size_t>(p.heads * p.seqlen_q * p.head_dim), 1),
             k = random_bytes(static_cast<std::size_t>(p.heads_kv * p.seqlen_k * p.head_dim), 2),
             v = random_bytes(static_cast<std::size_t>(p.heads_kv * p.seqlen_k * p.head_dim), 3);
  std::mt19937 random(4);
  std::uniform_real_distribution<float> uniform(0.5f, 2.0f);
  const auto descales = [&](int count) {
    std::vector<float> x(static_cast<std::size_t>(count));
    for (float& each : x) each = uniform(random);
    return x;
  };
  const auto descale_q = descales(p.heads * q_blocks);
  auto descale_k = descales(p.heads_kv * kv_blocks), descale_v = descales(p.heads_kv * kv_blocks);
  if (by_tile) descale_k[1] = descale_v[1] = 0.0f;  // of a tile of zeros, say
  const OnDevice<float> q_device(descale_q), k_device(descale_k), v_device(descale_v);
  const std::vector<float> out = run<Choice>(p, q, k, v, [&](Flash3Fp8Arguments& args) {
    args.descale_q = {q_device.data, 1, q_blocks};
    args.descale_k = {k_device.data, group, kv_blocks};
    args.descale_v = {v_device.data, group, kv_blocks};
  });
  const auto at = [&](const auto& x, int head, int rows, int row, int col) {
    return x[static_cast<std::size_t>((head * rows + row) * p.head_dim + col)];
  };
  double error = 0, norm = 0;
  for (int head = 0; head < p.heads; ++head) {
    const int kv_head = head / group;
    for (int i = 0; i < p.seqlen_q; i += 3) {
      std::vector<double> row(static_cast<std::size_t>(p.head_dim));
      double sum = 0;
      const int last = p.causal ? i + p.seqlen_k - p.seqlen_q : p.seqlen_k - 1;
      for (int j = 0; j <= last; ++j) {
        const auto block = [&](int blocks, int tile_rows, int at_row) {
          return blocks > 1 ? at_row / tile_rows : 0;
        };
        const auto kv_place =
            static_cast<std::size_t>(kv_head * kv_blocks + block(kv_blocks, tile.block_n, j));
        double score = 0;
        for (int col = 0; col < p.head_dim; ++col) {
          score += static_cast<double>(value(at(q, head, p.seqlen_q, i, col))) *
                   static_cast<double>(value(at(k, kv_head, p.seqlen_k, j, col)));
        }
        const auto q_place = static_cast<std::size_t>(head * q_blocks + block(q_blocks, tile.block_m, i));
        const double weight = std::exp(score * static_cast<double>(p.scale) *
                                       static_cast<double>(descale_q[q_place] * descale_k[kv_place]));
        sum += weight;
        for (int col = 0; col < p.head_dim; ++col) {
          row[static_cast<std::size_t>(col)] +=
              weight * static_cast<double>(descale_v[kv_place] * value(at(v, kv_head, p.seqlen_k, j, col)));
        }
      }
      for (int col = 0; col < p.head_dim; ++col) {
        const double exact = last < 0 ? 0.0 : row[static_cast<std::size_t>(col)] / sum;
        const double difference = static_cast<double>(at(out, head, p.seqlen_q, i, col)) - exact;
        error += difference * difference;
        norm += exact * exact;
      }
    }
  }
  return std::sqrt(error / norm);
}

/// Mean relative error of O where every value is the same, so that O should be that value: what the sums
/// lose over many keys.
template <typename Choice>
double drift_of_constant_values(int seqlen_k) {
  const Problem p{.seqlen_q = 128, .seqlen_k = seqlen_k, .head_dim = 128, .scale = 0.0f};
  constexpr float kValue = 1.125f;
  const auto elements = static_cast<std::size_t>(seqlen_k) * 128;
  const std::vector<float> out =
      run<Choice>(p, random_bytes(128 * 128, 1), random_bytes(elements, 2),
                  std::vector<std::uint8_t>(elements, __nv_fp8_e4m3(kValue).__x), [](Flash3Fp8Arguments&) {});
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
template <typename Choice, typename Element, sm90::ProductType kType>
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

  const std::vector<float> out = run<Choice, kType>(p, q, k, v, [](Flash3Fp8Arguments&) {});
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
  const DominatedError e5m2 = error_where_a_key_dominates<Choice, __nv_fp8_e5m2, sm90::ProductType::e5m2>();
  CHECK(e5m2.followed < kOfBf16 + kOfSums);
  CHECK(e5m2.lagging < 0x1p-3 + kOfBf16 + kOfSums);
}

}  // namespace flash3_fp8_test

using namespace flash3_fp8_test;

TEST_CASE("flash3 fp8: descales of heads and of tiles") {
  constexpr double kOfRounding = 0.04;  // P has three bits behind the point
  for (const bool by_tile : {false, true}) {
    for (const bool causal : {false, true}) {
      CAPTURE(by_tile);
      CAPTURE(causal);
      const Problem p{
          .heads = 4, .heads_kv = 2, .seqlen_q = 150, .seqlen_k = 300, .head_dim = 128, .causal = causal};
      CHECK(error_with_descales<Flash3Fp8Choice<128>>(p, by_tile) < kOfRounding);
      CHECK(error_with_descales<Flash3Fp8Choice<128, Fp8Sums::fast>>(p, by_tile) < kOfRounding);
      Problem narrow = p, wide = p;
      narrow.head_dim = 64;
      CHECK(error_with_descales<Flash3Fp8Choice<64>>(narrow, by_tile) < kOfRounding);
      wide.head_dim = 256;
      CHECK(error_with_descales<Flash3Fp8Choice<256>>(wide, by_tile) < kOfRounding);
      CHECK(error_with_descales<Flash3Fp8Choice<256, Fp8Sums::fast>>(wide, by_tile) < kOfRounding);
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
