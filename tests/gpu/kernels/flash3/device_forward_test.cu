// SPDX-License-Identifier: Apache-2.0
// flash3's forward pass against attention computed in double precision, over lengths round the tile's
// edges.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "gpu/kernels/flash3/forward/launch.cuh"
#include "tests/gpu/kernels/flash3/on_device.hpp"

using namespace tilescope;
using namespace tilescope::gpu;
using tilescope::testing::OnDevice;

namespace flash3_test {

struct Case {
  int batch = 1, heads = 2, heads_kv = 1, seqlen_q = 1, seqlen_k = 1, head_dim = 64;
  int left = -1, right = -1;
  float scale = 0.125f;
  int row_padding = 0;  // elements between rows, never to be written
  float spread = 1.0f;  // of a few keys: maxima that jump
  Scan scan = Scan::descending;
};

template <sm90::ProductType kType>
std::uint16_t rounded(float x) {
  return kType == sm90::ProductType::fp16 ? __half_as_ushort(__float2half(x))
                                          : __bfloat16_as_ushort(__float2bfloat16(x));
}
template <sm90::ProductType kType>
double value(std::uint16_t bits) {
  return kType == sm90::ProductType::fp16 ? __half2float(__ushort_as_half(bits))
                                          : __bfloat162float(__ushort_as_bfloat16(bits));
}

template <sm90::ProductType kType, typename Choice>
void check(const Case& c) {
  CAPTURE(c.seqlen_q);
  CAPTURE(c.seqlen_k);
  CAPTURE(c.head_dim);
  CAPTURE(c.left);
  CAPTURE(c.right);
  constexpr Flash3ForwardShape kShape = Choice::shape;
  const int stride = c.head_dim + c.row_padding;
  std::mt19937 random(static_cast<unsigned>(c.seqlen_q * 1009 + c.seqlen_k));
  std::normal_distribution<float> normal;
  const auto fill = [&](int heads, int rows, bool keys) {
    std::vector<std::uint16_t> x(static_cast<std::size_t>(c.batch * heads * rows * stride), 0x7FFF);  // NaN
    for (int row = 0; row < c.batch * heads * rows; ++row) {
      const float factor = keys && row % 61 == 60 ? c.spread : 1.0f;
      for (int col = 0; col < c.head_dim; ++col) {
        x[static_cast<std::size_t>(row * stride + col)] = rounded<kType>(factor * normal(random));
      }
    }
    return x;
  };
  const auto q = fill(c.heads, c.seqlen_q, false), k = fill(c.heads_kv, c.seqlen_k, true),
             v = fill(c.heads_kv, c.seqlen_k, false);
  std::vector<std::uint16_t> o(q.size(), 0x7FFF);
  std::vector<float> lse(static_cast<std::size_t>(c.batch * c.heads * c.seqlen_q),
                         std::numeric_limits<float>::quiet_NaN());
  const OnDevice<std::uint16_t> q_device(q), k_device(k), v_device(v), o_device(o);
  const OnDevice<float> lse_device(lse);
  const OnDevice<WorkCounter> counter({WorkCounter{0}});

  KernelArguments args;
  const auto tensor = [&](TensorName name, void* data, int heads, int rows) {
    args.tensors[static_cast<std::size_t>(name)] = {data, std::int64_t{heads} * rows * stride,
                                                    std::int64_t{rows} * stride, stride};
  };
  tensor(TensorName::q, q_device.data, c.heads, c.seqlen_q);
  tensor(TensorName::k, k_device.data, c.heads_kv, c.seqlen_k);
  tensor(TensorName::v, v_device.data, c.heads_kv, c.seqlen_k);
  tensor(TensorName::out, o_device.data, c.heads, c.seqlen_q);
  args.tensors[static_cast<std::size_t>(TensorName::lse)] = {lse_device.data, c.heads * c.seqlen_q,
                                                             c.seqlen_q, 1};
  args.band = {c.seqlen_q, c.seqlen_k, c.left < 0 ? kUnbounded : c.left, c.right < 0 ? kUnbounded : c.right};
  args.grid.num_blocks = num_m_blocks(args.band, kShape.tile);
  args.grid.num_heads = c.batch * c.heads;
  args.grid.order = TileOrder::longest_first;
  args.grid.longest_is_last = true;
  args.scan = c.scan;
  args.heads = c.heads;
  args.heads_kv = c.heads_kv;
  args.head_dim = c.head_dim;
  args.softmax_scale = c.scale;
  args.softmax_scale_log2 = std::fabs(c.scale) * 1.44269504f;
  args.score_sign = c.scale < 0 ? -1.0f : 1.0f;
  for (int launch = 0; launch < 2; ++launch) {  // the second finds the counter as the first left it
    launch_flash3_forward<kType, Choice>(flash3_forward_arguments<kType, kShape>(args, counter.data), 3,
                                         nullptr);
  }
  REQUIRE(cudaDeviceSynchronize() == cudaSuccess);
  cudaMemcpy(o.data(), o_device.data, o.size() * 2, cudaMemcpyDeviceToHost);
  cudaMemcpy(lse.data(), lse_device.data, lse.size() * 4, cudaMemcpyDeviceToHost);

  // What rounding P, and then O, to the element type may cost.
  const double unit = kType == sm90::ProductType::fp16 ? 0x1p-11 : 0x1p-8;
  int wrong = 0, wrong_lse = 0, overwritten = 0;
  for (int head = 0; head < c.batch * c.heads; ++head) {
    const int kv_head = head / c.heads * c.heads_kv + head % c.heads / (c.heads / c.heads_kv);
    const auto row_of = [&](const std::vector<std::uint16_t>& x, int of_head, int rows, int row) {
      return x.data() + (static_cast<std::size_t>(of_head) * static_cast<std::size_t>(rows) +
                         static_cast<std::size_t>(row)) *
                            static_cast<std::size_t>(stride);
    };
    for (int i = 0; i < c.seqlen_q; ++i) {
      const int first = args.band.first_key(i), last = args.band.last_key(i);
      std::vector<double> weights;
      double max = -std::numeric_limits<double>::infinity(), sum = 0;
      for (int j = first; j <= last; ++j) {
        double score = 0;
        for (int col = 0; col < c.head_dim; ++col) {
          score += value<kType>(row_of(q, head, c.seqlen_q, i)[col]) *
                   value<kType>(row_of(k, kv_head, c.seqlen_k, j)[col]);
        }
        weights.push_back(score * static_cast<double>(c.scale));
        max = std::max(max, weights.back());
      }
      for (double& w : weights) sum += w = std::exp(w - max);
      for (int col = 0; col < stride; ++col) {
        const std::uint16_t bits = row_of(o, head, c.seqlen_q, i)[col];
        if (col >= c.head_dim) {
          overwritten += bits != 0x7FFF;
          continue;
        }
        double expected = 0, magnitude = 0;
        for (int j = first; j <= last; ++j) {
          const double term = weights[static_cast<std::size_t>(j - first)] / sum *
                              value<kType>(row_of(v, kv_head, c.seqlen_k, j)[col]);
          expected += term;
          magnitude += std::fabs(term);
        }
        wrong += !(std::fabs(value<kType>(bits) - expected) <= 1.5 * unit * magnitude + 1e-6);
      }
      const float got = lse[static_cast<std::size_t>(head * c.seqlen_q + i)];
      const double expected = max + std::log(sum);
      wrong_lse += last < first ? got != -std::numeric_limits<float>::infinity()
                                : !(std::fabs(got - expected) <= 2e-5 * std::max(1.0, std::fabs(expected)));
    }
  }
  CHECK(wrong == 0);
  CHECK(wrong_lse == 0);
  CHECK(overwritten == 0);
}

template <int kHeadDim, bool kShortRows = false>
using Choice = Flash3ForwardChoice<kHeadDim, kShortRows>;

/// Lengths {1, n - 1, n, n + 1, 2 n + 3} of both sides, every mask.
template <sm90::ProductType kType, typename Choice>
void check_edges() {
  constexpr TileShape kTile = Choice::shape.tile;
  int count = 0;
  for (const int m : {1, kTile.block_m - 1, kTile.block_m, kTile.block_m + 1}) {
    for (const int n : {1, kTile.block_n - 1, kTile.block_n + 1, 2 * kTile.block_n + 3}) {
      Case c;
      c.seqlen_q = m;
      c.seqlen_k = n;
      c.head_dim = Choice::shape.head_dim - (count % 3 == 2 ? 24 : 0);
      c.heads_kv = count % 2 + 1;
      c.right = count % 4 == 0 ? -1 : count % 4 == 1 ? 0 : 3 * count;
      c.left = count % 4 == 3 ? 20 : -1;
      c.scale = count % 5 == 4 ? -0.1f : count % 7 == 6 ? 0.0f : 0.125f;
      c.row_padding = count % 2 * 8;
      c.spread = count % 3 == 1 ? 200.0f : 1.0f;
      c.scan = count % 3 == 0 ? Scan::ascending : Scan::descending;
      check<kType, Choice>(c);
      ++count;
    }
  }
}

}  // namespace flash3_test

using namespace flash3_test;

TEST_CASE("flash3 forward: one small problem") {
  Case c;
  c.seqlen_q = 130;
  c.seqlen_k = 140;
  c.right = 0;
  check<sm90::ProductType::bf16, Choice<64>>(c);
  c.head_dim = 128;
  check<sm90::ProductType::bf16, Choice<128>>(c);
}
TEST_CASE("flash3 forward: the edges of the tile, head_dim 64") {
  check_edges<sm90::ProductType::bf16, Choice<64>>();
  check_edges<sm90::ProductType::fp16, Choice<64, true>>();
}
TEST_CASE("flash3 forward: the edges of the tile, head_dim 96 and 128") {
  check_edges<sm90::ProductType::fp16, Choice<96>>();
  check_edges<sm90::ProductType::fp16, Choice<128>>();
}
TEST_CASE("flash3 forward: the edges of the tile, head_dim 192 and 256") {
  check_edges<sm90::ProductType::bf16, Choice<192>>();
  check_edges<sm90::ProductType::bf16, Choice<256>>();
}
