// SPDX-License-Identifier: Apache-2.0
#include "cpu_ref/kernels/cpu_kernels.hpp"

#include <cmath>

#include "cpu_ref/launch/run_pass.hpp"
#include "cpu_ref/numeric/numeric.hpp"
#include "cpu_ref/primitives/kernel_scale.hpp"
#include "cpu_ref/primitives/score_tile.hpp"
#include "cpu_ref/primitives/tile_score_mods.hpp"

namespace tilescope {
namespace {

/// Passes scores (S = Q K^T) and dprobs (dP = dO V^T).
class RowsTimesRows {
 public:
  explicit RowsTimesRows(const TileProgram& program)
      : depth_(static_cast<int>(program.extent(program.prologue[0].tensor).cols)),
        left_name_(program.prologue[0].tensor),
        right_name_(program.phases[0][0].tensor),
        product_name_(program.phases[0][1].tensor),
        factor_(program.name == PassName::scores ? StoredScoreScale(program.problem).factor : 1.0f),
        left_(program.tile.block_m, depth_),
        right_(program.tile.block_n, depth_),
        right_transposed_(depth_, program.tile.block_n),
        product_(program.tile.block_m, program.tile.block_n) {}

  void operator()(Cta& cta) {
    const TileView left = cta.load(left_name_, cta.coord(cta.first_head(), cta.first_block()), left_);
    cta.for_each_inner_tile(cta.first_head(), cta.first_block(), [&](const TileCoord& at, bool) {
      const ScoreTile place(cta, at, Queries::rows);
      const TileView right = cta.load(right_name_, at, right_);
      transpose_tile(right, place.keys, depth_, 1.0f, right_transposed_);
      tile_matmul(left.rows(), right_transposed_.view(), product_, place.queries, place.keys, depth_,
                  Accumulate::no);
      if (TileState* state = cta.observe(at)) {
        (product_name_ == TensorName::scores ? state->scores : state->dprobs) = visible_sum(place, product_);
      }
      // After the sums, which are exact in fp8 but for the last bits, in whatever order.
      if (product_name_ == TensorName::scores) cta.apply_score_descales(at, product_);
      if (factor_ != 1.0f) scale_values(product_.data(), factor_, place.queries * product_.stride());
      cta.store(product_name_, at, product_.view());
    });
  }

 private:
  int depth_;
  TensorName left_name_, right_name_, product_name_;
  float factor_;
  Tile left_, right_, right_transposed_, product_;
};

/// Pass softmax: a strip of whole rows stays on chip between its two phases.
class RowSoftmax {
 public:
  explicit RowSoftmax(const TileProgram& program)
      : scale_(program.problem),
        probs_factor_(KernelScale(program.problem).probs_factor),
        score_mods_(program),
        row_states_(program),
        strip_(program.tile.block_m, static_cast<int>(program.problem.seqlen_k)),
        tile_(program.tile.block_m, program.tile.block_n),
        row_max_(1, program.tile.block_m),
        row_sum_(1, program.tile.block_m),
        first_max_(1, program.tile.block_m) {}

  void operator()(Cta& cta) {
    const TileCoord owned = cta.coord(cta.first_head(), cta.first_block());
    const int queries = cta.queries(owned);
    const std::int64_t seqlen_k = cta.problem().seqlen_k;
    const double unit = static_cast<double>(scale_.rest);
    row_states_.begin(cta, owned, unit, 1.0f, row_max_.data(), row_sum_.data());
    std::copy_n(row_max_.data(), queries, first_max_.data());
    score_mods_.load(cta, owned);
    cta.for_each_inner_tile(cta.first_head(), cta.first_block(), [&](const TileCoord& at, bool) {
      const ScoreTile place(cta, at, Queries::rows);
      cta.load_into(TensorName::scores, at, tile_.data(), tile_.stride());
      score_mods_.apply(place, unit, tile_);
      apply_mask(place, tile_);
      TileState* state = cta.observe(at);
      for (int i = 0; i < queries; ++i) {
        std::copy_n(tile_.row(i), place.keys, strip_.row(i) + place.first_key);
        row_max_.data()[i] = row_maximum(tile_.row(i), place.keys, row_max_.data()[i]);
        if (state && row_max_.data()[i] != kMinusInfinity) {
          state->row_max += static_cast<double>(row_max_.data()[i]);
        }
      }
    });
    for (int i = 0; i < queries; ++i) {
      float& row_sum = row_sum_.data()[i];
      if (row_sum != 0.0f) {
        row_sum *= rescale_factor(first_max_.data()[i], row_max_.data()[i], {scale_.log2, 0.0f});
      }
      row_sum += exp2_row(strip_.row(i), seqlen_k, {scale_.log2, 0.0f}, row_max_.data()[i]);
      scale_values(strip_.row(i), row_sum == 0.0f ? 0.0f : probs_factor_ / row_sum, seqlen_k);
    }
    cta.for_each_inner_tile(cta.first_head(), cta.first_block(), [&](const TileCoord& at, bool) {
      const ScoreTile place(cta, at, Queries::rows);
      cta.store(TensorName::probs, at, {strip_.data() + place.first_key, strip_.stride()});
      if (TileState* state = cta.observe(at)) {
        state->probs =
            tile_sum({strip_.data() + place.first_key, strip_.stride()}, place.queries, place.keys);
        for (int i = 0; i < queries; ++i) state->row_sum += static_cast<double>(row_sum_.data()[i]);
      }
    });
    for (int i = 0; i < queries; ++i) {
      row_max_.data()[i] = log_sum_exp(row_max_.data()[i], scale_.rest, row_sum_.data()[i]);
    }
    cta.store_stats(TensorName::lse, owned, row_max_.data());
  }

 private:
  StoredScoreScale scale_;
  float probs_factor_;
  TileScoreMods score_mods_;
  RowStates row_states_;
  Tile strip_, tile_, row_max_, row_sum_, first_max_;
};

/// Pass dscores: dS = P * (dP - delta) * f'(S), with delta = rowsum(P * dP).
class RowGradient {
 public:
  explicit RowGradient(const TileProgram& program)
      : unit_(static_cast<double>(StoredScoreScale(program.problem).rest)),
        score_mods_(program),
        sums_sinks_(program.problem.score_mods.learned_sink),
        dropout_(program.problem.seed, program.problem.dropout),
        probs_(program.tile.block_m, static_cast<int>(program.problem.seqlen_k)),
        dprobs_(program.tile.block_m, static_cast<int>(program.problem.seqlen_k)),
        tile_(program.tile.block_m, program.tile.block_n),
        factors_(dropout_.active() ? program.tile.block_m : 0, program.tile.block_n),
        scores_(score_mods_.change_gradients() ? program.tile.block_m : 0, program.tile.block_n),
        derivatives_(score_mods_.change_gradients() ? program.tile.block_m : 0, program.tile.block_n),
        slopes_(score_mods_.change_gradients() ? program.tile.block_m : 0,
                static_cast<int>(program.problem.seqlen_k)),
        delta_(1, program.tile.block_m),
        lse_(1, program.tile.block_m) {}

  void operator()(Cta& cta) {
    const int head = cta.first_head();
    const TileCoord owned = cta.coord(head, cta.first_block());
    if (score_mods_.change_gradients()) score_mods_.load(cta, owned);
    float sink = 0;
    if (sums_sinks_) {
      cta.load_stats(TensorName::lse, owned, lse_.data());
      cta.load_heads(TensorName::sink, owned, &sink);
    }
    delta_.zero();
    cta.for_each_inner_tile(head, cta.first_block(), [&](const TileCoord& at, bool) {
      const ScoreTile place(cta, at, Queries::rows);
      cta.load_into(TensorName::probs, at, probs_.data() + place.first_key, probs_.stride());
      cta.load_into(TensorName::dprobs, at, tile_.data(), tile_.stride());
      if (score_mods_.change_gradients()) load_derivatives(cta, at, place);
      if (dropout_.active()) {
        dropout_factors(place, dropout_, factors_);
        multiply_values(tile_.data(), factors_.data(), place.queries * tile_.stride());
      }
      if (TileState* state = cta.observe(at)) state->dprobs = visible_sum(place, tile_);
      for (int i = 0; i < place.queries; ++i) {
        std::copy_n(tile_.row(i), place.keys, dprobs_.row(i) + place.first_key);
        delta_.data()[i] += dot_product(probs_.row(i) + place.first_key, tile_.row(i), place.keys);
      }
    });
    const int queries = cta.queries(owned);
    scores_gradient(probs_.data(), dprobs_.data(), dprobs_.stride(), queries,
                    static_cast<int>(cta.problem().seqlen_k), delta_.data(), Queries::rows);
    if (score_mods_.change_gradients()) {
      multiply_values(dprobs_.data(), slopes_.data(), queries * dprobs_.stride());
    }
    cta.for_each_inner_tile(head, cta.first_block(), [&](const TileCoord& at, bool) {
      const ScoreTile place(cta, at, Queries::rows);
      const TileView dscores = {dprobs_.data() + place.first_key, dprobs_.stride()};
      cta.store(TensorName::dscores, at, dscores);
      if (TileState* state = cta.observe(at)) state->dscores = tile_sum(dscores, place.queries, place.keys);
    });
    if (sums_sinks_) {
      const float dsink = sink_gradient(sink, lse_.data(), delta_.data(), queries);
      cta.in_turn([&](bool) { cta.reduce_head(TensorName::dsink, owned, dsink); });
    }
  }

 private:
  void load_derivatives(Cta& cta, const TileCoord& at, const ScoreTile& place) {
    cta.load_into(TensorName::scores, at, scores_.data(), scores_.stride());
    score_mods_.apply(place, unit_, scores_, &derivatives_);
    for (int i = 0; i < place.queries; ++i) {
      std::copy_n(derivatives_.row(i), place.keys, slopes_.row(i) + place.first_key);
    }
  }

  double unit_;  // of stored scores
  TileScoreMods score_mods_;
  bool sums_sinks_;
  DropoutMask dropout_;
  Tile probs_, dprobs_, tile_, factors_, scores_, derivatives_, slopes_, delta_, lse_;
};

/// Passes output (P V), dv (P^T dO), dq_gemm (dS K) and dk_gemm (dS^T Q): a matrix of N x N tiles, or its
/// transpose on the kv axis, times rows.
class MatrixTimesRows {
 public:
  explicit MatrixTimesRows(const TileProgram& program)
      : cols_(static_cast<int>(program.extent(program.epilogue[0].tensor).cols)),
        matrix_name_(program.phases[0][0].tensor),
        rows_name_(program.phases[0][1].tensor),
        product_name_(program.epilogue[0].tensor),
        factor_(matrix_name_ == TensorName::probs ? 1.0f / KernelScale(program.problem).probs_factor
                                                  : KernelScale(program.problem).signed_scale),
        dtype_(program.problem.dtype),
        dropout_(program.problem.seed, matrix_name_ == TensorName::probs ? program.problem.dropout : 0.0),
        matrix_(program.tile.block_m, program.tile.block_n),
        factors_(dropout_.active() ? program.tile.block_m : 0, program.tile.block_n),
        rows_(program.axis == Axis::q ? program.tile.block_n : program.tile.block_m, cols_),
        product_(program.axis == Axis::q ? program.tile.block_m : program.tile.block_n, cols_) {}

  void operator()(Cta& cta) {
    const bool transposed = cta.program().axis == Axis::kv;
    product_.zero();
    for (int head = cta.first_head(); head < cta.end_head(); ++head) {
      cta.for_each_inner_tile(head, cta.first_block(), [&](const TileCoord& at, bool) {
        const ScoreTile place(cta, at, Queries::rows);
        cta.load_into(matrix_name_, at, matrix_.data(), matrix_.stride());
        const TileView rows = cta.load(rows_name_, at, rows_);
        if (rows_name_ == TensorName::v) cta.apply_value_descales(at, rows_);
        if (dropout_.active()) {
          dropout_factors(place, dropout_, factors_);
          multiply_values(matrix_.data(), factors_.data(), place.queries * matrix_.stride());
          round_to(dtype_, matrix_.data(), place.queries * matrix_.stride());
        }
        const int owned = transposed ? place.keys : place.queries;
        tile_matmul(transposed ? matrix_.transposed() : matrix_.by_rows(), rows, product_, owned, cols_,
                    transposed ? place.queries : place.keys, Accumulate::yes);
        if (TileState* state = cta.observe(at)) {
          const bool probs = matrix_name_ == TensorName::probs;
          (probs ? state->probs : state->dscores) = visible_sum(place, matrix_);
          state->accum = tile_sum(product_.view(), owned, cols_);
        }
      });
    }
    scale_values(product_.data(), factor_, static_cast<std::int64_t>(product_.size()));
    cta.store(product_name_, cta.coord(cta.first_head(), cta.first_block()), product_.view());
  }

 private:
  int cols_;
  TensorName matrix_name_, rows_name_, product_name_;
  float factor_;
  ElementType dtype_;
  DropoutMask dropout_;
  Tile matrix_, factors_, rows_, product_;
};

void run(Direction direction, ProgramOptions options, TensorSet& tensors, TileObserver* observer) {
  options[PassName::softmax].row_reads = options[PassName::dscores].row_reads =
      1;  // a strip holds rows of any length
  for (const TileProgram& program :
       build_programs(Algorithm::standard, direction, tensors.problem(), options)) {
    switch (program.name) {
      case PassName::scores:
      case PassName::dprobs:
        run_pass<RowsTimesRows>(program, tensors, observer);
        break;
      case PassName::softmax:
        run_pass<RowSoftmax>(program, tensors, observer);
        break;
      case PassName::dscores:
        run_pass<RowGradient>(program, tensors, observer);
        break;
      default:
        run_pass<MatrixTimesRows>(program, tensors, observer);
        break;
    }
  }
}

}  // namespace

void standard_forward(const ProgramOptions& options, TensorSet& tensors, TileObserver* observer) {
  for (TensorName name : {TensorName::scores, TensorName::probs, TensorName::out, TensorName::lse}) {
    tensors.allocate(name);
  }
  run(Direction::forward, options, tensors, observer);
}

void standard_backward(const ProgramOptions& options, TensorSet& tensors, TileObserver* observer) {
  for (TensorName name :
       {TensorName::dprobs, TensorName::dscores, TensorName::dq, TensorName::dk, TensorName::dv}) {
    tensors.allocate(name);
  }
  if (tensors.problem().score_mods.learned_sink) tensors.allocate(TensorName::dsink).zero();
  run(Direction::backward, options, tensors, observer);
}

}  // namespace tilescope
