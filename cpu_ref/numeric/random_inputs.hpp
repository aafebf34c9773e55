// SPDX-License-Identifier: Apache-2.0
// Inputs as functions of (seed, tensor, index).
#pragma once

#include <string_view>

#include "cpu_ref/numeric/tensor.hpp"

namespace tilescope {

enum class InputKind : std::uint8_t {
  normal,      // N(0, 1)
  outlier,     // N(0, 1) + N(0, 100) * Bernoulli(0.001), FlashAttention-3 (arXiv:2407.08608) section 4.3
  equal_rows,  // every row of K the same: many equal row maxima, P exactly uniform
  huge_scale,  // N(0, 1) * 64 in q and k: a softmax close to one-hot
};
inline constexpr InputKind kInputKinds[] = {InputKind::normal, InputKind::outlier, InputKind::equal_rows,
                                            InputKind::huge_scale};
std::string_view to_string(InputKind kind);
InputKind parse_input_kind(std::string_view text);

/// Standard normal number `index` of stream (seed, tensor): Box-Muller on Philox bits.
float random_normal(std::uint64_t seed, TensorName tensor, std::int64_t index);

/// Allocates and fills one of q, k, v, dout, rounded to the problem's element type, and its descales.
void fill_random(TensorSet& tensors, TensorName name, InputKind kind);

/// Copies the first columns of rows of keys, as many as `values` has.
void copy_value_columns(const Tensor& keys, Tensor& values);

/// Allocates v of a problem with shared_kv, and copies K's columns there: for judges and standard attention,
/// whose passes read K and V apart.
void copy_values_from_keys(TensorSet& tensors);

/// Allocates and fills the numbers of heads that the problem's modifiers ask for: the slopes of ALiBi's
/// paper, sinks by chance.
void fill_score_operands(TensorSet& tensors);

/// Fills q, k and v, these numbers, and dout too when `direction` is backward.
void fill_random_inputs(TensorSet& tensors, Direction direction, InputKind kind = InputKind::normal);

}  // namespace tilescope
