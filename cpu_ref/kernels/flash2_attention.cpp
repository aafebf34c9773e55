// SPDX-License-Identifier: Apache-2.0
// The forward pass: one CTA keeps a tile of Q and its output on chip and streams K and V past it, or one
// split of them, and a second pass combines the splits.
#include "cpu_ref/kernels/cpu_kernels.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <vector>

#include "cpu_ref/launch/run_pass.hpp"
#include "cpu_ref/numeric/numeric.hpp"
#include "cpu_ref/primitives/kernel_scale.hpp"
#include "cpu_ref/primitives/score_tile.hpp"
#include "cpu_ref/primitives/tile_score_mods.hpp"

namespace tilescope {
namespace {

/// Algorithm 1. Scores are kept as S^T (keys, queries): Q^T is packed once, K and V are used as they lie, and
/// the row maxima and sums run along vectors.
class Flash2Forward {
 public:
  explicit Flash2Forward(const TileProgram& program)
      : head_dim_(static_cast<int>(program.problem.head_dim)),
        value_dim_(static_cast<int>(program.problem.value_dim())),
        probs_type_(probs_type(program.problem)),
        shared_kv_(program.problem.shared_kv),
        sums_(program,
              program.problem.kv_type() == ElementType::bf16 && !shared_kv_ && multiplies_bf16_pairs()),
        two_level_(program.fp8_sums == Fp8Sums::two_level),
        by_block_(program.problem.descaled_by_key_blocks()),
        scale_(program.problem),
        score_mods_(program),
        row_states_(program),
        dropout_(program.problem.seed, program.problem.dropout),
        q_(program.tile.block_m, head_dim_),
        q_transposed_(head_dim_, program.tile.block_m),
        k_(program.tile.block_n, head_dim_),
        v_(program.tile.block_n, value_dim_),
        probs_(program.tile.block_n, program.tile.block_m),
        q_pairs_(sums_.of_pairs ? words_of(head_dim_) : 0, program.tile.block_m),
        prob_pairs_(sums_.of_pairs ? words_of(program.tile.block_n) : 0, program.tile.block_m),
        factors_(dropout_.active() ? program.tile.block_n : 0, program.tile.block_m),
        out_(program.tile.block_m, value_dim_),
        part_(two_level_ ? program.tile.block_m : 0, value_dim_),
        row_max_(1, program.tile.block_m),
        row_sum_(1, program.tile.block_m),
        rescale_(1, program.tile.block_m) {
    if (sums_.of_pairs && multiplies_by_amx()) sums_.amx = &amx_.emplace();
  }

  void operator()(Cta& cta) {
    const int block = cta.first_block();
    const TileCoord owned = cta.coord(cta.first_head(), block);
    descale_ = cta.descale(TensorName::q, owned);
    if (!by_block_) descale_ *= cta.descale(TensorName::k, owned);
    v_unit_ = by_block_ ? 1.0f : cta.descale(TensorName::v, owned);
    unit_ = static_cast<double>(scale_.magnitude) * static_cast<double>(descale_);
    out_.zero();
    row_states_.begin(cta, owned, unit_, scale_.probs_factor, row_max_.data(), row_sum_.data());
    if (!cta.inner_tiles(block).empty()) {
      const TileView q = cta.load(TensorName::q, owned, q_);
      transpose_tile(q, cta.queries(owned), head_dim_, scale_.sign, q_transposed_);
      if (sums_.of_pairs) pair_float_rows(q_transposed_, head_dim_, cta.queries(owned), q_pairs_);
      score_mods_.load(cta, owned);
    }
    cta.for_each_inner_tile(cta.first_head(), block,
                            [&](const TileCoord& at, bool full) { step(cta, at, full); });
    finish(cta, owned);
  }

 private:
  void step(Cta& cta, const TileCoord& at, bool full) {
    const ScoreTile place(cta, at);
    const bool pairs = sums_.of_pairs;
    const TileView k = pairs ? cta.load_column_pairs(TensorName::k, at, k_) : cta.load(TensorName::k, at, k_);
    const TileView v = shared_kv_ ? k : pairs ? cta.load_row_pairs(at, v_) : cta.load(TensorName::v, at, v_);
    TileState* state = cta.observe(at);
    const TileParts parts = cta.parts(at);

    multiply_scores(parts, k, (pairs ? q_pairs_ : q_transposed_).view(), probs_, head_dim_, sums_);
    if (state) state->scores = visible_sum(place, probs_);
    if (by_block_) scale_values(probs_.data(), cta.descale(TensorName::k, at), place.keys * probs_.stride());
    score_mods_.apply(place, unit_, probs_);
    if (!full) apply_mask(place, probs_);
    const Tile& probs = make_probs(place, state != nullptr);
    const TileParts products = pairs ? cta.parts(at, sums_.amx ? kAmxDepth : 2) : parts;
    const float unit_ratio = by_block_ ? take_unit(cta.descale(TensorName::v, at)) : 1.0f;
    for (int i = 0; i < place.queries; ++i) {
      const float alpha = rescale_.data()[i] * unit_ratio;
      if (alpha != 1.0f) scale_values(out_.row(i), alpha, value_dim_);
    }
    if (two_level_) {
      part_.zero();
      add_to_owned(parts, probs_, v, part_, value_dim_, sums_);
      for (int i = 0; i < place.queries; ++i) add_values(out_.row(i), part_.row(i), value_dim_);
    } else {
      add_to_owned(products, probs, v, out_, value_dim_, sums_);
    }

    if (state) {
      for (int i = 0; i < place.queries; ++i) {
        if (row_max_.data()[i] == kMinusInfinity) continue;
        state->row_max += static_cast<double>(row_max_.data()[i]);
        state->row_sum += static_cast<double>(row_sum_.data()[i]);
      }
      state->probs = visible_sum(place, probs_);
      state->accum = tile_sum(out_.view(), place.queries, value_dim_);
    }
  }

  /// P of the scores, as its product takes it: rounded, and of bf16 in pairs of keys.
  const Tile& make_probs(const ScoreTile& place, bool observed) {
    SoftmaxScale softmax = scale_.softmax;
    softmax.log2 = std::max(softmax.log2 * descale_, std::numeric_limits<float>::min());  // as KernelScale
    const bool pairs = sums_.of_pairs;
    if (pairs && !observed && !dropout_.active()) {
      online_softmax_in_pairs(probs_.data(), probs_.stride(), place.keys, place.queries, softmax,
                              row_max_.data(), row_sum_.data(), rescale_.data(), prob_pairs_.data(),
                              prob_pairs_.stride());
      return prob_pairs_;
    }
    online_softmax(probs_.data(), probs_.stride(), place.keys, place.queries, softmax, row_max_.data(),
                   row_sum_.data(), rescale_.data());
    if (dropout_.active()) {
      dropout_factors(place, dropout_, factors_);
      multiply_values(probs_.data(), factors_.data(), place.keys * probs_.stride());
    }
    round_to(probs_type_, probs_.data(), place.keys * probs_.stride());
    if (!pairs) return probs_;
    pair_float_rows(probs_, place.keys, place.queries, prob_pairs_);
    return prob_pairs_;
  }

  /// Where V's tiles have descales of their own, O is kept in units of the newest tile's.
  float take_unit(float descale) {
    const float unit = std::max(descale, kLeastValueUnit), ratio = v_unit_ / unit;
    v_unit_ = unit;
    return ratio;
  }

  /// Lines 12 and 13: the output is normalised once.
  void finish(Cta& cta, const TileCoord& owned) {
    for (int i = 0; i < cta.queries(owned); ++i) {
      const float row_sum = row_sum_.data()[i];
      const bool empty = row_sum == 0.0f;
      scale_values(out_.row(i), empty ? 0.0f : v_unit_ / row_sum, value_dim_);
      row_max_.data()[i] =
          log_sum_exp(row_max_.data()[i], scale_.magnitude * descale_, row_sum / scale_.probs_factor);
    }
    const bool partial = cta.program().stores_partials();
    const TileCoord to = partial ? cta.coord(owned.head, owned.m_block, cta.split()) : owned;
    cta.store(partial ? TensorName::out_partial : TensorName::out, to, out_.view());
    cta.store_stats(partial ? TensorName::lse_partial : TensorName::lse, to, row_max_.data());
  }

  int head_dim_, value_dim_;
  ElementType probs_type_;
  bool shared_kv_;  // V's tile is the first columns of K's
  std::optional<AmxMatmul> amx_;
  ProductSums sums_;
  bool two_level_, by_block_;
  float descale_ = 1.0f;  // of Q's tile, times that of its keys where all have one
  float v_unit_ = 1.0f;   // that O is to be multiplied by
  double unit_ = 1;       // of the scores: a scaled score is unit_ * score
  KernelScale scale_;
  TileScoreMods score_mods_;
  RowStates row_states_;
  DropoutMask dropout_;
  Tile q_, q_transposed_, k_, v_, probs_, q_pairs_, prob_pairs_, factors_, out_, part_, row_max_, row_sum_,
      rescale_;
};

/// Pass combine: the results of the splits of the keys, each weighted by exp(LSE), as they come. A split in
/// which a row sees no key, LSE = -inf, changes no bit of it. A learned sink enters here, once.
class Combine {
 public:
  explicit Combine(const TileProgram& program)
      : value_dim_(static_cast<int>(program.problem.value_dim())),
        part_(program.tile.block_m, value_dim_),
        out_(program.tile.block_m, value_dim_),
        row_states_(program),
        part_lse_(static_cast<std::size_t>(padded(program.tile.block_m))),
        max_(part_lse_.size()),
        sum_(part_lse_.size()) {}

  void operator()(Cta& cta) {
    const int block = cta.first_block();
    const TileCoord owned = cta.coord(cta.first_head(), block);
    const int rows = cta.queries(owned);
    out_.zero();
    row_states_.begin(cta, owned, 1.0, 1.0f, max_.data(), sum_.data());
    cta.for_each_inner_tile(owned.head, block, [&](const TileCoord& at, bool) {
      const TileView part = cta.load(TensorName::out_partial, at, part_);
      cta.load_stats(TensorName::lse_partial, at, part_lse_.data());
      for (int row = 0; row < rows; ++row) add(part.row(row), row);
    });
    for (int row = 0; row < rows; ++row) {
      const auto r = static_cast<std::size_t>(row);
      if (sum_[r] == 0.0f) continue;
      scale_values(out_.row(row), 1.0f / sum_[r], value_dim_);
      max_[r] += std::log(sum_[r]);
    }
    cta.store(TensorName::out, owned, out_.view());
    cta.store_stats(TensorName::lse, owned, max_.data());
  }

 private:
  void add(const float* part, int row) {
    const auto r = static_cast<std::size_t>(row);
    const float lse = part_lse_[r];
    float* const out = out_.row(row);
    if (lse == kMinusInfinity) return;
    if (max_[r] == kMinusInfinity) {  // the first: its bits as they are
      std::copy_n(part, value_dim_, out);
      max_[r] = lse;
      sum_[r] = 1.0f;
      return;
    }
    const float max = std::max(max_[r], lse), before = std::exp(max_[r] - max), here = std::exp(lse - max);
    for (int i = 0; i < value_dim_; ++i) out[i] = out[i] * before + part[i] * here;
    sum_[r] = sum_[r] * before + here;
    max_[r] = max;
  }

  int value_dim_;
  Tile part_, out_;
  RowStates row_states_;
  std::vector<float> part_lse_, max_, sum_;
};

/// Packed rows lie one head after the other.
void require_packed(const TensorSet& tensors) {
  for (const TensorName name : {TensorName::q, TensorName::out, TensorName::lse}) {
    const Tensor& tensor = tensors[name];
    if (tensor.shape().heads == 1) continue;
    if (tensor.row_index(0, 1, 0) == tensor.row_index(0, 0, tensor.shape().rows)) continue;
    throw BadInput("pack-gqa", "on",
                   "must be off where the heads of " + std::string(to_string(name)) + " lie apart");
  }
}

}  // namespace

void flash2_forward(const ProgramOptions& asked, TensorSet& tensors, TileObserver* observer) {
  ProgramOptions options = asked;
  options.interleaves_heads = false;  // each of its packed rows follows the one before in memory
  const auto programs = build_programs(Algorithm::flash2, Direction::forward, tensors.problem(), options);
  tensors.allocate(TensorName::out);
  tensors.allocate(TensorName::lse);
  if (options.pack_gqa) require_packed(tensors);
  const bool combined = programs[0].stores_partials();
  if (combined) {
    for (const TensorName name : {TensorName::out_partial, TensorName::lse_partial}) {
      tensors.allocate(name, programs[0].splits.count);
    }
  }
  run_pass<Flash2Forward>(programs[0], tensors, observer);
  if (combined) run_pass<Combine>(programs[1], tensors, observer);
}

}  // namespace tilescope
