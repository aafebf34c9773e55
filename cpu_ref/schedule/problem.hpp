// SPDX-License-Identifier: Apache-2.0
// What is computed, and nothing about how: shapes, element type, mask, scale, dropout.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/errors.hpp"
#include "cpu_ref/schedule/descales.hpp"
#include "cpu_ref/schedule/mask.hpp"
#include "cpu_ref/schedule/masks/mask_rule.hpp"
#include "cpu_ref/schedule/score_mods.hpp"
#include "cpu_ref/schedule/tile_schedule.hpp"

namespace tilescope {

enum class ElementType : std::uint8_t { fp32, fp16, bf16, fp8e4m3, fp8e5m2 };

inline constexpr ElementType kElementTypes[] = {ElementType::fp32, ElementType::fp16, ElementType::bf16,
                                                ElementType::fp8e4m3, ElementType::fp8e5m2};

/// Size of one element. [bytes]
constexpr int element_bytes(ElementType type) {
  return type == ElementType::fp32 ? 4 : type == ElementType::fp16 || type == ElementType::bf16 ? 2 : 1;
}
constexpr bool is_fp8(ElementType type) { return element_bytes(type) == 1; }

std::string_view to_string(ElementType type);

/// @throws BadInput if `text` is not one of the names that to_string gives.
ElementType parse_element_type(std::string_view text);

enum class Direction : std::uint8_t { forward, backward };
std::string_view to_string(Direction direction);
/// Those of "fwd", "bwd" or "fwd+bwd". @throws BadInput for the field
std::vector<Direction> parse_directions(const std::string& field, const std::string& text);

/// Matrix products over entries of the score matrix, by the dimension of their rows: head_dim of S, dQ and
/// dK, that of values of O, dP and dV.
struct Products {
  int qk = 0, v = 0;

  int count() const { return qk + v; }
  bool operator==(const Products&) const = default;
};
/// Those that a direction needs: S and O; backward S again, dV, dP, dQ and dK.
constexpr Products products_of(Direction direction) {
  return direction == Direction::forward ? Products{1, 1} : Products{3, 2};
}

/// Multi-head attention O = dropout(softmax(mask(f(scale * Q K^T)))) V, one (B, H, N, D) tensor each, where f
/// are the score modifiers; V and O may have columns of their own number, head_dim_v. With `shared_kv` V is
/// no tensor of its own: its columns are the first of K's.
///
/// With off = seqlen_k - seqlen_q, query i sees key j when j <= i + off (causal) and
/// i + off - window_left <= j <= i + off + window_right: masks are aligned bottom-right.
/// What `mask` changes of that stands at MaskKind.
/// Keys from key_lengths[batch] on are padding: no query of that batch entry sees them, and what their rows
/// of K and V hold is never read. The diagonal stays where it is without them. A row with no visible key
/// gives O = 0, LSE = -inf (with a learned sink, the sink) and zero gradients. Query head h reads key/value
/// head h / (heads / heads_kv).
/// Q, K and V are the stored tensors times their descales. K and V may be stored in fp8 beside wider queries
/// (kv_dtype), as caches of keys and values are; what they are multiplied with and O stay of `dtype`.
struct AttentionProblem {
  std::int64_t batch = 1;
  std::int64_t heads = 1;
  std::int64_t heads_kv = 1;
  std::int64_t seqlen_q = 1;
  std::int64_t seqlen_k = 1;
  std::int64_t head_dim = 64;
  ElementType dtype = ElementType::fp32;
  bool causal = false;
  std::int64_t window_left = -1;                       // keys left of the diagonal, -1 = no limit
  std::int64_t window_right = -1;                      // keys right of the diagonal, -1 = no limit
  std::optional<double> softmax_scale = std::nullopt;  // default 1 / sqrt(head_dim); any finite value
  double dropout = 0.0;                                // probability that an entry of P is zeroed, in [0, 1)
  std::uint64_t seed = 0;                              // of the dropout mask and of random inputs
  std::vector<std::int64_t> key_lengths = {};          // one a batch entry, or none: no key is padding
  Descales descales = {};                              // other than 1 of what is stored in fp8 alone
  MaskRule mask = {};                                  // what else is hidden or seen, see MaskKind
  ScoreMods score_mods = {};
  std::int64_t head_dim_v = 0;  // columns of V and O; 0: head_dim
  std::int64_t page_size = 0;   // keys of a page of K and V, see KvPageTable; 0: they lie one after the other
  std::optional<ElementType> kv_dtype = std::nullopt;  // that K and V are stored in: fp8e4m3; none: dtype
  /// A row of K is a row of V, and what follows it: multi-head latent attention with the projections of keys
  /// and values absorbed into queries and outputs (DeepSeek-V2, arXiv:2405.04434, section 2.1).
  bool shared_kv = false;

  double scale() const;
  std::int64_t value_dim() const { return head_dim_v == 0 ? head_dim : head_dim_v; }
  ElementType kv_type() const { return kv_dtype.value_or(dtype); }
  /// Multiply-adds of such products for each entry.
  std::int64_t depth_of(Products products) const { return products.qk * head_dim + products.v * value_dim(); }
  VisibleBand band() const;                    // precondition, as of all below: validate() passed
  VisibleBand band(std::int64_t batch) const;  // of one batch entry, without its padding
  /// What the queries of a batch entry see of its keys.
  Mask mask_of(std::int64_t batch) const;
  /// Of any: each query sees each key, padding too.
  Mask no_mask() const;
  /// Keys of a batch entry that are no padding.
  std::int64_t keys_of(std::int64_t batch) const {
    return key_lengths.empty() ? seqlen_k : key_lengths[static_cast<std::size_t>(batch)];
  }
  std::int64_t group_size() const { return heads / heads_kv; }
  /// Whether a query meets keys of several blocks of descales.
  bool descaled_by_key_blocks() const { return descales.by_block() && seqlen_k > descales.block.block_n; }
  bool windowed() const { return window_left >= 0 || window_right >= 0; }
  bool masked() const { return causal || windowed() || !key_lengths.empty() || mask.any(); }
  /// Calls visit(entries, entry) once for each length that keys_of() gives: how many batch entries have it,
  /// and one of them.
  template <typename Visit>
  void for_each_length(Visit&& visit) const {
    if (key_lengths.empty()) return visit(batch, std::int64_t{0});
    std::map<std::int64_t, std::int64_t> first;  // of each length
    for (std::int64_t entry = 0; entry < batch; ++entry) first.try_emplace(keys_of(entry), entry);
    for (const auto& [length, entry] : first) {
      visit(std::int64_t{std::count(key_lengths.begin(), key_lengths.end(), length)}, entry);
    }
  }
  /// Number of (query, key) pairs that the mask leaves visible, over all batches and query heads.
  std::int64_t visible_pairs() const;

  bool operator==(const AttentionProblem&) const = default;
};

inline constexpr std::int64_t kMaxHeadDim = 576;  // of a latent key: 512 columns and 64 of its position
inline constexpr std::int64_t kMaxSeqlen = std::int64_t{1} << 28;
inline constexpr std::int64_t kLeastPageSize = 8, kMaxPageSize = 4096;

/// The one place where bad shapes are named and refused.
/// @throws BadInput naming the first bad field, its value and what is allowed.
void validate(const AttentionProblem& problem);

/// One line: "B2 H16/4 Nq1024 Nk2048 D64 fp16 causal window(128,0) dropout 0.1 seed 7".
std::string describe(const AttentionProblem& problem);

/// A problem with a name, for --preset.
struct Preset {
  std::string_view name;
  std::string_view summary;
  AttentionProblem problem;
};
std::span<const Preset> presets();
/// By its name, or a part of it that no other name has: "llama".
/// @throws UnknownName naming those that have the part, else the nearest
const Preset& find_preset(const std::string& name);

}  // namespace tilescope
