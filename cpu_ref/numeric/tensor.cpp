// SPDX-License-Identifier: Apache-2.0
#include "cpu_ref/numeric/tensor.hpp"

#include <cstdlib>
#include <cstring>

#include "cpu_ref/numeric/numeric.hpp"

namespace tilescope {

void FreeIfOwned::operator()(std::byte* pointer) const {
  if (owned) std::free(pointer);
}

Tensor::Tensor(Shape shape, ElementType dtype)
    : shape_(shape),
      strides_{shape.heads * shape.rows * shape.cols, shape.rows * shape.cols, shape.cols},
      dtype_(dtype) {
  constexpr std::size_t kAlignment = 64;  // one AVX-512 register, one cache line
  const std::size_t size = (static_cast<std::size_t>(bytes()) + kAlignment - 1) / kAlignment * kAlignment;
  data_.reset(static_cast<std::byte*>(std::aligned_alloc(kAlignment, size == 0 ? kAlignment : size)));
  if (!data_) {
    throw MachineLacks("out of memory: a tensor needs " + std::to_string(bytes()) +
                       " bytes; a smaller batch or sequence, or a kernel without N x N matrices, would fit");
  }
}

Tensor Tensor::view(Shape shape, ElementType dtype, void* data, const std::array<std::int64_t, 3>& strides) {
  Tensor tensor;
  tensor.shape_ = shape;
  tensor.strides_ = strides;
  tensor.dtype_ = dtype;
  tensor.data_ = {static_cast<std::byte*>(data), FreeIfOwned{.owned = false}};
  return tensor;
}

float Tensor::get(std::int64_t index) const {
  float value;
  widen(dtype_, data_.get() + index * element_bytes(dtype_), &value, 1);
  return value;
}

void Tensor::set(std::int64_t index, float value) {
  narrow(dtype_, &value, data_.get() + index * element_bytes(dtype_), 1);
}

void Tensor::poison() { std::memset(data_.get(), 0xFF, static_cast<std::size_t>(bytes())); }
void Tensor::zero() { std::memset(data_.get(), 0, static_cast<std::size_t>(bytes())); }

Tensor Tensor::as(ElementType dtype) const {
  Tensor copy(shape_, dtype);
  float buffer[256];
  const std::int64_t count = shape_.elements();
  for (std::int64_t i = 0; i < count; i += 256) {
    const std::int64_t chunk = count - i < 256 ? count - i : 256;
    widen(dtype_, data_.get() + i * element_bytes(dtype_), buffer, chunk);
    narrow(dtype, buffer, copy.data_.get() + i * element_bytes(dtype), chunk);
  }
  return copy;
}

Tensor& TensorSet::allocate(TensorName name, std::int64_t splits) {
  const TensorExtent extent = tensor_extent(problem_, name, splits);
  Tensor& tensor = (*this)[name];
  const Shape shape{extent.splits * extent.batch, extent.heads, extent.rows, extent.cols};
  if (tensor.shape() != shape || tensor.dtype() != extent.dtype) tensor = Tensor(shape, extent.dtype);
  if (tensor.owns_memory()) tensor.poison();
  return tensor;
}

std::int64_t TensorSet::descale_index(TensorName of, std::int64_t batch, std::int64_t head,
                                      std::int64_t row) const {
  const Tensor& held = descales(of);
  const std::int64_t heads = of == TensorName::q ? problem_.heads : problem_.heads_kv;
  const TileShape block = problem_.descales.block;
  const int rows = of == TensorName::q ? block.block_m : block.block_n;
  // Heads that share a row of numbers stand side by side.
  return held.row_index(batch, head / (heads / held.shape().heads), 0) +
         (problem_.descales.by_block() ? row / rows : 0);
}

float TensorSet::descale(TensorName of, std::int64_t batch, std::int64_t head, std::int64_t row) const {
  const Tensor& held = descales(of);
  return held.empty() ? 1.0f : held.floats()[descale_index(of, batch, head, row)];
}

void TensorSet::lay_out_in_pages(const KvPageTable& pages) {
  kv_pages_ = pages;
  for (const TensorName name : {TensorName::k, TensorName::v}) {
    const Tensor& from = (*this)[name];
    const Shape shape = from.shape();
    Tensor stored({kv_pages_.pool, shape.heads, problem_.page_size, shape.cols}, from.dtype());
    stored.poison();
    const std::size_t row_bytes = static_cast<std::size_t>(shape.cols * element_bytes(from.dtype()));
    for (std::int64_t batch = 0; batch < shape.batch; ++batch) {
      for (std::int64_t key = 0; key < problem_.keys_of(batch); ++key) {
        const std::int64_t page = kv_pages_.page_of(batch, key), place = key % problem_.page_size;
        for (std::int64_t head = 0; head < shape.heads; ++head)
          std::memcpy(stored.row(page, head, place), from.row(batch, head, key), row_bytes);
      }
    }
    pool(name) = std::move(stored);
  }
}

std::int64_t TensorSet::bytes() const {
  std::int64_t total = 0;
  for (const Tensor& tensor : tensors_) total += tensor.bytes();
  for (const Tensor& tensor : pools_) total += tensor.bytes();
  return total;
}

}  // namespace tilescope
