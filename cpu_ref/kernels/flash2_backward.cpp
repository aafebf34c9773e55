// SPDX-License-Identifier: Apache-2.0
// The backward passes: a CTA keeps tiles of one axis on chip and streams those of the other.
#include <algorithm>

#include "cpu_ref/kernels/backward_tiles.hpp"
#include "cpu_ref/kernels/cpu_kernels.hpp"
#include "cpu_ref/launch/run_pass.hpp"

namespace tilescope {
namespace {

bool has(const std::vector<Operand>& operands, TensorName name) {
  return std::ranges::any_of(operands, [name](const Operand& operand) { return operand.tensor == name; });
}

/// delta = rowsum(dout * out), for the fused order a zeroed dq_accum, if nobody stores it, and the gradient
/// of learned sinks.
class Delta {
 public:
  explicit Delta(const TileProgram& program)
      : head_dim_(static_cast<int>(program.problem.head_dim)),
        value_dim_(static_cast<int>(program.problem.value_dim())),
        clears_dq_(has(program.epilogue, TensorName::dq_accum)),
        sums_sinks_(has(program.epilogue, TensorName::dsink)),
        out_(program.tile.block_m, value_dim_),
        dout_(program.tile.block_m, value_dim_),
        zeros_(clears_dq_ ? program.tile.block_m : 0, head_dim_),
        delta_(1, program.tile.block_m),
        lse_(1, program.tile.block_m) {}

  void operator()(Cta& cta) {
    const TileCoord at = cta.coord(cta.first_head(), cta.first_block());
    const TileView out = cta.load(TensorName::out, at, out_);
    const TileView dout = cta.load(TensorName::dout, at, dout_);
    float sink = 0;
    if (sums_sinks_) {
      cta.load_stats(TensorName::lse, at, lse_.data());
      cta.load_heads(TensorName::sink, at, &sink);
    }
    row_dots(dout, out, cta.queries(at), value_dim_, delta_.data());
    cta.store_stats(TensorName::delta, at, delta_.data());
    if (clears_dq_) cta.store(TensorName::dq_accum, at, zeros_.view());
    if (sums_sinks_) {
      const float dsink = sink_gradient(sink, lse_.data(), delta_.data(), cta.queries(at));
      cta.in_turn([&](bool) { cta.reduce_head(TensorName::dsink, at, dsink); });
    }
  }

 private:
  int head_dim_, value_dim_;
  bool clears_dq_, sums_sinks_;
  Tile out_, dout_, zeros_, delta_, lse_;
};

/// Passes dkdv and dkdvdq (Algorithm 2): K and V stay, the queries of the group stream past.
class KeyBlocks {
 public:
  explicit KeyBlocks(const TileProgram& program)
      : math_(program),
        reduces_dq_(program.name == PassName::dkdvdq),
        stores_dq_(program.dq_start != DqStart::cleared),
        sums_dkdv_(program.query_splits() > 1),
        has_sum_slots_(slots_of(program, TensorName::dk_accum) > 1),
        dq_slots_(dq_slots(program)),
        head_dim_(static_cast<int>(program.problem.head_dim)),
        value_dim_(static_cast<int>(program.problem.value_dim())),
        k_(program.tile.block_n, head_dim_),
        v_(program.tile.block_n, value_dim_),
        k_transposed_(head_dim_, program.tile.block_n),
        v_transposed_(value_dim_, program.tile.block_n),
        q_(program.tile.block_m, head_dim_),
        dout_(program.tile.block_m, value_dim_),
        lse_log2_(1, program.tile.block_m),
        delta_(1, program.tile.block_m),
        dk_(program.tile.block_n, head_dim_),
        dv_(program.tile.block_n, value_dim_),
        dq_(reduces_dq_ ? program.tile.block_m : 0, head_dim_) {}

  void operator()(Cta& cta) {
    const int block = cta.first_block();
    const TileCoord owned = cta.coord(cta.first_head(), block);
    dk_.zero();
    dv_.zero();
    if (!cta.inner_tiles(block).empty()) {
      k_view_ = cta.load(TensorName::k, owned, k_);
      const TileView v = cta.load(TensorName::v, owned, v_);
      transpose_tile(k_view_, cta.keys(owned), head_dim_, math_.scale.sign, k_transposed_);
      transpose_tile(v, cta.keys(owned), value_dim_, 1.0f, v_transposed_);
      math_.load(cta, owned);
    }
    for (int head = cta.first_head(); head < cta.end_head(); ++head) {
      cta.for_each_inner_tile(head, block, [&](const TileCoord& at, bool full) { step(cta, at, full); });
    }
    if (!sums_dkdv_) {
      scale_values(dk_.data(), math_.scale.signed_scale, static_cast<std::int64_t>(dk_.size()));
      cta.store(TensorName::dk, owned, dk_.view());
      cta.store(TensorName::dv, owned, dv_.view());
    } else if (has_sum_slots_) {
      const TileCoord own = cta.coord(cta.first_head(), block, cta.sum_slot());
      cta.store(TensorName::dk_accum, own, dk_.view());
      cta.store(TensorName::dv_accum, own, dv_.view());
    } else {
      cta.in_turn([&](bool) {
        cta.reduce(TensorName::dk_accum, owned, dk_.view());
        cta.reduce(TensorName::dv_accum, owned, dv_.view());
      });
    }
  }

 private:
  void step(Cta& cta, const TileCoord& at, bool full) {
    const ScoreTile place(cta, at);
    const TileView q = cta.load(TensorName::q, at, q_);
    const TileView dout = cta.load(TensorName::dout, at, dout_);
    cta.load_stats(TensorName::lse, at, lse_log2_.data());
    cta.load_stats(TensorName::delta, at, delta_.data());
    to_lse_log2(lse_log2_.data(), place.queries);
    TileState* state = cta.observe(at);
    const TileParts parts = cta.parts(at);

    multiply_scores(parts, q, k_transposed_.view(), math_.probs, head_dim_);
    math_.probs_from_lse(place, full, lse_log2_.data(), state);
    math_.multiply_dprobs(parts, dout, v_transposed_.view());
    math_.gradient(place, delta_.data(), state);
    add_to_owned(parts, math_.probs, dout, dv_, value_dim_);
    add_to_owned(parts, math_.dscores, q, dk_, head_dim_);
    if (reduces_dq_) {
      multiply_by_owned(parts, math_.dscores, k_view_, dq_, head_dim_);
      const bool begins = dq_slots_.count > 1 && cta.begins_dq_slot(dq_slots_, at);
      cta.in_turn([&](bool first) {
        first = dq_slots_.count > 1 ? begins : first;
        stores_dq_ ? cta.sum(TensorName::dq_accum, at, dq_.view(), first)
                   : cta.reduce(TensorName::dq_accum, at, dq_.view());
      });
    }
    if (state) {
      state->accum =
          tile_sum(dk_.view(), place.keys, head_dim_) + tile_sum(dv_.view(), place.keys, value_dim_);
    }
  }

  BackwardTiles math_;
  bool reduces_dq_, stores_dq_, sums_dkdv_, has_sum_slots_;
  DqSlots dq_slots_;
  int head_dim_, value_dim_;
  TileView k_view_;
  Tile k_, v_, k_transposed_, v_transposed_, q_, dout_, lse_log2_, delta_, dk_, dv_, dq_;
};

/// Passes dq and dqdkdv (a CPU has no launches: in one with dkdv, dq runs as by itself): Q and dO stay, the
/// keys stream past.
class QueryBlocks {
 public:
  explicit QueryBlocks(const TileProgram& program)
      : math_(program),
        reduces_dkdv_(program.name == PassName::dqdkdv),
        sums_sinks_(has(program.epilogue, TensorName::dsink)),
        head_dim_(static_cast<int>(program.problem.head_dim)),
        value_dim_(static_cast<int>(program.problem.value_dim())),
        q_(program.tile.block_m, head_dim_),
        dout_(program.tile.block_m, value_dim_),
        out_(reduces_dkdv_ ? program.tile.block_m : 0, value_dim_),
        q_transposed_(head_dim_, program.tile.block_m),
        dout_transposed_(value_dim_, program.tile.block_m),
        lse_log2_(1, program.tile.block_m),
        delta_(1, program.tile.block_m),
        k_(program.tile.block_n, head_dim_),
        v_(program.tile.block_n, value_dim_),
        dq_(program.tile.block_m, head_dim_),
        dk_(reduces_dkdv_ ? program.tile.block_n : 0, head_dim_),
        dv_(reduces_dkdv_ ? program.tile.block_n : 0, value_dim_) {}

  void operator()(Cta& cta) {
    const int block = cta.first_block();
    const TileCoord owned = cta.coord(cta.first_head(), block);
    dq_.zero();
    dsink_ = 0;
    if (!cta.inner_tiles(block).empty()) load_owned(cta, owned);
    cta.for_each_inner_tile(cta.first_head(), block,
                            [&](const TileCoord& at, bool full) { step(cta, at, full); });
    scale_values(dq_.data(), math_.scale.signed_scale, static_cast<std::int64_t>(dq_.size()));
    cta.store(TensorName::dq, owned, dq_.view());
    if (sums_sinks_) cta.in_turn([&](bool) { cta.reduce_head(TensorName::dsink, owned, dsink_); });
  }

 private:
  void load_owned(Cta& cta, const TileCoord& owned) {
    const int queries = cta.queries(owned);
    q_view_ = cta.load(TensorName::q, owned, q_);
    if (reduces_dkdv_) {
      const TileView out = cta.load(TensorName::out, owned, out_);
      dout_view_ = cta.load(TensorName::dout, owned, dout_);
      row_dots(dout_view_, out, queries, value_dim_, delta_.data());
      cta.load_stats(TensorName::lse, owned, lse_log2_.data());
    } else {
      dout_view_ = cta.load(TensorName::dout, owned, dout_);
      cta.load_stats(TensorName::lse, owned, lse_log2_.data());
      cta.load_stats(TensorName::delta, owned, delta_.data());
    }
    math_.load(cta, owned);
    if (sums_sinks_) {
      float sink;
      cta.load_heads(TensorName::sink, owned, &sink);
      dsink_ = sink_gradient(sink, lse_log2_.data(), delta_.data(), queries);
    }
    to_lse_log2(lse_log2_.data(), queries);
    transpose_tile(q_view_, queries, head_dim_, math_.scale.sign, q_transposed_);
    transpose_tile(dout_view_, queries, value_dim_, 1.0f, dout_transposed_);
  }

  void step(Cta& cta, const TileCoord& at, bool full) {
    const ScoreTile place(cta, at);
    const TileView k = cta.load(TensorName::k, at, k_);
    const TileView v = cta.load(TensorName::v, at, v_);
    TileState* state = cta.observe(at);
    const TileParts parts = cta.parts(at);

    multiply_scores(parts, k, q_transposed_.view(), math_.probs, head_dim_);
    math_.probs_from_lse(place, full, lse_log2_.data(), state);
    math_.multiply_dprobs(parts, v, dout_transposed_.view());
    math_.gradient(place, delta_.data(), state);
    add_to_owned(parts, math_.dscores, k, dq_, head_dim_);
    if (reduces_dkdv_) {
      multiply_by_owned(parts, math_.dscores, q_view_, dk_, head_dim_);
      multiply_by_owned(parts, math_.probs, dout_view_, dv_, value_dim_);
      cta.in_turn([&](bool) {
        cta.reduce(TensorName::dk_accum, at, dk_.view());
        cta.reduce(TensorName::dv_accum, at, dv_.view());
      });
    }
    if (state) state->accum = tile_sum(dq_.view(), place.queries, head_dim_);
  }

  BackwardTiles math_;
  bool reduces_dkdv_, sums_sinks_;
  int head_dim_, value_dim_;
  float dsink_ = 0;  // of the owned rows
  TileView q_view_, dout_view_;
  Tile q_, dout_, out_, q_transposed_, dout_transposed_, lse_log2_, delta_, k_, v_, dq_, dk_, dv_;
};

}  // namespace

void flash2_backward(const ProgramOptions& options, TensorSet& tensors, TileObserver* observer) {
  for (TensorName name : {TensorName::dq, TensorName::dk, TensorName::dv}) tensors.allocate(name);
  if (tensors.problem().score_mods.learned_sink) tensors.allocate(TensorName::dsink).zero();
  const std::vector<TileProgram> programs =
      build_programs(Algorithm::flash2, Direction::backward, tensors.problem(), options);
  const auto allocate_sums = [&](TensorName name) {
    tensors.allocate(name, extent_in(programs, name).splits);
  };
  if (options.backward != BackwardOrder::q_outer) {
    tensors.allocate(TensorName::delta);
    if (options.backward == BackwardOrder::fused || options.backward == BackwardOrder::ordered) {
      allocate_sums(TensorName::dq_accum);
    }
  }
  for (const TileProgram& program : programs) {
    if (slots_of(program, TensorName::dk_accum) > 1 && !adds_slots(program)) {
      allocate_sums(TensorName::dk_accum);
      allocate_sums(TensorName::dv_accum);
    }
    switch (program.name) {
      case PassName::delta:
        run_pass<Delta>(program, tensors, observer);
        break;
      case PassName::init:
        tensors.allocate(TensorName::dk_accum);
        tensors.allocate(TensorName::dv_accum);
        run_pass<StoreZeros>(program, tensors, observer);
        break;
      case PassName::convert:
        run_pass<ConvertSums>(program, tensors, observer);
        break;
      case PassName::dq:
      case PassName::dqdkdv:
        run_pass<QueryBlocks>(program, tensors, observer);
        break;
      default:
        run_pass<KeyBlocks>(program, tensors, observer);
        break;
    }
  }
}

}  // namespace tilescope
