// SPDX-License-Identifier: Apache-2.0
// The on-chip side of a CPU kernel: fp32 tiles in its own buffers, and views of tiles that lie elsewhere.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <new>

#include "cpu_ref/primitives/bf16_matmul.hpp"
#include "cpu_ref/primitives/fp32_matmul.hpp"
#include "cpu_ref/primitives/tile_math.hpp"

namespace tilescope {

/// Rows of fp32 that lie in a Tile or, where they need no conversion, in the tensor itself.
struct TileView {
  const float* data = nullptr;
  std::ptrdiff_t stride = 0;  // [elements]

  const float* row(int r) const { return data + r * stride; }
  /// As the left operand of a product: by rows, or transposed.
  LeftOperand rows() const { return {data, stride, 1}; }
  LeftOperand transposed() const { return {data, 1, stride}; }
};

/// An owning fp32 tile, row-major, rows padded for vectors, 64-byte aligned. A row has an odd number of cache
/// lines: at a power of two, those of a column would share few sets of a cache.
class Tile {
 public:
  Tile() = default;
  Tile(int rows, int cols)
      : rows_(rows),
        stride_(padded(cols) | kTileAlign),
        data_(static_cast<float*>(::operator new(size() * sizeof(float), kAlignment))) {
    zero();
  }

  float* data() { return data_.get(); }
  const float* data() const { return data_.get(); }
  float* row(int r) { return data_.get() + r * stride_; }
  const float* row(int r) const { return data_.get() + r * stride_; }
  std::ptrdiff_t stride() const { return stride_; }
  std::size_t size() const { return static_cast<std::size_t>(rows_) * static_cast<std::size_t>(stride_); }
  void fill(float value) { std::fill_n(data_.get(), size(), value); }
  void zero() { fill(0.0f); }

  TileView view() const { return {data_.get(), stride_}; }
  LeftOperand by_rows() const { return view().rows(); }
  LeftOperand transposed() const { return view().transposed(); }

 private:
  static constexpr std::align_val_t kAlignment{64};
  struct Free {
    void operator()(float* pointer) const { ::operator delete(pointer, kAlignment); }
  };
  int rows_ = 0;
  std::ptrdiff_t stride_ = 0;
  std::unique_ptr<float[], Free> data_;
};

/// c = or += a * b for tiles.
inline void tile_matmul(const LeftOperand& a, const TileView& b, Tile& c, int rows, int cols, int depth,
                        Accumulate accumulate) {
  tile_matmul(a, b.data, b.stride, c.data(), c.stride(), rows, cols, depth, accumulate);
}

/// out = factor * transpose of the first `rows` rows.
inline void transpose_tile(const TileView& in, int rows, int cols, float factor, Tile& out) {
  transpose_tile(in.data, in.stride, rows, cols, factor, out.data(), out.stride());
}

/// words = pairs of rows of a tile.
inline void pair_float_rows(const Tile& tile, int rows, int cols, Tile& words) {
  pair_float_rows(tile.data(), tile.stride(), rows, cols, words.data(), words.stride());
}

}  // namespace tilescope
