// SPDX-License-Identifier: Apache-2.0
#include "cpu_ref/schedule/problem.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <sstream>

#include "common/nearest_names.hpp"
#include "cpu_ref/schedule/masks/mask_models.hpp"

namespace tilescope {
namespace {

constexpr std::string_view kElementTypeNames[] = {"fp32", "fp16", "bf16", "fp8e4m3", "fp8e5m2"};

void require(bool ok, const char* field, std::int64_t value, const std::string& allowed) {
  if (!ok) throw BadInput(field, std::to_string(value), allowed);
}

std::string number(double value) {
  std::ostringstream text;
  text << value;
  return text.str();
}

/// Kernels have scores in units of 1 / scale, in which what a modifier adds must be finite.
constexpr double kLeastModifiedScale = 1e-20;

int window_side(std::int64_t side) {
  return side < 0 ? kUnbounded : static_cast<int>(std::min<std::int64_t>(side, kUnbounded));
}

}  // namespace

std::string_view to_string(ElementType type) { return kElementTypeNames[static_cast<std::size_t>(type)]; }

ElementType parse_element_type(std::string_view text) {
  return value_named<ElementType>("dtype", text, kElementTypeNames);
}

std::string_view to_string(Direction direction) {
  return direction == Direction::forward ? "forward" : "backward";
}

std::vector<Direction> parse_directions(const std::string& field, const std::string& text) {
  if (text == "fwd") return {Direction::forward};
  if (text == "bwd") return {Direction::backward};
  if (text == "fwd+bwd") return {Direction::forward, Direction::backward};
  throw BadInput(field, "'" + text + "'", "must be fwd, bwd or fwd+bwd");
}

double AttentionProblem::scale() const {
  return softmax_scale.value_or(1.0 / std::sqrt(static_cast<double>(head_dim)));
}

VisibleBand AttentionProblem::band() const {
  VisibleBand band{static_cast<int>(seqlen_q), static_cast<int>(seqlen_k), window_side(window_left),
                   window_side(window_right)};
  if (causal) band.right = 0;
  return band;
}

VisibleBand AttentionProblem::band(std::int64_t batch) const {
  return key_lengths.empty() ? band() : band().with_keys(static_cast<int>(keys_of(batch)));
}

Mask AttentionProblem::mask_of(std::int64_t batch) const {
  const VisibleBand visible = band(batch);
  return mask.any() ? Mask(visible, mask_model(mask.kind).regions(*this, visible)) : Mask(visible);
}

Mask AttentionProblem::no_mask() const {
  return Mask(VisibleBand{static_cast<int>(seqlen_q), static_cast<int>(seqlen_k)});
}

std::int64_t AttentionProblem::visible_pairs() const {
  std::int64_t pairs = 0;
  for_each_length(
      [&](std::int64_t entries, std::int64_t entry) { pairs += entries * mask_of(entry).visible_pairs(); });
  return pairs * heads;
}

namespace {

/// @throws BadInput unless keys and values are of the queries' type, or narrower
void validate_kv_dtype(const AttentionProblem& p) {
  if (!p.kv_dtype) return;
  const std::string type(to_string(*p.kv_dtype));
  if (*p.kv_dtype != ElementType::fp8e4m3) {
    throw BadInput("kv_dtype", type, "must be fp8e4m3, or left out: keys and values are then of dtype");
  }
  if (is_fp8(p.dtype)) {
    throw BadInput("kv_dtype", type,
                   "must be left out: queries are of " + std::string(to_string(p.dtype)) + " themselves");
  }
}

/// @throws BadInput unless V's columns are among K's, and its numbers K's
void validate_shared_kv(const AttentionProblem& p) {
  if (!p.shared_kv) return;
  require(p.value_dim() <= p.head_dim, "head_dim_v", p.value_dim(),
          "must not exceed head_dim = " + std::to_string(p.head_dim) + " with shared_kv");
  for (const auto& [field, descale] :
       {std::pair{"descale_k", p.descales.k}, std::pair{"descale_v", p.descales.v}}) {
    if (descale != Descale{}) throw BadInput(field, to_string(descale), "must be left out with shared_kv");
  }
}

/// @throws BadInput naming the first descale that cannot be
void validate_descales(const AttentionProblem& p) {
  for (const auto& [field, descale, type] : {std::tuple{"descale_q", p.descales.q, p.dtype},
                                             {"descale_k", p.descales.k, p.kv_type()},
                                             {"descale_v", p.descales.v, p.kv_type()}}) {
    if (descale == Descale{}) continue;
    parse_descale(field, to_string(descale));
    if (!is_fp8(type)) {
      throw BadInput(field, to_string(descale),
                     "must be left out: descales are of fp8, not of " + std::string(to_string(type)));
    }
  }
  if (!p.descales.by_block()) return;
  const TileShape block = p.descales.block;
  const std::string sides = std::to_string(block.block_m) + "x" + std::to_string(block.block_n);
  if (!is_fp8(p.dtype)) {
    throw BadInput("descale_block", sides,
                   "must be left out: descales are of fp8, not of " + std::string(to_string(p.dtype)));
  }
  if (block.block_m < 1 || block.block_n < 1) throw BadInput("descale_block", sides, "must be at least 1x1");
}

}  // namespace

void validate(const AttentionProblem& p) {
  require(p.batch >= 1, "batch", p.batch, "must be at least 1");
  require(p.heads >= 1, "heads", p.heads, "must be at least 1");
  require(p.heads_kv >= 1, "heads_kv", p.heads_kv, "must be at least 1");
  require(p.heads % p.heads_kv == 0, "heads_kv", p.heads_kv,
          "must divide heads = " + std::to_string(p.heads));
  const std::string lengths = "must lie in 1 ... " + std::to_string(kMaxSeqlen);
  require(p.seqlen_q >= 1 && p.seqlen_q <= kMaxSeqlen, "seqlen_q", p.seqlen_q, lengths);
  require(p.seqlen_k >= 1 && p.seqlen_k <= kMaxSeqlen, "seqlen_k", p.seqlen_k, lengths);
  require(p.head_dim >= 1 && p.head_dim <= kMaxHeadDim, "head_dim", p.head_dim,
          "must lie in 1 ... " + std::to_string(kMaxHeadDim));
  require(p.head_dim_v >= 0 && p.head_dim_v <= kMaxHeadDim, "head_dim_v", p.head_dim_v,
          "must lie in 1 ... " + std::to_string(kMaxHeadDim));
  require(p.window_left >= -1, "window", p.window_left,
          "the left side must be at least 0, or -1 for no limit");
  require(p.window_right >= -1, "window", p.window_right,
          "the right side must be at least 0, or -1 for no limit");
  if (p.softmax_scale && !std::isfinite(*p.softmax_scale)) {
    throw BadInput("scale", number(*p.softmax_scale), "must be finite");
  }
  validate(p.score_mods);
  if (p.score_mods.any() && std::abs(p.scale()) < kLeastModifiedScale) {
    throw BadInput("scale", number(p.scale()),
                   "must not lie within 1e-20 of 0 with" + describe(p.score_mods));
  }
  if (!(p.dropout >= 0.0 && p.dropout < 1.0)) {
    throw BadInput("dropout", number(p.dropout), "must lie in [0, 1)");
  }
  if (!p.key_lengths.empty() && static_cast<std::int64_t>(p.key_lengths.size()) != p.batch) {
    throw BadInput("key_lengths", std::to_string(p.key_lengths.size()) + " lengths",
                   "must be one a batch entry, batch = " + std::to_string(p.batch));
  }
  for (const std::int64_t length : p.key_lengths) {
    require(length >= 0 && length <= p.seqlen_k, "key_lengths", length,
            "must lie in 0 ... seqlen_k = " + std::to_string(p.seqlen_k));
  }
  require(
      p.page_size == 0 || (p.page_size >= kLeastPageSize && p.page_size <= kMaxPageSize &&
                           std::has_single_bit(static_cast<std::uint64_t>(p.page_size))),
      "page_size", p.page_size,
      "must be a power of 2 in " + std::to_string(kLeastPageSize) + " ... " + std::to_string(kMaxPageSize));
  if (p.mask.any()) mask_model(p.mask.kind).validate(p);
  validate_kv_dtype(p);
  validate_descales(p);
  validate_shared_kv(p);
  // batch * heads must fit a grid, and the largest tensor, fp32 of (B, H, Nq, Nk), the byte counters.
  std::int64_t batch_heads, bytes;
  if (__builtin_mul_overflow(p.batch, p.heads, &batch_heads) ||
      batch_heads > std::numeric_limits<int>::max()) {
    throw BadInput("batch * heads", std::to_string(p.batch) + " * " + std::to_string(p.heads),
                   "the product must not exceed " + std::to_string(std::numeric_limits<int>::max()));
  }
  const std::int64_t longest = std::max(p.seqlen_q, p.seqlen_k);
  constexpr std::int64_t kWorkingFactor = 64;  // fp32, times the passes and tensors that are summed
  if (__builtin_mul_overflow(batch_heads, longest * std::max({longest, p.head_dim, p.head_dim_v}), &bytes) ||
      __builtin_mul_overflow(bytes, kWorkingFactor, &bytes)) {
    throw BadInput("batch * heads * seqlen_q * seqlen_k",
                   std::to_string(p.batch) + " * " + std::to_string(p.heads) + " * " +
                       std::to_string(p.seqlen_q) + " * " + std::to_string(p.seqlen_k),
                   "makes the problem too large: its bytes are 2^63 or more");
  }
}

std::string describe(const AttentionProblem& p) {
  std::ostringstream text;
  text << "B" << p.batch << " H" << p.heads;
  if (p.heads_kv != p.heads) text << "/" << p.heads_kv;
  if (p.seqlen_q == p.seqlen_k) {
    text << " N" << p.seqlen_q;
  } else {
    text << " Nq" << p.seqlen_q << " Nk" << p.seqlen_k;
  }
  text << " D" << p.head_dim;
  if (p.value_dim() != p.head_dim) text << "/" << p.value_dim();
  text << " " << to_string(p.dtype);
  if (p.kv_dtype) text << " kv " << to_string(*p.kv_dtype);
  if (p.shared_kv) text << " kv shared";
  if (p.causal) text << " causal";
  if (p.windowed()) text << " window(" << p.window_left << "," << p.window_right << ")";
  if (p.mask.any()) text << " mask " << describe(p.mask);
  constexpr std::size_t kMostLengths = 8;
  for (std::size_t i = 0; i < std::min(p.key_lengths.size(), kMostLengths); ++i) {
    text << (i == 0 ? " keys " : ",") << p.key_lengths[i];
  }
  if (p.key_lengths.size() > kMostLengths) text << ",...";
  if (p.page_size > 0) text << " pages of " << p.page_size;
  if (p.softmax_scale) text << " scale " << *p.softmax_scale;
  text << describe(p.score_mods);
  if (p.dropout > 0) text << " dropout " << p.dropout;
  if (p.descales.any()) text << " " << describe(p.descales);
  if (p.seed != 0) text << " seed " << p.seed;
  return text.str();
}

namespace {

struct Heads {
  std::int64_t q, kv;
};

/// A layer whose queries are as many as its keys, of one sequence.
AttentionProblem layer(Heads heads, std::int64_t seqlen, std::int64_t head_dim, bool causal,
                       ElementType dtype = ElementType::bf16) {
  return {.heads = heads.q,
          .heads_kv = heads.kv,
          .seqlen_q = seqlen,
          .seqlen_k = seqlen,
          .head_dim = head_dim,
          .dtype = dtype,
          .causal = causal};
}

/// The problem with what `change` gives it.
template <typename Change>
AttentionProblem with(AttentionProblem problem, const Change& change) {
  change(problem);
  return problem;
}

}  // namespace

std::span<const Preset> presets() {
  using P = AttentionProblem;
  constexpr ElementType fp16 = ElementType::fp16;
  static const Preset all[] = {
      {"small", "quick look: every feature that costs nothing",
       with(layer({4, 2}, 384, 64, true, fp16), [](P& p) { p.seqlen_q = 320; })},
      {"gpt2-medium", "FlashAttention Figure 2: GPT-2 medium, batch 64",
       with(layer({16, 16}, 1024, 64, false, fp16), [](P& p) { p.batch = 64; })},
      {"fa2-16k", "FlashAttention-2 benchmark: 16k tokens, hidden size 2048, N = 4096",
       with(layer({16, 16}, 4096, 128, false, fp16), [](P& p) { p.batch = 4; })},
      {"llama3-8b", "grouped heads 32:8, causal, 8k context", layer({32, 8}, 8192, 128, true)},
      {"streaming-llm", "StreamingLLM on Llama-2 7B: 4 sink tokens and the last 2044",
       with(layer({32, 32}, 8192, 128, true),
            [](P& p) {
              p.window_left = 2043;
              p.mask = {MaskKind::sink, {4}};
            })},
      {"packed-sft", "fine-tuning of Llama-3 8B: conversations packed into 8k tokens",
       with(layer({32, 8}, 8192, 128, true),
            [](P& p) {
              p.mask = {MaskKind::documents, {1530, 412, 2688, 97, 845, 1210, 66, 1344}};
            })},
      {"paligemma-896", "PaliGemma at 896 pixels: 4096 image tokens that all see, text behind them",
       with(layer({8, 1}, 4608, 256, true),
            [](P& p) {
              p.mask = {MaskKind::prefix, {4096}};
            })},
      {"gemma2-9b", "soft cap 50 on scores, window of 4096: a local layer of Gemma 2 9B at 8k",
       with(layer({16, 8}, 8192, 256, true),
            [](P& p) {
              p.window_left = 4095;
              p.score_mods.softcap = 50;
            })},
      {"gpt-oss-20b", "learned sinks, window of 128: a local layer of gpt-oss 20B at 8k",
       with(layer({64, 8}, 8192, 64, true),
            [](P& p) {
              p.window_left = 127;
              p.score_mods.learned_sink = true;
            })},
      {"mpt-7b", "ALiBi: a layer of MPT 7B at its 2k context",
       with(layer({32, 32}, 2048, 128, true), [](P& p) { p.score_mods.alibi = true; })},
      {"deepseek-v3", "queries and keys of 192, values of 128: a layer of DeepSeek V3 over a prompt of 4k",
       with(layer({128, 128}, 4096, 192, true), [](P& p) { p.head_dim_v = 128; })},
      {"deepseek-mla",
       "32 sequences being decoded out of latent keys, in pages of 64: a layer of DeepSeek V3, absorbed",
       with(layer({128, 1}, 4096, 576, false),
            [](P& p) {
              p.batch = 32;
              p.seqlen_q = 1;
              p.head_dim_v = 512;
              p.shared_kv = true;
              p.page_size = 64;
              p.softmax_scale = 1 / std::sqrt(192.0);
            })},
      {"serving-8",
       "eight sequences being decoded, in pages of 16 keys, as vLLM has them: a layer of Llama 3 8B",
       with(layer({32, 8}, 8192, 128, false),
            [](P& p) {
              p.batch = 8;
              p.seqlen_q = 1;
              p.key_lengths = {8192, 6150, 4403, 2900, 1777, 1024, 300, 57};
              p.page_size = 16;
            })},
      {"serving-32-fp8",
       "32 sequences being decoded out of a cache in fp8 e4m3, in pages of 16 keys: a layer of Llama 3 8B",
       with(layer({32, 8}, 4096, 128, false),
            [](P& p) {
              p.batch = 32;
              p.seqlen_q = 1;
              p.page_size = 16;
              p.kv_dtype = ElementType::fp8e4m3;
            })},
      {"long-128k", "one long sequence: the K/V of a head exceed the L2",
       layer({16, 16}, 131072, 128, false, fp16)},
  };
  return all;
}

const Preset& find_preset(const std::string& name) {
  std::vector<std::string> names, matching;
  const Preset* match = nullptr;
  for (const Preset& preset : presets()) {
    if (preset.name == name) return preset;
    names.emplace_back(preset.name);
    if (name.empty() || preset.name.find(name) == std::string_view::npos) continue;
    matching.emplace_back(preset.name);
    match = &preset;
  }
  if (matching.size() == 1) return *match;
  throw unknown_name("preset", name, matching.empty() ? names : matching);
}

}  // namespace tilescope
