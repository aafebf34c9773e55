// SPDX-License-Identifier: Apache-2.0
#include "cpu_ref/kernels/backward_tiles.hpp"

#include <utility>

#include "cpu_ref/numeric/numeric.hpp"
#include "cpu_ref/planted_bug.hpp"

namespace tilescope {
namespace {
int score_rows(const TileProgram& p) { return p.axis == Axis::q ? p.tile.block_n : p.tile.block_m; }
int score_cols(const TileProgram& p) { return p.axis == Axis::q ? p.tile.block_m : p.tile.block_n; }
int owned_rows(const TileProgram& p) { return p.axis == Axis::q ? p.tile.block_m : p.tile.block_n; }
}  // namespace

BackwardTiles::BackwardTiles(const TileProgram& program)
    : scale(program.problem),
      probs(score_rows(program), score_cols(program)),
      dscores(score_rows(program), score_cols(program)),
      dtype_(program.problem.dtype),
      dropout_(program.problem.seed, program.problem.dropout),
      factors_(dropout_.active() ? score_rows(program) : 0, score_cols(program)) {}

void BackwardTiles::probs_from_lse(const ScoreTile& place, bool full, const float* lse_log2,
                                   TileState* state) {
  if (state) state->scores = visible_sum(place, probs);
  if (!full) apply_mask(place, probs);
  tilescope::probs_from_lse(probs.data(), probs.stride(), place.rows(), place.cols(), scale.softmax.log2,
                            lse_log2, place.queries_along);
}

void BackwardTiles::gradient(const ScoreTile& place, const float* delta, TileState* state) {
  const std::int64_t size = place.rows() * probs.stride();
  if (dropout_.active()) {
    ScoreTile bits = place;
    if (planted(PlantedBug::dropout_transposed_in_backward)) std::swap(bits.first_query, bits.first_key);
    dropout_factors(bits, dropout_, factors_);
    if (!planted(PlantedBug::dropout_missing_in_dprobs)) {
      multiply_values(dscores.data(), factors_.data(), size);
    }
  }
  if (state) state->dprobs = visible_sum(place, dscores);
  scores_gradient(probs.data(), dscores.data(), probs.stride(), place.rows(), place.cols(), delta,
                  place.queries_along);
  if (dropout_.active() && !planted(PlantedBug::dropout_missing_in_dv)) {
    multiply_values(probs.data(), factors_.data(), size);
  }
  if (!planted(PlantedBug::probs_not_rounded)) round_to(dtype_, probs.data(), size);
  if (!planted(PlantedBug::dscores_not_rounded)) round_to(dtype_, dscores.data(), size);
  if (state) {
    state->probs = visible_sum(place, probs);
    state->dscores = visible_sum(place, dscores);
  }
}

void to_lse_log2(float* lse, int queries) {
  for (int i = 0; i < queries; ++i) {
    const bool empty = lse[i] == kMinusInfinity && !planted(PlantedBug::empty_row_lse_unguarded);
    lse[i] = empty ? -kMinusInfinity : lse[i] * kLog2E;
  }
}

void row_dots(const TileView& a, const TileView& b, int rows, int cols, float* dots) {
  for (int i = 0; i < rows; ++i) {
    const int row = planted(PlantedBug::delta_of_first_row) ? 0 : i;
    dots[i] = planted(PlantedBug::dscores_without_delta) ? 0.0f : dot_product(a.row(row), b.row(row), cols);
  }
}

StoreZeros::StoreZeros(const TileProgram& program)
    : zeros_(owned_rows(program), static_cast<int>(program.problem.head_dim)) {}

void StoreZeros::operator()(Cta& cta) {
  const TileCoord at = cta.coord(cta.first_head(), cta.first_block());
  for (const Operand& operand : cta.program().epilogue) cta.store(operand.tensor, at, zeros_.view());
}

ConvertSums::ConvertSums(const TileProgram& program) : scale_(KernelScale(program.problem).signed_scale) {
  for (std::size_t i = 0; i < program.prologue.size(); ++i) {
    tiles_.emplace_back(owned_rows(program), static_cast<int>(program.problem.head_dim));
  }
}

void ConvertSums::operator()(Cta& cta) {
  const TileCoord at = cta.coord(cta.first_head(), cta.first_block());
  const int rows = cta.program().axis == Axis::q ? cta.queries(at) : cta.keys(at);
  const auto& loads = cta.program().prologue;
  for (std::size_t i = 0; i < loads.size(); ++i) {
    const TileView sums = cta.load(loads[i].tensor, at, tiles_[i]);
    const bool scaled = (loads[i].tensor == TensorName::dq_accum && !planted(PlantedBug::dq_not_scaled)) ||
                        (loads[i].tensor == TensorName::dk_accum && !planted(PlantedBug::dk_not_scaled));
    const float factor = scaled ? scale_ : 1.0f;
    for (int r = 0; r < rows; ++r) {
      for (int c = 0; c < cta.problem().head_dim; ++c) tiles_[i].row(r)[c] = factor * sums.row(r)[c];
    }
  }
  const auto& stores = cta.program().epilogue;
  for (std::size_t i = 0; i < stores.size(); ++i) cta.store(stores[i].tensor, at, tiles_[i].view());
}

}  // namespace tilescope
