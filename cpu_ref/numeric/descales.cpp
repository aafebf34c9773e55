// SPDX-License-Identifier: Apache-2.0
#include "cpu_ref/numeric/descales.hpp"

#include <algorithm>
#include <cmath>

#include "cpu_ref/numeric/float_format.hpp"
#include "cpu_ref/numeric/numeric.hpp"
#include "cpu_ref/numeric/philox.hpp"

namespace tilescope {
namespace {

constexpr std::uint32_t kDescaleStream = 3;  // of counters, beside those of inputs

float largest_number(ElementType type) {
  const auto bits =
      static_cast<std::uint8_t>((type == ElementType::fp8e4m3 ? kFp8e4m3 : kFp8e5m2).max_finite);
  float largest;
  widen(type, &bits, &largest, 1);
  return largest;
}

/// The largest finite magnitude of each block, over the largest number of the type; 1 for a block of zeros.
void take_from(const Tensor& values, TensorSet& tensors, TensorName of) {
  const float most = largest_number(tensor_extent(tensors.problem(), of).dtype);
  const Shape& shape = values.shape();
  Tensor& descales = tensors.descales(of);
  std::fill_n(descales.floats(), descales.shape().elements(), 0.0f);
  for (std::int64_t row = 0; row < shape.batch * shape.heads * shape.rows; ++row) {
    const std::int64_t batch_head = row / shape.rows;
    float& largest = descales.floats()[tensors.descale_index(of, batch_head / shape.heads,
                                                             batch_head % shape.heads, row % shape.rows)];
    for (std::int64_t col = 0; col < shape.cols; ++col) {
      const float magnitude = std::fabs(values.get(row * shape.cols + col));
      if (std::isfinite(magnitude)) largest = std::max(largest, magnitude);
    }
  }
  for (std::int64_t i = 0; i < descales.shape().elements(); ++i) {
    float& descale = descales.floats()[i];
    descale = descale > 0 ? static_cast<float>(std::max<double>(descale / most, kLeastDescale)) : 1.0f;
  }
}

}  // namespace

const Descale& descale_of(const AttentionProblem& problem, TensorName name) {
  const Descales& all = problem.descales;
  return name == TensorName::q ? all.q : name == TensorName::k ? all.k : all.v;
}

Shape descale_shape(const AttentionProblem& problem, TensorName of) {
  if (!problem.descales.by_block()) return {problem.batch, problem.heads_kv, 1, 1};
  const bool queries = of == TensorName::q;
  const TileShape block = problem.descales.block;
  const auto blocks = [](std::int64_t rows, int size) { return (rows + size - 1) / size; };
  return {problem.batch, queries ? problem.heads : problem.heads_kv, 1,
          queries ? blocks(problem.seqlen_q, block.block_m) : blocks(problem.seqlen_k, block.block_n)};
}

Tensor make_descales(const AttentionProblem& problem, TensorName of) {
  const Descale& descale = descale_of(problem, of);
  if (descale == Descale{}) return {};
  if (descale.from == Descale::From::data || descale.from == Descale::From::given) {
    throw BadInput("descale_" + std::string(to_string(of)), to_string(descale),
                   "must be a number or random where inputs are made by chance and not kept, as on a device");
  }
  Tensor made(descale_shape(problem, of), ElementType::fp32);
  for (std::int64_t i = 0; i < made.shape().elements(); ++i) {
    const Philox4 bits = philox4x32(
        problem.seed, {{static_cast<std::uint32_t>(i), 0u, static_cast<std::uint32_t>(of), kDescaleStream}});
    const double chance = std::exp2(2.0 * (bits.x[0] * 0x1p-32) - 1.0);
    made.floats()[i] = static_cast<float>(descale.from == Descale::From::random ? chance : descale.value);
  }
  return made;
}

void store_input(TensorSet& tensors, TensorName name, const Tensor& values) {
  const AttentionProblem& problem = tensors.problem();
  const Descale::From from = descale_of(problem, name).from;
  if (from != Descale::From::data) {
    if (from != Descale::From::given) tensors.descales(name) = make_descales(problem, name);
    tensors[name] = values.as(tensor_extent(problem, name).dtype);
    return;
  }
  tensors.descales(name) = Tensor(descale_shape(problem, name), ElementType::fp32);
  take_from(values, tensors, name);
  Tensor& stored = tensors.allocate(name);
  const Shape& shape = values.shape();
  std::vector<float> row(static_cast<std::size_t>(shape.cols));
  for (std::int64_t i = 0; i < shape.batch * shape.heads * shape.rows; ++i) {
    const std::int64_t batch_head = i / shape.rows;
    const float descale =
        tensors.descale(name, batch_head / shape.heads, batch_head % shape.heads, i % shape.rows);
    for (std::int64_t col = 0; col < shape.cols; ++col) {
      row[static_cast<std::size_t>(col)] = values.get(i * shape.cols + col) / descale;
    }
    narrow(stored.dtype(), row.data(), static_cast<std::byte*>(stored.data()) + i * shape.cols, shape.cols);
  }
}

}  // namespace tilescope
