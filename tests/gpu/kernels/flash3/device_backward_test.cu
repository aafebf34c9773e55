// SPDX-License-Identifier: Apache-2.0
// flash3's fused backward pass against gradients computed in double precision.
#include <cuda_bf16.h>
#include <cuda_runtime.h>
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "gpu/kernels/flash3/backward/launch.cuh"
#include "tests/gpu/kernels/flash3/on_device.hpp"

using namespace tilescope;
using namespace tilescope::gpu;
using tilescope::testing::OnDevice;

namespace flash3_backward_test {

struct Case {
  int heads = 2, heads_kv = 1, seqlen_q = 1, seqlen_k = 1, head_dim = 128;
  int left = -1, right = -1;
  float scale = 0.09f;
};

using Matrix = std::vector<double>;  // heads x rows x head_dim

double value(std::uint16_t bits) { return __bfloat162float(__ushort_as_bfloat16(bits)); }

/// Random bf16 numbers, and the same in double precision.
std::vector<std::uint16_t> random_tensor(std::mt19937& random, int count, Matrix& exact) {
  std::normal_distribution<float> normal;
  std::vector<std::uint16_t> bits;
  for (int i = 0; i < count; ++i) {
    bits.push_back(__bfloat16_as_ushort(__float2bfloat16(normal(random))));
    exact.push_back(value(bits.back()));
  }
  return bits;
}

/// Largest difference over the largest entry (or 0.1: a row of one key has gradients of 0). NaN where there
/// is one.
template <typename F>
double relative_error(const Matrix& exact, F got) {
  double largest = 0.1, error = 0;
  for (std::size_t i = 0; i < exact.size(); ++i) {
    const double difference = std::fabs(got(i) - exact[i]);
    largest = std::max(largest, std::fabs(exact[i]));
    if (!(difference <= error)) error = difference;
    if (std::isnan(difference)) return difference;
  }
  return error / largest;
}

/// @param start  where it is not DqStart::cleared, the first ints of a q tile's dq must be 0
template <typename Choice>
void launch(const KernelArguments& args, DqStart start) {
  const auto passed = flash3_backward_arguments<sm90::ProductType::bf16, Choice::shape>(args, start);
  const auto items = static_cast<int>(args.grid.size());  // few CTAs, where they stay: several each
  launch_flash3_dkdvdq<sm90::ProductType::bf16, Choice>(
      passed, Choice::shape.stays ? std::min(items, 3) : items, nullptr);
  REQUIRE(cudaDeviceSynchronize() == cudaSuccess);
}

template <typename Choice>
void check(const Case& c, DqStart start) {
  CAPTURE(to_string(start));
  CAPTURE(c.seqlen_q);
  CAPTURE(c.seqlen_k);
  CAPTURE(c.right);
  const int d = c.head_dim, group = c.heads / c.heads_kv;
  std::mt19937 random(static_cast<unsigned>(c.seqlen_q * 31 + c.seqlen_k));
  Matrix q, k, v, dout;
  const auto q_bits = random_tensor(random, c.heads * c.seqlen_q * d, q);
  const auto k_bits = random_tensor(random, c.heads_kv * c.seqlen_k * d, k);
  const auto v_bits = random_tensor(random, c.heads_kv * c.seqlen_k * d, v);
  const auto dout_bits = random_tensor(random, c.heads * c.seqlen_q * d, dout);
  const VisibleBand band{c.seqlen_q, c.seqlen_k, c.left < 0 ? kUnbounded : c.left,
                         c.right < 0 ? kUnbounded : c.right};

  Matrix dq(q.size()), dk(k.size()), dv(v.size());
  std::vector<float> lse, delta;
  for (int head = 0; head < c.heads; ++head) {
    for (int i = 0; i < c.seqlen_q; ++i) {
      const double* q_row = q.data() + (head * c.seqlen_q + i) * d;
      const double* dout_row = dout.data() + (head * c.seqlen_q + i) * d;
      const int first = band.first_key(i), last = band.last_key(i), kv = head / group * c.seqlen_k;
      std::vector<double> p, dp;
      double max = -std::numeric_limits<double>::infinity(), sum = 0, row_delta = 0;
      for (int j = first; j <= last; ++j) {
        double s = 0, x = 0;
        for (int col = 0; col < d; ++col) {
          s += q_row[col] * k[static_cast<std::size_t>((kv + j) * d + col)];
          x += dout_row[col] * v[static_cast<std::size_t>((kv + j) * d + col)];
        }
        p.push_back(s * static_cast<double>(c.scale));
        dp.push_back(x);
        max = std::max(max, p.back());
      }
      for (double& x : p) sum += x = std::exp(x - max);
      for (std::size_t j = 0; j < p.size(); ++j) row_delta += (p[j] /= sum) * dp[j];
      lse.push_back(static_cast<float>(max + std::log(sum)));
      delta.push_back(static_cast<float>(row_delta));
      for (int j = first; j <= last; ++j) {
        const auto n = static_cast<std::size_t>(j - first);
        const double ds = p[n] * (dp[n] - row_delta);
        for (int col = 0; col < d; ++col) {
          const auto at = static_cast<std::size_t>((kv + j) * d + col);
          dv[at] += p[n] * dout_row[col];
          dk[at] += ds * q_row[col] * static_cast<double>(c.scale);
          dq[static_cast<std::size_t>((head * c.seqlen_q + i) * d + col)] += ds * k[at];  // lacks the scale
        }
      }
    }
  }

  const std::vector<std::uint16_t> poison(k.size(), 0x7FFF);
  const OnDevice<std::uint16_t> q_device(q_bits), k_device(k_bits), v_device(v_bits), dout_device(dout_bits),
      dk_device(poison), dv_device(poison);
  // Nobody clears the sums of q tiles that are stored first.
  const bool cleared = start == DqStart::cleared;
  const float unwritten = cleared ? 0.0f : std::numeric_limits<float>::quiet_NaN();
  const OnDevice<float> dq_device(std::vector<float>(q.size(), unwritten)), lse_device(lse),
      delta_device(delta);
  std::vector<std::uint16_t> flags(q.size(), 0x7FFF);
  for (int row = 0; row < c.heads * c.seqlen_q; ++row) {
    if (row % c.seqlen_q % Choice::shape.tile.block_m == 0)
      std::fill_n(flags.begin() + row * d, 4, std::uint16_t{0});
  }
  const OnDevice<std::uint16_t> flags_device(flags);
  KernelArguments args;
  const auto tensor = [&](TensorName name, void* data, int rows) {
    args.tensors[static_cast<std::size_t>(name)] = {data, 0, std::int64_t{rows} * d, d};
  };
  tensor(TensorName::q, q_device.data, c.seqlen_q);
  tensor(TensorName::dout, dout_device.data, c.seqlen_q);
  tensor(TensorName::k, k_device.data, c.seqlen_k);
  tensor(TensorName::v, v_device.data, c.seqlen_k);
  tensor(TensorName::dk, dk_device.data, c.seqlen_k);
  tensor(TensorName::dv, dv_device.data, c.seqlen_k);
  tensor(TensorName::dq_accum, dq_device.data, c.seqlen_q);
  tensor(TensorName::dq, flags_device.data, c.seqlen_q);
  args.tensors[static_cast<std::size_t>(TensorName::lse)] = {lse_device.data, 0, c.seqlen_q, 1};
  args.tensors[static_cast<std::size_t>(TensorName::delta)] = {delta_device.data, 0, c.seqlen_q, 1};
  args.band = band;
  args.grid.num_blocks = num_n_blocks(band, Choice::shape.tile);
  args.grid.num_heads = c.heads_kv;
  args.heads = c.heads;
  args.heads_kv = c.heads_kv;
  args.head_dim = d;
  args.softmax_scale = c.scale;
  args.softmax_scale_log2 = std::fabs(c.scale) * 1.44269504f;
  args.score_sign = c.scale < 0 ? -1.0f : 1.0f;
  launch<Choice>(args, start);
  const auto dk_bits = dk_device.host(), dv_bits = dv_device.host();
  auto dq_sums = dq_device.host();
  for (int row = 0; row < c.heads * c.seqlen_q && !cleared; ++row) {  // of q tiles that see no key
    const bool begun =
        !kv_tiles(band, Choice::shape.tile, row % c.seqlen_q / Choice::shape.tile.block_m).empty();
    for (int col = 0; col < d && !begun; ++col) {
      float& sum = dq_sums[static_cast<std::size_t>(row * d + col)];
      CHECK(std::isnan(sum));
      sum = 0;
    }
  }
  // P, dS and the results are rounded to bf16.
  constexpr double kBound = 0.01;
  CHECK(relative_error(dv, [&](std::size_t i) { return value(dv_bits[i]); }) <= kBound);
  CHECK(relative_error(dk, [&](std::size_t i) { return value(dk_bits[i]); }) <= kBound);
  CHECK(relative_error(dq, [&](std::size_t i) { return static_cast<double>(dq_sums[i]); }) <= kBound);
}

/// Lengths round the tile's edges, masks, groups, scales, a head_dim that is padded up.
template <typename Choice>
void check_choice() {
  constexpr int kHeadDim = Choice::shape.head_dim;
  constexpr int kM = Choice::shape.tile.block_m, kN = Choice::shape.tile.block_n;
  CAPTURE(kHeadDim);
  const auto check_starts = [](const Case& c) {
    if (!Choice::shape.ordered) check<Choice>(c, DqStart::cleared);
    check<Choice>(c, Choice::shape.stays ? DqStart::claimed : DqStart::in_order);
  };
  const auto at = [&](int heads, int heads_kv, int m, int n, int left = -1, int right = -1,
                      float scale = 0.09f) {
    check_starts({heads, heads_kv, m, n, kHeadDim, left, right, scale});
  };
  at(1, 1, kM, kN);
  at(1, 1, 2 * kM, 2 * kN);
  at(2, 1, 2 * kM + 3, kN + 12);
  at(2, 2, kM + 1, kN - 1, -1, 0);
  at(4, 2, 200, 300, -1, 0);
  at(2, 1, 300, 200, -1, 0, -0.09f);
  at(2, 1, 190, 2 * kN + 3, 40, 9);
  at(3, 3, 70, 6 * kN, -1, 0);  // most kv tiles are seen by nobody
  at(3, 3, 6 * kN, 5 * kN, -1, 0);
  at(2, 1, 1, 1);
  check_starts({2, 1, 70, 90, kHeadDim - 24, -1, 5, 0.3f});
}
template <int kHeadDim>
void check_all() {
  check_choice<Flash3BackwardChoice<kHeadDim>>();
  check_choice<Flash3BackwardChoice<kHeadDim, true>>();
}

/// An ordered pass over many kv tiles at once has the same bits each time.
template <int kHeadDim>
void check_repeats() {
  using Choice = Flash3BackwardChoice<kHeadDim, true>;
  const Case c{8, 8, 2048, 2048, kHeadDim};
  std::mt19937 random(1);
  Matrix exact;
  const int count = c.heads * c.seqlen_q * c.head_dim;
  const OnDevice<std::uint16_t> q(random_tensor(random, count, exact)),
      k(random_tensor(random, count, exact)), v(random_tensor(random, count, exact)),
      dout(random_tensor(random, count, exact)),
      dk(std::vector<std::uint16_t>(static_cast<std::size_t>(count))),
      dv(std::vector<std::uint16_t>(static_cast<std::size_t>(count)));
  const std::vector<float> unwritten(static_cast<std::size_t>(count),
                                     std::numeric_limits<float>::quiet_NaN());
  const std::vector<float> rows(static_cast<std::size_t>(c.heads * c.seqlen_q), 8.0f);
  const OnDevice<float> lse(rows), delta(rows);
  std::vector<float> first;
  for (int run = 0; run < 10; ++run) {
    const OnDevice<float> dq(unwritten);
    const OnDevice<std::uint16_t> flags(std::vector<std::uint16_t>(static_cast<std::size_t>(count)));
    KernelArguments args;
    const auto tensor = [&](TensorName name, void* data) {
      args.tensors[static_cast<std::size_t>(name)] = {data, 0, std::int64_t{c.seqlen_q} * c.head_dim,
                                                      c.head_dim};
    };
    tensor(TensorName::q, q.data);
    tensor(TensorName::dout, dout.data);
    tensor(TensorName::k, k.data);
    tensor(TensorName::v, v.data);
    tensor(TensorName::dk, dk.data);
    tensor(TensorName::dv, dv.data);
    tensor(TensorName::dq_accum, dq.data);
    tensor(TensorName::dq, flags.data);
    args.tensors[static_cast<std::size_t>(TensorName::lse)] = {lse.data, 0, c.seqlen_q, 1};
    args.tensors[static_cast<std::size_t>(TensorName::delta)] = {delta.data, 0, c.seqlen_q, 1};
    args.band = {c.seqlen_q, c.seqlen_k, kUnbounded, 0};
    args.grid.num_blocks = num_n_blocks(args.band, Choice::shape.tile);
    args.grid.num_heads = c.heads_kv;
    args.heads = args.heads_kv = c.heads;
    args.head_dim = c.head_dim;
    args.softmax_scale = 0.05f;
    args.softmax_scale_log2 = 0.05f * 1.44269504f;
    launch<Choice>(args, DqStart::in_order);
    const std::vector<float> sums = dq.host();
    if (run == 0) first = sums;
    CHECK(std::memcmp(first.data(), sums.data(), sums.size() * sizeof(float)) == 0);
  }
}

}  // namespace flash3_backward_test

using namespace flash3_backward_test;

TEST_CASE("flash3 backward: head_dim 64") { check_all<64>(); }
TEST_CASE("flash3 backward: CTAs that stay") {
  check_choice<Flash3BackwardChoice<64, false, true>>();
  check_choice<Flash3BackwardChoice<128, false, true>>();
}
TEST_CASE("flash3 backward: head_dim 96") { check_all<96>(); }
TEST_CASE("flash3 backward: head_dim 128") { check_all<128>(); }
TEST_CASE("flash3 backward: head_dim 192") { check_all<192>(); }
TEST_CASE("flash3 backward: head_dim 256") { check_all<256>(); }
TEST_CASE("flash3 backward: the ordered pass repeats its bits") {
  check_repeats<64>();
  check_repeats<128>();
  check_repeats<256>();
}
