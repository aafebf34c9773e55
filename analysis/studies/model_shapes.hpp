// SPDX-License-Identifier: Apache-2.0
// Shapes of the attention layers of published models, as data with their sources.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "cpu_ref/schedule/problem.hpp"

namespace tilescope {

/// One kind of layer, as often as the model has it.
struct ModelShape {
  std::string_view name, title;
  std::int64_t layers, heads, heads_kv, head_dim;
  std::int64_t window;  // keys to the left of a query; 0: all
  std::string_view source;
};

std::span<const ModelShape> model_shapes();
/// @throws BadInput naming the nearest
const ModelShape& find_model(std::string_view name);

/// One layer on one of `tensor_parallel` devices, which share the heads: causal, bf16. A key/value head that
/// is not to be shared further stands on several. @param decode  one query a sequence, behind `seqlen` keys
/// @throws BadInput where the devices do not divide the heads
AttentionProblem layer_problem(const ModelShape& model, std::int64_t tensor_parallel, std::int64_t batch,
                               std::int64_t seqlen, bool decode);

}  // namespace tilescope
