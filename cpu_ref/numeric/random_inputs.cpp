// SPDX-License-Identifier: Apache-2.0
#include "cpu_ref/numeric/random_inputs.hpp"

#include <cmath>
#include <cstring>
#include <limits>
#include <numbers>

#include "common/nearest_names.hpp"
#include "cpu_ref/numeric/descales.hpp"
#include "cpu_ref/numeric/numeric.hpp"
#include "cpu_ref/numeric/philox.hpp"

namespace tilescope {
namespace {

constexpr std::string_view kInputKindNames[] = {"normal", "outlier", "equal-rows", "huge-scale"};
// The last counter word keeps input streams apart from the dropout mask, whose last word is 0.
constexpr std::uint32_t kNormalStream = 1, kOutlierStream = 2;

Philox4 bits_at(std::uint64_t seed, TensorName tensor, std::int64_t index, std::uint32_t stream) {
  return philox4x32(seed, {{static_cast<std::uint32_t>(index), static_cast<std::uint32_t>(index >> 32),
                            static_cast<std::uint32_t>(tensor), stream}});
}

float box_muller(std::uint32_t a, std::uint32_t b) {
  const double u = (a + 0.5) * 0x1p-32, v = (b + 0.5) * 0x1p-32;
  return static_cast<float>(std::sqrt(-2.0 * std::log(u)) * std::cos(2.0 * std::numbers::pi * v));
}

float input_value(std::uint64_t seed, TensorName tensor, std::int64_t index, InputKind kind,
                  std::int64_t cols) {
  if (kind == InputKind::equal_rows && tensor == TensorName::k) index %= cols;
  float value = random_normal(seed, tensor, index);
  if (kind == InputKind::outlier) {
    const Philox4 bits = bits_at(seed, tensor, index, kOutlierStream);
    if (bits.x[0] < 0.001 * 4294967296.0) value += 10.0f * box_muller(bits.x[1], bits.x[2]);
  }
  if (kind == InputKind::huge_scale && (tensor == TensorName::q || tensor == TensorName::k)) value *= 64.0f;
  return value;
}

/// NaN in the rows of padding, so that whoever reads them is found out.
void poison_padding(Tensor& tensor, const AttentionProblem& problem) {
  const Shape& shape = tensor.shape();
  for (std::int64_t batch = 0; batch < shape.batch; ++batch) {
    for (std::int64_t head = 0; head < shape.heads; ++head) {
      const std::int64_t first = (batch * shape.heads + head) * shape.rows;
      for (std::int64_t i = (first + problem.keys_of(batch)) * shape.cols;
           i < (first + shape.rows) * shape.cols; ++i) {
        tensor.set(i, std::numeric_limits<float>::quiet_NaN());
      }
    }
  }
}

}  // namespace

std::string_view to_string(InputKind kind) { return kInputKindNames[static_cast<std::size_t>(kind)]; }

InputKind parse_input_kind(std::string_view text) {
  return value_named<InputKind>("inputs", text, kInputKindNames);
}

float random_normal(std::uint64_t seed, TensorName tensor, std::int64_t index) {
  const Philox4 bits = bits_at(seed, tensor, index, kNormalStream);
  return box_muller(bits.x[0], bits.x[1]);
}

void fill_random(TensorSet& tensors, TensorName name, InputKind kind) {
  const std::uint64_t seed = tensors.problem().seed;
  const bool of_data =
      name != TensorName::dout && descale_of(tensors.problem(), name).from == Descale::From::data;
  Tensor& stored = tensors.allocate(name);
  Tensor values = of_data ? Tensor(stored.shape(), ElementType::fp32) : Tensor();
  Tensor& tensor = of_data ? values : stored;
  const std::int64_t rows = tensor.shape().elements() / tensor.shape().cols, cols = tensor.shape().cols;
  const int bytes = element_bytes(tensor.dtype());
#pragma omp parallel for
  for (std::int64_t row = 0; row < rows; ++row) {
    float numbers[kMaxHeadDim];
    for (std::int64_t col = 0; col < cols; ++col)
      numbers[col] = input_value(seed, name, row * cols + col, kind, cols);
    narrow(tensor.dtype(), numbers, static_cast<std::byte*>(tensor.data()) + row * cols * bytes, cols);
  }
  if (of_data) {
    store_input(tensors, name, values);
  } else if (name != TensorName::dout) {
    tensors.descales(name) = make_descales(tensors.problem(), name);
  }
}

void copy_value_columns(const Tensor& keys, Tensor& values) {
  const Shape shape = values.shape();
  const std::size_t row_bytes = static_cast<std::size_t>(shape.cols * element_bytes(values.dtype()));
  for (std::int64_t batch = 0; batch < shape.batch; ++batch) {
    for (std::int64_t head = 0; head < shape.heads; ++head) {
      for (std::int64_t row = 0; row < shape.rows; ++row)
        std::memcpy(values.row(batch, head, row), keys.row(batch, head, row), row_bytes);
    }
  }
}

void copy_values_from_keys(TensorSet& tensors) {
  copy_value_columns(tensors[TensorName::k], tensors.allocate(TensorName::v));
}

void fill_score_operands(TensorSet& tensors) {
  const AttentionProblem& problem = tensors.problem();
  const auto heads = static_cast<int>(problem.heads);
  if (problem.score_mods.alibi) {
    float* const slopes = tensors.allocate(TensorName::alibi_slopes).floats();
    for (int head = 0; head < heads; ++head) slopes[head] = alibi_slope(head, heads);
  }
  if (problem.score_mods.learned_sink) {
    float* const sinks = tensors.allocate(TensorName::sink).floats();
    for (int head = 0; head < heads; ++head)
      sinks[head] = random_normal(problem.seed, TensorName::sink, head);
  }
}

void fill_random_inputs(TensorSet& tensors, Direction direction, InputKind kind) {
  const bool shared_kv = tensors.problem().shared_kv;
  for (TensorName name : {TensorName::q, TensorName::k}) fill_random(tensors, name, kind);
  shared_kv ? copy_values_from_keys(tensors) : fill_random(tensors, TensorName::v, kind);
  for (TensorName name : {TensorName::k, TensorName::v}) poison_padding(tensors[name], tensors.problem());
  if (tensors.problem().page_size > 0) tensors.lay_out_in_pages(draw_kv_pages(tensors.problem()));
  fill_score_operands(tensors);
  if (direction == Direction::backward) fill_random(tensors, TensorName::dout, kind);
}

}  // namespace tilescope
