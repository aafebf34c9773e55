// SPDX-License-Identifier: Apache-2.0
// Somebody else's memory as tensors: kernels read and write it where it is, whatever its strides and
// alignment.
#include "cpu_ref/numeric/tensor.hpp"

#include <doctest/doctest.h>

#include <cstring>
#include <vector>

#include "cpu_ref/kernels/kernel.hpp"
#include "cpu_ref/numeric/random_inputs.hpp"

namespace tilescope {
namespace {

constexpr AttentionProblem kShape{
    .batch = 2, .heads = 4, .heads_kv = 2, .seqlen_q = 70, .seqlen_k = 70, .head_dim = 32, .causal = true};

/// A tensor in the order (B, N, H, D), one element off any alignment.
struct Strided {
  std::vector<float> memory;
  Tensor view;

  explicit Strided(const Shape& shape) : memory(static_cast<std::size_t>(1 + shape.elements())) {
    view = Tensor::view(shape, ElementType::fp32, memory.data() + 1,
                        {shape.rows * shape.heads * shape.cols, shape.cols, shape.heads * shape.cols});
  }
};

template <typename Act>
void for_each_row(const Shape& shape, const Act& act) {
  for (std::int64_t b = 0; b < shape.batch; ++b) {
    for (std::int64_t h = 0; h < shape.heads; ++h) {
      for (std::int64_t n = 0; n < shape.rows; ++n) act(b, h, n);
    }
  }
}

}  // namespace

TEST_CASE("a kernel reads and writes views of any strides, and computes what it computes on its own memory") {
  for (const Kernel& kernel : cpu_kernels()) {
    if (kernel.refusal(kShape, Direction::backward, kernel.default_options(kShape))) continue;
    CAPTURE(kernel.name);
    const ProgramOptions options = kernel.default_options(kShape);
    TensorSet own(kShape), views(kShape);
    fill_random_inputs(own, Direction::backward, InputKind::normal);
    std::vector<Strided> memory;
    memory.reserve(16);
    const auto view = [&](TensorName name) {
      const TensorExtent extent = tensor_extent(kShape, name);
      Strided& strided = memory.emplace_back(Shape{extent.batch, extent.heads, extent.rows, extent.cols});
      views[name] = std::move(strided.view);
    };
    for (const TensorName name : {TensorName::q, TensorName::k, TensorName::v, TensorName::dout}) {
      view(name);
      const Shape shape = own[name].shape();
      for_each_row(shape, [&](auto b, auto h, auto n) {
        std::memcpy(views[name].row(b, h, n), own[name].row(b, h, n),
                    static_cast<std::size_t>(shape.cols) * 4);
      });
    }
    for (const TensorName name : {TensorName::out, TensorName::dq, TensorName::dk, TensorName::dv})
      view(name);
    for (TensorSet* tensors : {&own, &views}) {
      kernel.run(options, Direction::forward, *tensors, nullptr);
      kernel.run(options, Direction::backward, *tensors, nullptr);
    }
    for (const TensorName name : {TensorName::out, TensorName::dk, TensorName::dv}) {
      CHECK_FALSE(views[name].owns_memory());
      const Shape shape = own[name].shape();
      std::int64_t unlike = 0;
      for_each_row(shape, [&](auto b, auto h, auto n) {
        unlike += std::memcmp(views[name].row(b, h, n), own[name].row(b, h, n),
                              static_cast<std::size_t>(shape.cols) * 4) != 0;
      });
      CHECK(unlike == 0);
    }
  }
}

}  // namespace tilescope
