// SPDX-License-Identifier: Apache-2.0
// What a problem asks of a kernel, and what a kernel's row says that it can. They are compared before
// anything is launched, so that what no row lists is refused, not ignored.
#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "cpu_ref/schedule/tile_program.hpp"

namespace tilescope {

/// One thing that a kernel has or lacks. A new one is lacked by every kernel until its row lists it.
enum class Feature : std::uint8_t {
  fp32,
  fp16,
  bf16,
  fp8e4m3,
  fp8e5m2,
  causal,         // mask: aligned bottom-right
  window,         // mask: a limit on either side of the diagonal
  grouped_heads,  // fewer key/value heads than query heads
  dropout,
  signed_scale,  // a softmax scale of 0 or below
  key_padding,   // mask: keys of a batch entry that are padding
  bnhd_rows,     // tensors laid out (batch, rows, heads, head_dim)
  descales,      // of fp8: numbers that q, k and v are multiplied by, one a head or a tile
  split_keys,    // option: several CTAs share the keys of a q tile
  packed_heads,  // option: a q tile's rows are those of a whole group of heads
  query_splits,  // option: several CTAs share the queries of a kv tile
  mask_rules,    // mask: those of MaskKind
  value_dim,     // values with other columns than queries and keys
  paged_keys,    // keys and values in pages
  fp8_keys,      // keys and values stored in fp8e4m3 beside wider queries
  shared_kv,     // values that are columns of the keys
  softcap,       // score modifiers from here on, in the order of score_mod_rows()
  alibi,
  learned_sink,
  log_bias,
};
inline constexpr int kNumFeatures = static_cast<int>(Feature::log_bias) + 1;
std::string_view to_string(Feature feature);
Feature feature_of(ElementType type);

class FeatureSet {
 public:
  constexpr FeatureSet() = default;
  constexpr FeatureSet(std::initializer_list<Feature> features) {
    for (Feature feature : features) bits_ |= bit(feature);
  }
  constexpr bool has(Feature feature) const { return (bits_ & bit(feature)) != 0; }
  constexpr bool empty() const { return bits_ == 0; }
  constexpr FeatureSet operator|(FeatureSet other) const { return FeatureSet(bits_ | other.bits_); }
  constexpr FeatureSet without(FeatureSet other) const { return FeatureSet(bits_ & ~other.bits_); }
  constexpr bool operator==(const FeatureSet&) const = default;

 private:
  constexpr explicit FeatureSet(std::uint32_t bits) : bits_(bits) {}
  static constexpr std::uint32_t bit(Feature feature) { return 1u << static_cast<int>(feature); }

  std::uint32_t bits_ = 0;
};

/// What a kernel can, by direction; no features at all: it has no such pass.
struct Capabilities {
  FeatureSet forward, backward;
  std::span<const int> head_dims =
      {};                      // that it is compiled for; others up to the last run padded. None: all
  int row_bytes_multiple = 1;  // a row of q, k and v has a multiple of so many bytes

  /// What every head_dim that it takes is a multiple of.
  int head_dim_multiple(ElementType type) const {
    return std::max(1, row_bytes_multiple / static_cast<int>(element_bytes(type)));
  }

  const FeatureSet& of(Direction direction) const {
    return direction == Direction::forward ? forward : backward;
  }
};

/// Every score modifier.
FeatureSet score_mod_features();

/// What a problem asks for. Lengths and counts ask for nothing: every kernel takes all.
FeatureSet required_features(const AttentionProblem& problem);
/// What its options ask for in a direction beside it: those that are told by features.
FeatureSet required_features(const ProgramOptions& options, Direction direction);
/// Why a kernel that has `has` lacks one that is needed, as half a sentence, or nothing if it lacks none.
std::optional<std::string> missing_feature(const FeatureSet& has, const FeatureSet& needs);

/// Why a kernel that can `can` cannot run one direction of a problem, as half a sentence ("computes fp16 and
/// bf16, not fp32"), or nothing if it can.
std::optional<std::string> missing_feature(const Capabilities& can, const AttentionProblem& problem,
                                           Direction direction);

/// "fp32, fp16 and bf16": the element types of a set.
std::string element_types_of(const FeatureSet& features, std::string_view separator = ", ",
                             std::string_view last_separator = " and ");

}  // namespace tilescope
