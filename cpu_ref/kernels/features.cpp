// SPDX-License-Identifier: Apache-2.0
#include "cpu_ref/kernels/features.hpp"

#include <vector>

namespace tilescope {
namespace {

struct FeatureName {
  std::string_view name;     // in tables
  std::string_view missing;  // half a sentence
};

constexpr FeatureName kFeatures[kNumFeatures] = {
    {"fp32", ""},
    {"fp16", ""},
    {"bf16", ""},
    {"fp8e4m3", ""},
    {"fp8e5m2", ""},  // element types are refused all in one sentence
    {"causal", "has no causal mask"},
    {"window", "has no sliding window"},
    {"groups", "has no grouped heads: heads_kv must equal heads"},
    {"dropout", "has no dropout"},
    {"any scale", "takes softmax scales above 0 alone"},
    {"padding", "has no padding mask: key_lengths must be left out"},
    {"bnhd", "takes tensors laid out (batch, heads, rows, head_dim) alone"},
    {"descales", "takes no descales: descale_q, descale_k, descale_v and descale_block must be left out"},
    {"splits", "has no split keys: splits must be none"},
    {"packing", "packs no heads of a group into a q tile: pack-gqa must be off"},
    {"query splits", "lets no CTAs share a kv tile: query-splits must be 1"},
    {"masks", "has no mask beside causal, windows and padding: mask must be left out"},
    {"value dim", "has values with the columns of keys alone: head_dim_v must be left out"},
    {"pages", "reads no keys and values in pages: page_size must be left out"},
    {"fp8 keys", "has keys and values of the queries' type alone: kv_dtype must be left out"},
    {"shared kv", "reads values beside keys, not columns of them: shared_kv must be off"},
    {"softcap", "has no soft cap: softcap must be left out"},
    {"alibi", "has no ALiBi: alibi must be left out"},
    {"learned sink", "has no learned sink: learned_sink must be left out"},
    {"log bias", "has no logarithmic bias: log_bias must be left out"}};

std::optional<std::string> missing_element_type(const FeatureSet& has, ElementType type,
                                                std::string_view of_direction) {
  if (has.has(feature_of(type))) return std::nullopt;
  const std::string types = element_types_of(has);
  const bool one = types.find(' ') == std::string::npos;
  return "computes " + types + (one ? " only" : "") + std::string(of_direction) + ", not " +
         std::string(to_string(type));
}

/// @param name, dim  of the queries and keys, or of the values
std::optional<std::string> missing_head_dim(const Capabilities& can, const AttentionProblem& problem,
                                            const std::string& name, std::int64_t dim) {
  const std::string asked = ", not " + std::to_string(dim);
  if (!can.head_dims.empty() && dim > can.head_dims.back()) {
    return "computes " + name + " " + std::to_string(can.head_dims.back()) + " and below" + asked;
  }
  const int multiple = can.head_dim_multiple(problem.kv_type());
  if (dim % multiple == 0) return std::nullopt;
  return "computes multiples of " + std::to_string(multiple) + " as " + name +
         (is_fp8(problem.kv_type()) ? " of " + std::string(to_string(problem.kv_type())) : "") + asked;
}

}  // namespace

std::string_view to_string(Feature feature) { return kFeatures[static_cast<int>(feature)].name; }

Feature feature_of(ElementType type) {
  constexpr Feature kOf[] = {Feature::fp32, Feature::fp16, Feature::bf16, Feature::fp8e4m3, Feature::fp8e5m2};
  return kOf[static_cast<int>(type)];
}

namespace {

/// Of those that `wanted` gives a number for.
template <typename Wanted>
FeatureSet score_mods_where(const Wanted& wanted) {
  FeatureSet features;
  int feature = static_cast<int>(Feature::softcap);
  for (const ScoreModRow& row : score_mod_rows()) {
    if (wanted(row)) features = features | FeatureSet{static_cast<Feature>(feature)};
    ++feature;
  }
  return features;
}

}  // namespace

FeatureSet score_mod_features() {
  return score_mods_where([](const ScoreModRow&) { return true; });
}

FeatureSet required_features(const AttentionProblem& problem) {
  // Every field of a problem by its name: with a new one this does not compile until somebody has said here
  // what it asks of a kernel.
  const auto& [batch, heads, heads_kv, seqlen_q, seqlen_k, head_dim, dtype, causal, window_left, window_right,
               softmax_scale, dropout, seed, key_lengths, descales, mask, score_mods, head_dim_v, page_size,
               kv_dtype, shared_kv] = problem;
  FeatureSet needs{feature_of(dtype)};
  if (causal) needs = needs | FeatureSet{Feature::causal};
  if (window_left >= 0 || window_right >= 0) needs = needs | FeatureSet{Feature::window};
  if (!key_lengths.empty()) needs = needs | FeatureSet{Feature::key_padding};
  if (mask.any()) needs = needs | FeatureSet{Feature::mask_rules};
  if (heads_kv != heads) needs = needs | FeatureSet{Feature::grouped_heads};
  if (descales.any()) needs = needs | FeatureSet{Feature::descales};
  if (dropout > 0) needs = needs | FeatureSet{Feature::dropout};
  if (softmax_scale && !(*softmax_scale > 0)) needs = needs | FeatureSet{Feature::signed_scale};
  if (head_dim_v != 0 && head_dim_v != head_dim) needs = needs | FeatureSet{Feature::value_dim};
  if (page_size > 0) needs = needs | FeatureSet{Feature::paged_keys};
  if (kv_dtype) needs = needs | FeatureSet{Feature::fp8_keys};
  if (shared_kv) needs = needs | FeatureSet{Feature::shared_kv};
  const ScoreMods& mods = score_mods;
  return needs | score_mods_where([&mods](const ScoreModRow& row) { return row.get(mods) != 0; });
}

std::optional<std::string> missing_feature(const Capabilities& can, const AttentionProblem& problem,
                                           Direction direction) {
  const FeatureSet& has = can.of(direction);
  const bool forward = direction == Direction::forward;
  if (has.empty()) return forward ? "has a backward pass alone" : "has a forward pass alone";
  const bool only_here = !forward && can.forward.has(feature_of(problem.dtype));
  if (auto missing = missing_element_type(has, problem.dtype, only_here ? " backward" : "")) return missing;
  if (auto missing = missing_head_dim(can, problem, "head_dim", problem.head_dim)) return missing;
  const bool takes_values = has.has(Feature::value_dim);
  if (auto missing = missing_head_dim(can, problem, "head_dim_v", problem.value_dim());
      missing && takes_values) {
    return missing;
  }
  const FeatureSet needs = required_features(problem);
  const std::optional<std::string> missing = missing_feature(has, needs);
  if (!missing || forward || missing_feature(can.forward, needs)) return missing;
  return "takes this forward alone; backward it " + *missing;
}

FeatureSet required_features(const ProgramOptions& options, Direction direction) {
  FeatureSet needs;
  if (direction == Direction::backward) {
    return options.kv_tile_sharers() > 1 ? FeatureSet{Feature::query_splits} : needs;
  }
  if (options.splits.kind != SplitPolicy::Kind::none) needs = needs | FeatureSet{Feature::split_keys};
  if (options.pack_gqa) needs = needs | FeatureSet{Feature::packed_heads};
  return needs;
}

std::optional<std::string> missing_feature(const FeatureSet& has, const FeatureSet& needs) {
  const FeatureSet lacks = needs.without(has);
  for (int i = 0; i < kNumFeatures; ++i) {
    if (lacks.has(static_cast<Feature>(i))) return std::string(kFeatures[i].missing);
  }
  return std::nullopt;
}

std::string element_types_of(const FeatureSet& features, std::string_view separator,
                             std::string_view last_separator) {
  std::vector<std::string_view> names;
  for (ElementType type : kElementTypes) {
    if (features.has(feature_of(type))) names.push_back(to_string(type));
  }
  std::string text;
  for (std::size_t i = 0; i < names.size(); ++i) {
    const bool last = i + 1 == names.size();
    text += std::string(i == 0 ? "" : last ? last_separator : separator) + std::string(names[i]);
  }
  return text;
}

}  // namespace tilescope
