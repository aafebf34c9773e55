// SPDX-License-Identifier: Apache-2.0
// Index arithmetic of the GPU kernels at the largest problems that they take.
#include "gpu/launch/row_stride.hpp"

#include <doctest/doctest.h>

#include <string>

#include "cpu_ref/schedule/tile_program.hpp"
#include "gpu/registry/kernel_registry.hpp"

namespace tilescope {
namespace {

constexpr std::int64_t kMostInt = std::numeric_limits<int>::max();

TEST_CASE("no tile of a GPU kernel has more rows than 32-bit products within a tile allow") {
  static_assert(kMostTileRows * kMaxRowStride + kMaxHeadDim <= kMostInt);
  static_assert(kMostTileRows * (kMaxRowStride + 1) + kMaxHeadDim > kMostInt);
  int tiles = 0;
  for (const Kernel& kernel : gpu_kernels()) {
    CAPTURE(kernel.name);
    for (std::int64_t head_dim : {16, 32, 64, 96, 128, 192, 256}) {
      const AttentionProblem problem{.head_dim = head_dim};
      const ProgramOptions options = kernel.default_options(problem);
      for (Direction direction : {Direction::forward, Direction::backward}) {
        for (PassName pass : tiled_passes(kernel.algorithm, direction, options.backward)) {
          for (TileShape tile : kernel.tile_choices(problem, pass)) {
            CHECK(tile.block_m <= kMostTileRows);
            CHECK(tile.block_n <= kMostTileRows);
            ++tiles;
          }
        }
      }
    }
  }
  CHECK(tiles > 0);
}

TEST_CASE("rows are counted in 32 bits, elements of a tensor in 64, at every problem that validate() takes") {
  static_assert(kMaxSeqlen + kMostTileRows <= kMostInt);
  const AttentionProblem longest{.seqlen_q = kMaxSeqlen, .seqlen_k = kMaxSeqlen, .head_dim = kMaxHeadDim};
  validate(longest);
  for (int i = 0; i < kNumTensors; ++i) CHECK(tensor_extent(longest, static_cast<TensorName>(i)).bytes() > 0);
  AttentionProblem twice = longest;
  twice.heads = twice.heads_kv = 2;
  CHECK_THROWS_AS(validate(twice), BadInput);
}

TEST_CASE("heads lie side by side up to the largest stride of rows") {
  AttentionProblem problem{.heads = kMaxRowStride / kMaxHeadDim, .heads_kv = 1, .head_dim = kMaxHeadDim};
  CHECK(heads_side_by_side_fit(problem));
  problem.heads += 1;
  validate(problem);
  CHECK(!heads_side_by_side_fit(problem));
}

TEST_CASE("a tensor whose rows lie further apart is refused by its name") {
  CHECK_NOTHROW(require_row_stride("q", kMaxRowStride));
  const std::string most = std::to_string(kMaxRowStride), above = std::to_string(kMaxRowStride + 1);
  CHECK_THROWS_WITH_AS(
      require_row_stride("dout", kMaxRowStride + 1),
      doctest::Contains(("row stride of dout = " + above + ": rows may lie at most " + most).c_str()),
      BadInput);
}

}  // namespace
}  // namespace tilescope
