// SPDX-License-Identifier: Apache-2.0
#include "gpu/primitives/sm90/tensor_map.hpp"

#include <doctest/doctest.h>

using namespace tilescope::gpu::sm90;

namespace {
constexpr std::uint64_t kAlignedBase = 1 << 20;

TensorMapParameters packed_heads(std::int64_t batch, std::int64_t heads, std::int64_t rows,
                                 std::int64_t cols) {
  return head_panels(MapElement::bf16, batch, heads, rows, cols, heads * rows * cols, rows * cols, cols, 128);
}
}  // namespace

TEST_CASE("packed tensors of attention can be described") {
  for (const int dim : {8, 64, 96, 128, 192, 256}) {
    for (const int rows : {1, 127, 16384}) CHECK(!broken_rule(packed_heads(2, 3, rows, dim), kAlignedBase));
  }
  const TensorMapParameters map = packed_heads(2, 3, 100, 128);
  CHECK(map.rank == 4);
  CHECK(map.extent[0] == 128);
  CHECK(map.extent[1] == 100);
  CHECK(map.stride_bytes[1] == 256);
  CHECK(map.stride_bytes[2] == 25600);
  CHECK(map.stride_bytes[3] == 76800);
  CHECK(map.box_bytes() == 128 * 128);
}

TEST_CASE("each rule of the copy engine is named") {
  const TensorMapParameters good = packed_heads(2, 3, 100, 128);
  const auto rule = [](const TensorMapParameters& map, std::uint64_t base = kAlignedBase) {
    return broken_rule(map, base).value_or("");
  };
  CHECK(rule(good, kAlignedBase + 8) == "the base address must be a multiple of 16 bytes");
  CHECK(rule(good, 0) == "the base address must be a multiple of 16 bytes");
  TensorMapParameters map = good;
  map.rank = 6;
  CHECK(rule(map) == "a tensor map has 1 to 5 dimensions");
  map = good;
  map.extent[1] = 0;
  CHECK(rule(map) == "dimension 1: an extent lies between 1 and 2^32");
  map = good;
  map.box[1] = 257;
  CHECK(rule(map) == "dimension 1: a box has 1 to 256 elements");
  map = good;
  map.stride_bytes[2] = std::uint64_t{1} << 40;
  CHECK(rule(map) == "dimension 2: a stride is below 2^40 bytes");
  map = good;
  map.box[0] = 72;
  CHECK(rule(map) == "a box's row is no wider than the swizzle");
  map.box[0] = 4;
  CHECK(rule(map) == "a box's row is a multiple of 16 bytes");
  // Rows of 100 elements lie 200 bytes apart: not a multiple of 16.
  CHECK(rule(packed_heads(1, 1, 5, 100)) == "dimension 1: a stride is a multiple of 16 bytes");
  CHECK(rule(packed_heads(1, 1, 1, 100)) == "");
}
