// SPDX-License-Identifier: Apache-2.0
// Owning (B, H, N, D) tensors, strided views of them, and the set of tensors that one attention problem uses.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "cpu_ref/schedule/kv_pages.hpp"
#include "cpu_ref/schedule/problem.hpp"
#include "cpu_ref/schedule/tile_program.hpp"

namespace tilescope {

/// Extents (batch, heads, rows, cols), C order unless strides say otherwise.
struct Shape {
  std::int64_t batch = 0, heads = 0, rows = 0, cols = 0;
  std::int64_t elements() const { return batch * heads * rows * cols; }
  bool operator==(const Shape&) const = default;
};

struct FreeIfOwned {
  bool owned = true;
  void operator()(std::byte* pointer) const;
};

/// A tensor of any element type, in C order and 64-byte aligned where it owns its memory.
class Tensor {
 public:
  Tensor() = default;
  /// Uninitialised storage. @throws MachineLacks naming the bytes when the memory cannot be had.
  Tensor(Shape shape, ElementType dtype);
  /// Somebody else's memory, which must live longer: the elements of a row stand side by side, rows where the
  /// strides of batch, head and row say. [elements] What goes by row() or row_index() takes it; data(),
  /// floats(), get(), set() and as() are for C order.
  static Tensor view(Shape shape, ElementType dtype, void* data, const std::array<std::int64_t, 3>& strides);

  const Shape& shape() const { return shape_; }
  ElementType dtype() const { return dtype_; }
  bool empty() const { return shape_.elements() == 0; }
  bool owns_memory() const { return data_ == nullptr || data_.get_deleter().owned; }
  std::int64_t bytes() const { return shape_.elements() * element_bytes(dtype_); }
  void* data() { return data_.get(); }
  const void* data() const { return data_.get(); }
  /// fp32 tensors only.
  float* floats() { return static_cast<float*>(data()); }
  const float* floats() const { return static_cast<const float*>(data()); }

  /// Index of element (batch, head, row, 0). [elements]
  std::int64_t row_index(std::int64_t batch, std::int64_t head, std::int64_t row) const {
    return batch * strides_[0] + head * strides_[1] + row * strides_[2];
  }
  /// From one row to the next. [elements]
  std::int64_t row_stride() const { return strides_[2]; }
  const void* row(std::int64_t batch, std::int64_t head, std::int64_t row) const {
    return data_.get() + row_index(batch, head, row) * element_bytes(dtype_);
  }
  void* row(std::int64_t batch, std::int64_t head, std::int64_t row) {
    return data_.get() + row_index(batch, head, row) * element_bytes(dtype_);
  }

  /// One element as fp32, and its rounding store. For tests and judges, not for inner loops.
  float get(std::int64_t index) const;
  void set(std::int64_t index, float value);
  /// Every byte 0xFF: NaN in every element type, so that an element nobody wrote is seen.
  void poison();
  void zero();
  /// A copy rounded (or widened) to another element type.
  Tensor as(ElementType dtype) const;

 private:
  Shape shape_;
  std::array<std::int64_t, 3> strides_{};  // of batch, head and row [elements]
  ElementType dtype_ = ElementType::fp32;
  std::unique_ptr<std::byte[], FreeIfOwned> data_;
};

/// The tensors of one problem, by name; a kernel allocates its outputs and workspaces here.
class TensorSet {
 public:
  explicit TensorSet(const AttentionProblem& problem) : problem_(problem) {}

  const AttentionProblem& problem() const { return problem_; }
  bool has(TensorName name) const { return !(*this)[name].empty(); }
  Tensor& operator[](TensorName name) { return tensors_[static_cast<std::size_t>(name)]; }
  const Tensor& operator[](TensorName name) const { return tensors_[static_cast<std::size_t>(name)]; }
  /// Allocates `name`, or takes the storage it has, with the extent that tensor_extent() gives, poisoned
  /// with NaN. A view of that extent stays as it is: its pages are touched first by those who write them.
  /// Partial results have the batch entries of one split after those of another.
  Tensor& allocate(TensorName name, std::int64_t splits = 1);
  /// The descales of q, k or v (descale_shape(), descales.hpp); empty: 1.
  Tensor& descales(TensorName of) { return descales_[static_cast<std::size_t>(of)]; }
  const Tensor& descales(TensorName of) const { return descales_[static_cast<std::size_t>(of)]; }
  /// Where the descale of one row of q (of a query head), or of k or v (of a key/value head), stands among
  /// those held, and what it is.
  std::int64_t descale_index(TensorName of, std::int64_t batch, std::int64_t head, std::int64_t row) const;
  float descale(TensorName of, std::int64_t batch, std::int64_t head, std::int64_t row) const;
  /// Pages of K or V, (pages, Hkv, page_size, columns), and which of them holds what. Kernels read a problem
  /// with pages from there; k and v themselves are what a judge knows.
  Tensor& pool(TensorName of) { return pools_[of == TensorName::k ? 0 : 1]; }
  const Tensor& pool(TensorName of) const { return pools_[of == TensorName::k ? 0 : 1]; }
  KvPageTable& kv_pages() { return kv_pages_; }
  const KvPageTable& kv_pages() const { return kv_pages_; }
  /// Copies k and v into pages, and NaN into all that belongs to nobody.
  void lay_out_in_pages(const KvPageTable& pages);
  /// Bytes of all tensors held.
  std::int64_t bytes() const;

 private:
  AttentionProblem problem_;
  std::array<Tensor, kNumTensors> tensors_;
  std::array<Tensor, 3> descales_;  // of q, k and v
  std::array<Tensor, 2> pools_;     // of k and v
  KvPageTable kv_pages_;
};

}  // namespace tilescope
