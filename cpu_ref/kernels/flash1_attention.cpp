// SPDX-License-Identifier: Apache-2.0
// One CTA works through a whole head: for each K, V tile it passes over all of Q, and O, m and l travel to
// slow memory and back at every step.
#include "cpu_ref/kernels/cpu_kernels.hpp"

#include <cmath>

#include "cpu_ref/kernels/backward_tiles.hpp"
#include "cpu_ref/launch/run_pass.hpp"
#include "cpu_ref/numeric/numeric.hpp"
#include "cpu_ref/primitives/kernel_scale.hpp"
#include "cpu_ref/primitives/score_tile.hpp"

namespace tilescope {
namespace {

/// Stores `tile` over every block of a tensor that a whole-head CTA initialises.
template <typename Store>
void for_each_initial_tile(Cta& cta, TensorName name, Store&& store) {
  const VisibleBand band = cta.problem().band();
  const TileShape tile = cta.program().tile;
  const bool by_n = tensor_extent(cta.problem(), name).indexing == TileIndexing::n;
  const int blocks = by_n ? num_n_blocks(band, tile) : num_m_blocks(band, tile);
  for (int head = cta.first_head(); head < (by_n ? cta.first_head() + 1 : cta.end_head()); ++head) {
    for (int block = 0; block < blocks; ++block) store(TileCoord{head, block, block});
  }
}

/// Algorithm 1 (with Algorithm 2's mask and dropout).
class Flash1Forward {
 public:
  explicit Flash1Forward(const TileProgram& program)
      : head_dim_(static_cast<int>(program.problem.head_dim)),
        probs_type_(probs_type(program.problem)),
        running_out_(program.init[0].tensor),
        scale_(program.problem),
        dropout_(program.problem.seed, program.problem.dropout),
        k_(program.tile.block_n, head_dim_),
        k_transposed_(head_dim_, program.tile.block_n),
        v_(program.tile.block_n, head_dim_),
        q_(program.tile.block_m, head_dim_),
        out_(program.tile.block_m, head_dim_),
        probs_(program.tile.block_m, program.tile.block_n),
        factors_(dropout_.active() ? program.tile.block_m : 0, program.tile.block_n),
        product_(program.tile.block_m, head_dim_),
        row_max_(1, program.tile.block_m),
        row_sum_(1, program.tile.block_m),
        tile_max_(1, program.tile.block_m),
        tile_sum_(1, program.tile.block_m) {}

  void operator()(Cta& cta) {
    initialise(cta);
    for (int block = cta.first_block(); block < cta.end_block(); ++block) {
      if (cta.inner_tiles(block).empty()) continue;
      const TileCoord owned = cta.coord(cta.first_head(), block);
      const TileView k = cta.load(TensorName::k, owned, k_);
      v_view_ = cta.load(TensorName::v, owned, v_);
      transpose_tile(k, cta.keys(owned), head_dim_, scale_.sign, k_transposed_);
      cta.for_each_inner_tile(cta.first_head(), block,
                              [&](const TileCoord& at, bool full) { step(cta, at, full); });
    }
  }

 private:
  /// Line 2: O = 0, l = 0, m = -inf.
  void initialise(Cta& cta) {
    out_.zero();
    row_sum_.zero();
    row_max_.fill(kMinusInfinity);
    for_each_initial_tile(cta, running_out_,
                          [&](const TileCoord& at) { cta.store(running_out_, at, out_.view()); });
    for_each_initial_tile(cta, TensorName::row_sum, [&](const TileCoord& at) {
      cta.store_stats(TensorName::row_sum, at, row_sum_.data());
    });
    for_each_initial_tile(cta, TensorName::row_max, [&](const TileCoord& at) {
      cta.store_stats(TensorName::row_max, at, row_max_.data());
    });
  }

  /// Lines 8 to 13.
  void step(Cta& cta, const TileCoord& at, bool full) {
    const ScoreTile place(cta, at);
    const TileView q = cta.load(TensorName::q, at, q_);
    cta.load_into(running_out_, at, out_.data(), out_.stride());
    cta.load_stats(TensorName::row_sum, at, row_sum_.data());
    cta.load_stats(TensorName::row_max, at, row_max_.data());
    TileState* state = cta.observe(at);

    tile_matmul(q.rows(), k_transposed_.view(), probs_, place.queries, place.keys, head_dim_, Accumulate::no);
    if (state) state->scores = visible_sum(place, probs_);
    if (!full) apply_mask(place, probs_);
    for (int i = 0; i < place.queries; ++i) {
      tile_max_.data()[i] = row_maximum(probs_.row(i), place.keys, kMinusInfinity);
      tile_sum_.data()[i] = exp2_row(probs_.row(i), place.keys, scale_.softmax, tile_max_.data()[i]);
    }
    if (dropout_.active()) {
      dropout_factors(place, dropout_, factors_);
      multiply_values(probs_.data(), factors_.data(), place.queries * probs_.stride());
    }
    round_to(probs_type_, probs_.data(), place.queries * probs_.stride());
    tile_matmul(probs_.by_rows(), v_view_, product_, place.queries, head_dim_, place.keys, Accumulate::no);
    for (int i = 0; i < place.queries; ++i) merge_row(i);

    cta.store(running_out_, at, out_.view());
    cta.store_stats(TensorName::row_sum, at, row_sum_.data());
    cta.store_stats(TensorName::row_max, at, row_max_.data());
    if (state) {
      for (int i = 0; i < place.queries; ++i) {
        if (row_max_.data()[i] == kMinusInfinity) continue;
        state->row_max += static_cast<double>(row_max_.data()[i]);
        state->row_sum += static_cast<double>(row_sum_.data()[i]);
      }
      state->probs = visible_sum(place, probs_);
      state->accum = tile_sum(out_.view(), place.queries, head_dim_);
    }
  }

  /// Lines 11 and 12: O stays normalised.
  void merge_row(int i) {
    float& row_max = row_max_.data()[i];
    float& row_sum = row_sum_.data()[i];
    if (tile_sum_.data()[i] == 0.0f) return;  // the row sees no key of this tile
    const float new_max = std::max(row_max, tile_max_.data()[i]);
    const float old_weight = row_sum * rescale_factor(row_max, new_max, scale_.softmax);
    const float tile_weight =
        rescale_factor(tile_max_.data()[i], new_max, scale_.softmax) / scale_.probs_factor;
    const float new_sum = old_weight + tile_weight * tile_sum_.data()[i];
    blend_values(old_weight / new_sum, out_.row(i), tile_weight / new_sum, product_.row(i), head_dim_);
    row_max = new_max;
    row_sum = new_sum;
  }

  int head_dim_;
  ElementType probs_type_;
  TensorName running_out_;  // out, or out_accum where out is too narrow to be read back
  KernelScale scale_;
  DropoutMask dropout_;
  TileView v_view_;
  Tile k_, k_transposed_, v_, q_, out_, probs_, factors_, product_, row_max_, row_sum_, tile_max_, tile_sum_;
};

/// Algorithm 4.
class Backward {
 public:
  explicit Backward(const TileProgram& program)
      : math_(program),
        head_dim_(static_cast<int>(program.problem.head_dim)),
        k_(program.tile.block_n, head_dim_),
        v_(program.tile.block_n, head_dim_),
        k_transposed_(head_dim_, program.tile.block_n),
        v_transposed_(head_dim_, program.tile.block_n),
        dk_(program.tile.block_n, head_dim_),
        dv_(program.tile.block_n, head_dim_),
        q_(program.tile.block_m, head_dim_),
        out_(program.tile.block_m, head_dim_),
        dout_(program.tile.block_m, head_dim_),
        dq_(program.tile.block_m, head_dim_),
        row_max_(1, program.tile.block_m),
        row_sum_(1, program.tile.block_m),
        delta_(1, program.tile.block_m) {}

  void operator()(Cta& cta) {
    initialise(cta);
    for (int block = cta.first_block(); block < cta.end_block(); ++block) {
      const TileCoord owned = cta.coord(cta.first_head(), block);
      dk_.zero();
      dv_.zero();
      if (!cta.inner_tiles(block).empty()) {
        k_view_ = cta.load(TensorName::k, owned, k_);
        const TileView v = cta.load(TensorName::v, owned, v_);
        transpose_tile(k_view_, cta.keys(owned), head_dim_, math_.scale.sign, k_transposed_);
        transpose_tile(v, cta.keys(owned), head_dim_, 1.0f, v_transposed_);
      }
      for (int head = cta.first_head(); head < cta.end_head(); ++head) {
        cta.for_each_inner_tile(head, block, [&](const TileCoord& at, bool full) { step(cta, at, full); });
      }
      scale_values(dk_.data(), math_.scale.signed_scale, static_cast<std::int64_t>(dk_.size()));
      cta.store(TensorName::dk, owned, dk_.view());
      cta.store(TensorName::dv, owned, dv_.view());
    }
  }

 private:
  /// Line 5: dQ = dK = dV = 0.
  void initialise(Cta& cta) {
    dq_.zero();
    dk_.zero();
    for (TensorName name : {TensorName::dq_accum, TensorName::dk, TensorName::dv}) {
      const TileView zeros = name == TensorName::dq_accum ? dq_.view() : dk_.view();
      for_each_initial_tile(cta, name, [&](const TileCoord& at) { cta.store(name, at, zeros); });
    }
  }

  /// Lines 10 to 22.
  void step(Cta& cta, const TileCoord& at, bool full) {
    const ScoreTile place(cta, at);
    const TileView q = cta.load(TensorName::q, at, q_);
    const TileView out = cta.load(TensorName::out, at, out_);
    const TileView dout = cta.load(TensorName::dout, at, dout_);
    cta.load_into(TensorName::dq_accum, at, dq_.data(), dq_.stride());
    cta.load_stats(TensorName::row_sum, at, row_sum_.data());
    cta.load_stats(TensorName::row_max, at, row_max_.data());
    TileState* state = cta.observe(at);

    tile_matmul(q.rows(), k_transposed_.view(), math_.probs, place.queries, place.keys, head_dim_,
                Accumulate::no);
    if (state) state->scores = visible_sum(place, math_.probs);
    if (!full) apply_mask(place, math_.probs);
    for (int i = 0; i < place.queries; ++i) normalised_probs(i, place.keys);
    tile_matmul(dout.rows(), v_transposed_.view(), math_.dscores, place.queries, place.keys, head_dim_,
                Accumulate::no);
    row_dots(dout, out, place.queries, head_dim_, delta_.data());
    math_.gradient(place, delta_.data(), state);
    tile_matmul(math_.probs.transposed(), dout, dv_, place.keys, head_dim_, place.queries, Accumulate::yes);
    tile_matmul(math_.dscores.by_rows(), k_view_, dq_, place.queries, head_dim_, place.keys, Accumulate::yes);
    tile_matmul(math_.dscores.transposed(), q, dk_, place.keys, head_dim_, place.queries, Accumulate::yes);
    cta.store(TensorName::dq_accum, at, dq_.view());
    if (state) {
      state->accum =
          tile_sum(dk_.view(), place.keys, head_dim_) + tile_sum(dv_.view(), place.keys, head_dim_);
    }
  }

  /// Line 13: P = diag(l)^-1 exp(S - m).
  void normalised_probs(int i, int keys) {
    const float row_sum = row_sum_.data()[i];
    exp2_row(math_.probs.row(i), keys, {math_.scale.softmax.log2, 0.0f}, row_max_.data()[i]);
    scale_values(math_.probs.row(i), row_sum == 0.0f ? 0.0f : 1.0f / row_sum, keys);
  }

  BackwardTiles math_;
  int head_dim_;
  TileView k_view_;
  Tile k_, v_, k_transposed_, v_transposed_, dk_, dv_, q_, out_, dout_, dq_, row_max_, row_sum_, delta_;
};

}  // namespace

void flash1_forward(const ProgramOptions& options, TensorSet& tensors, TileObserver* observer) {
  const AttentionProblem& problem = tensors.problem();
  const auto programs = build_programs(Algorithm::flash1, Direction::forward, problem, options);
  for (TensorName name : {TensorName::out, TensorName::row_max, TensorName::row_sum}) tensors.allocate(name);
  tensors.allocate(programs[0].init[0].tensor);
  run_pass<Flash1Forward>(programs[0], tensors, observer);
  if (programs.size() > 1) run_pass<ConvertSums>(programs[1], tensors, observer);

  const KernelScale scale(problem);
  Tensor& lse = tensors.allocate(TensorName::lse);
  for (std::int64_t row = 0; row < lse.shape().elements(); ++row) {
    lse.floats()[row] = log_sum_exp(tensors[TensorName::row_max].floats()[row], scale.magnitude,
                                    tensors[TensorName::row_sum].floats()[row]);
  }
}

void flash1_backward(const ProgramOptions& options, TensorSet& tensors, TileObserver* observer) {
  const auto programs = build_programs(Algorithm::flash1, Direction::backward, tensors.problem(), options);
  for (TensorName name : {TensorName::dq, TensorName::dk, TensorName::dv, TensorName::dq_accum}) {
    tensors.allocate(name);
  }
  run_pass<Backward>(programs[0], tensors, observer);
  run_pass<ConvertSums>(programs[1], tensors, observer);
}

}  // namespace tilescope
