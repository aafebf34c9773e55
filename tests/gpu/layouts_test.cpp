// SPDX-License-Identifier: Apache-2.0
// Shared memory of the GPU kernels: the regions of a layout follow each other without a gap or an overlap,
// and what a launch asks for is where the last one ends.
#include <doctest/doctest.h>

#include <algorithm>
#include <vector>

#include "gpu/kernels/flash1/flash1.hpp"
#include "gpu/kernels/flash2_mma/choices.hpp"
#include "gpu/kernels/flash2_simt/flash2_simt.hpp"
#include "gpu/kernels/split_k/split_k.hpp"
#include "gpu/kernels/standard/standard.hpp"
#include "gpu/kernels/standard_mma/standard_mma.hpp"

namespace tilescope {
namespace {

struct Region {
  std::int64_t begin, size;
};

/// Checks that the regions, in whatever order, fill [0, end).
void check_partition(std::vector<Region> regions, std::int64_t end) {
  std::sort(regions.begin(), regions.end(),
            [](const Region& a, const Region& b) { return a.begin < b.begin; });
  std::int64_t reached = 0;
  for (const Region& region : regions) {
    CHECK(region.begin == reached);
    reached += region.size;
  }
  CHECK(reached == end);
}

TEST_CASE(
    "the layouts of gpu:standard-mma: either kind of product, and as many CTAs an SM as they are made for") {
  for (int dim : StandardMma::kHeadDims) {
    CAPTURE(dim);
    const StandardMma::Layout layout = StandardMma::layout(dim);
    const TileShape tile = StandardMma::shape(dim).tile;
    const int q = 2 * tile.block_m * dim, kv = 2 * tile.block_n * dim,
              matrix = 2 * tile.block_m * tile.block_n;
    check_partition(
        {{layout.left(), q}, {layout.right(0), kv}, {layout.right(1), kv}, {layout.product(), matrix}},
        layout.product() + matrix);
    const int rows = std::max(q, kv);
    check_partition({{layout.matrix(0), matrix},
                     {layout.matrix(1), matrix},
                     {layout.rows(0), rows},
                     {layout.rows(1), rows}},
                    layout.rows(1) + rows);
    CHECK(layout.end() == std::max(layout.product() + matrix, layout.rows(1) + rows));
    CHECK(q <= layout.end());  // a product by queries is staged where its operands were
    CHECK(layout.end() <= max_shared_bytes(8));
    CHECK(StandardMma::shape(dim).ctas_per_sm * (layout.end() + 1024) <= 228 * 1024);
  }
}

TEST_CASE("the layouts of gpu:flash2-mma") {
  for (int dim : kMmaHeadDims) {
    for (int stages : {1, 2}) {
      CAPTURE(dim);
      CAPTURE(stages);
      for (const MmaForwardShape& shape : mma_forward_choices(dim)) {
        const MmaQueryLayout layout = shape.layout(dim, stages);
        const int kv = 2 * shape.tile.block_n * dim;
        std::vector<Region> regions = {{layout.q(), 2 * shape.tile.block_m * dim}};
        for (int stage = 0; stage < stages; ++stage) {
          regions.insert(regions.end(), {{layout.k(stage), kv}, {layout.v(stage), kv}});
        }
        check_partition(regions, layout.end());
      }
      for (const MmaDqShape& shape : mma_dq_choices(dim)) {
        const MmaQueryLayout layout = shape.layout(dim, stages);
        const int q = 2 * shape.tile.block_m * dim, kv = 2 * shape.tile.block_n * dim;
        std::vector<Region> regions = {{layout.q(), q}, {layout.dout(), q}};
        for (int stage = 0; stage < stages; ++stage) {
          regions.insert(regions.end(), {{layout.k(stage), kv}, {layout.v(stage), kv}});
        }
        check_partition(regions, layout.end());
      }
      for (const MmaDkdvShape& shape : mma_dkdv_choices(dim)) {
        const MmaDkdvLayout layout = shape.layout(dim, stages);
        const TileShape tile = shape.tile;
        const int q = 2 * tile.block_m * dim, kv = 2 * tile.block_n * dim,
                  scores = 2 * tile.block_m * tile.block_n;
        std::vector<Region> regions = {
            {layout.k(), kv}, {layout.v(), kv}, {layout.probs(), scores}, {layout.dscores(), scores}};
        for (int stage = 0; stage < stages; ++stage) {
          regions.insert(regions.end(), {{layout.q(stage), q},
                                         {layout.dout(stage), q},
                                         {layout.lse(stage), 4 * tile.block_m},
                                         {layout.delta(stage), 4 * tile.block_m}});
        }
        check_partition(regions, layout.end());
      }
    }
  }
}

TEST_CASE("the layout of gpu:split-k") {
  using Layout = SplitK::Layout;
  const MmaQueryLayout tiles = Layout::tiles();
  const int tile = 2 * 64 * SplitK::kHeadDim;
  check_partition({{tiles.q(), tile},
                   {tiles.k(0), tile},
                   {tiles.v(0), tile},
                   {tiles.k(1), tile},
                   {tiles.v(1), tile},
                   {Layout::parts(), 4 * SplitK::kWarps * 64 * SplitK::kPartRow},
                   {Layout::rows(), 4 * SplitK::kWarps * 64}},
                  Layout::end());
}

void check_forward(const cuda_cores::ForwardLayout& layout) {
  const int q = layout.tile.block_m * layout.dim, kv = layout.tile.block_n * layout.dim;
  check_partition({{layout.q(), q},
                   {layout.k(), kv},
                   {layout.v(), kv},
                   {layout.probs(), layout.tile.block_m * layout.tile.block_n},
                   {layout.rows(), layout.row_values * layout.tile.block_m}},
                  layout.end());
}

void check_backward(const cuda_cores::BackwardLayout& layout) {
  const int q = layout.tile.block_m * layout.dim, kv = layout.tile.block_n * layout.dim;
  const int scores = layout.tile.block_m * layout.tile.block_n;
  std::vector<Region> regions = {{layout.q(), q},  {layout.dout(), q},       {layout.k(), kv},
                                 {layout.v(), kv}, {layout.probs(), scores}, {layout.dscores(), scores}};
  for (int i = 0; i < layout.values_a_row; ++i)
    regions.push_back({layout.row_values(i), layout.tile.block_m});
  check_partition(regions, layout.end());
}

TEST_CASE("the layouts of the CUDA-core kernels") {
  for (int dim : {64, 128, 256}) {
    CAPTURE(dim);
    check_forward(Flash1::forward_layout(Flash1::shapes(dim).forward, dim));
    check_backward(Flash1::backward_layout(Flash1::shapes(dim).backward, dim));
    const Standard::ProductLayout product{Standard::tile(dim), dim};
    check_partition({{product.queries(), product.tile.block_m * dim},
                     {product.keys(), product.tile.block_n * dim},
                     {product.matrix(), product.tile.block_m * product.tile.block_n}},
                    product.end());
  }
  for (int head_dim : kCompiledHeadDims) {
    const int dim = Flash2Simt::padded_dim(head_dim);
    CAPTURE(dim);
    check_forward(Flash2Simt::forward_layout(Flash2Simt::tiles(dim).forward, dim));
    check_backward(Flash2Simt::backward_layout(Flash2Simt::tiles(dim).backward, dim));
  }
  const Standard::RowLayout rows{Standard::padded_row(1001), 2};
  check_partition(
      {{rows.warp_values(), Standard::kRowThreads / 32}, {rows.strip(0), 1008}, {rows.strip(1), 1008}},
      rows.end());
}

}  // namespace
}  // namespace tilescope
