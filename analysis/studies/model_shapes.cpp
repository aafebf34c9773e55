// SPDX-License-Identifier: Apache-2.0
#include "analysis/studies/model_shapes.hpp"

#include <algorithm>
#include <string>
#include <vector>

#include "common/nearest_names.hpp"

namespace tilescope {
namespace {

// Models with multi-head latent attention (DeepSeek-V2 and -V3) have keys and values of unlike width and are
// no problem of this kind.
constexpr ModelShape kModels[] = {
    {"gpt3-175b", "GPT-3 175B", 96, 96, 96, 128, 0, "arXiv:2005.14165, table 2.1"},
    {"llama3-8b", "Llama 3 8B", 32, 32, 8, 128, 0, "arXiv:2407.21783, table 3"},
    {"llama3-70b", "Llama 3 70B", 80, 64, 8, 128, 0, "arXiv:2407.21783, table 3"},
    {"llama3-405b", "Llama 3 405B", 126, 128, 8, 128, 0, "arXiv:2407.21783, table 3"},
    {"mistral-7b", "Mistral 7B, sliding window", 32, 32, 8, 128, 4096, "arXiv:2310.06825, table 1"},
    {"mixtral-8x7b", "Mixtral 8x7B", 32, 32, 8, 128, 0, "arXiv:2401.04088, table 1"},
    {"qwen2.5-7b", "Qwen2.5 7B", 28, 28, 4, 128, 0, "arXiv:2412.15115, table 1"},
    {"qwen2.5-72b", "Qwen2.5 72B", 80, 64, 8, 128, 0, "arXiv:2412.15115, table 1"},
    {"qwen3-32b", "Qwen3 32B", 64, 64, 8, 128, 0, "arXiv:2505.09388, table 1"},
    {"deepseek-67b", "DeepSeek LLM 67B", 95, 64, 8, 128, 0, "arXiv:2401.02954, table 2"},
};

}  // namespace

std::span<const ModelShape> model_shapes() { return kModels; }

const ModelShape& find_model(std::string_view name) { return find_named(kModels, "model", name); }

AttentionProblem layer_problem(const ModelShape& model, std::int64_t tensor_parallel, std::int64_t batch,
                               std::int64_t seqlen, bool decode) {
  const auto divides = [](std::int64_t divisor, std::int64_t number) { return number % divisor == 0; };
  if (tensor_parallel < 1 || !divides(tensor_parallel, model.heads) ||
      (!divides(tensor_parallel, model.heads_kv) && !divides(model.heads_kv, tensor_parallel))) {
    throw BadInput("tp", std::to_string(tensor_parallel),
                   "must divide the " + std::to_string(model.heads) + " heads of " + std::string(model.name) +
                       ", and divide or be a multiple of its " + std::to_string(model.heads_kv) +
                       " key/value heads");
  }
  AttentionProblem problem;
  problem.batch = batch;
  problem.heads = model.heads / tensor_parallel;
  problem.heads_kv = std::max<std::int64_t>(1, model.heads_kv / tensor_parallel);
  problem.seqlen_q = decode ? 1 : seqlen;
  problem.seqlen_k = seqlen;
  problem.head_dim = model.head_dim;
  problem.dtype = ElementType::bf16;
  problem.causal = true;
  if (model.window > 0) problem.window_left = model.window - 1;  // the query's own key is one of them
  return problem;
}

}  // namespace tilescope
