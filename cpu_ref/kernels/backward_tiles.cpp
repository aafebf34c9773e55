// SPDX-License-Identifier: Apache-2.0
#include "cpu_ref/kernels/backward_tiles.hpp"

#include <algorithm>

#include "cpu_ref/numeric/numeric.hpp"
#include "cpu_ref/schedule/sum_slots.hpp"

namespace tilescope {
namespace {
int score_rows(const TileProgram& p) { return p.axis == Axis::q ? p.tile.block_n : p.tile.block_m; }
int score_cols(const TileProgram& p) { return p.axis == Axis::q ? p.tile.block_m : p.tile.block_n; }
int most_columns(const TileProgram& p) {
  return static_cast<int>(std::max(p.problem.head_dim, p.problem.value_dim()));
}
int owned_rows(const TileProgram& p) { return p.axis == Axis::q ? p.tile.block_m : p.tile.block_n; }
}  // namespace

BackwardTiles::BackwardTiles(const TileProgram& program)
    : scale(program.problem),
      probs(score_rows(program), score_cols(program)),
      dscores(score_rows(program), score_cols(program)),
      dtype_(program.problem.dtype),
      value_dim_(static_cast<int>(program.problem.value_dim())),
      cuts_tiles_(program.diagonal_slices > 1),
      score_mods_(program),
      dropout_(program.problem.seed, program.problem.dropout),
      factors_(dropout_.active() ? score_rows(program) : 0, score_cols(program)),
      derivatives_(score_mods_.change_gradients() ? score_rows(program) : 0, score_cols(program)) {}

void BackwardTiles::probs_from_lse(const ScoreTile& place, bool full, const float* lse_log2,
                                   TileState* state) {
  if (state) state->scores = visible_sum(place, probs);
  score_mods_.apply(place, static_cast<double>(scale.magnitude), probs,
                    score_mods_.change_gradients() ? &derivatives_ : nullptr);
  if (!full) apply_mask(place, probs);
  tilescope::probs_from_lse(probs.data(), probs.stride(), place.rows(), place.cols(), scale.softmax.log2,
                            lse_log2, place.queries_along);
}

void BackwardTiles::multiply_dprobs(const TileParts& parts, const TileView& streamed,
                                    const TileView& owned_transposed) {
  if (cuts_tiles_) dscores.zero();
  multiply_scores(parts, streamed, owned_transposed, dscores, value_dim_);
}

void BackwardTiles::gradient(const ScoreTile& place, const float* delta, TileState* state) {
  const std::int64_t size = place.rows() * probs.stride();
  if (dropout_.active()) {
    dropout_factors(place, dropout_, factors_);
    multiply_values(dscores.data(), factors_.data(), size);
  }
  if (state) state->dprobs = visible_sum(place, dscores);
  scores_gradient(probs.data(), dscores.data(), probs.stride(), place.rows(), place.cols(), delta,
                  place.queries_along);
  if (score_mods_.change_gradients()) multiply_values(dscores.data(), derivatives_.data(), size);
  if (dropout_.active()) multiply_values(probs.data(), factors_.data(), size);
  round_to(dtype_, probs.data(), size);
  round_to(dtype_, dscores.data(), size);
  if (state) {
    state->probs = visible_sum(place, probs);
    state->dscores = visible_sum(place, dscores);
  }
}

void to_lse_log2(float* lse, int queries) {
  for (int i = 0; i < queries; ++i) {
    const bool empty = lse[i] == kMinusInfinity;
    lse[i] = empty ? -kMinusInfinity : lse[i] * kLog2E;
  }
}

void row_dots(const TileView& a, const TileView& b, int rows, int cols, float* dots) {
  for (int i = 0; i < rows; ++i) {
    dots[i] = dot_product(a.row(i), b.row(i), cols);
  }
}

StoreZeros::StoreZeros(const TileProgram& program) : zeros_(owned_rows(program), most_columns(program)) {}

void StoreZeros::operator()(Cta& cta) {
  const TileCoord at = cta.coord(cta.first_head(), cta.first_block());
  for (const Operand& operand : cta.program().epilogue) cta.store(operand.tensor, at, zeros_.view());
}

ConvertSums::ConvertSums(const TileProgram& program) : scale_(KernelScale(program.problem).signed_scale) {
  for (std::size_t i = 0; i < loads_of(program).size(); ++i) {
    tiles_.emplace_back(owned_rows(program), most_columns(program));
  }
  if (adds_slots(program)) slot_ = Tile(owned_rows(program), most_columns(program));
}

const std::vector<Operand>& ConvertSums::loads_of(const TileProgram& program) {
  return adds_slots(program) ? program.phases.front() : program.prologue;
}

void ConvertSums::add(Cta& cta, std::size_t i, int slot, bool last) {
  const TensorName source = loads_of(cta.program())[i].tensor;
  const bool scaled = source == TensorName::dq_accum || source == TensorName::dk_accum;
  const float factor = scaled && last ? scale_ : 1.0f;
  const std::int64_t cols = tensor_extent(cta.problem(), source).cols;
  const TileCoord at = cta.coord(cta.first_head(), cta.first_block(), slot);
  const int rows = cta.program().axis == Axis::q ? cta.queries(at) : cta.keys(at);
  const TileView sums = cta.load(source, at, slot > 0 ? slot_ : tiles_[i]);
  for (int r = 0; r < rows; ++r) {
    float* const total = tiles_[i].row(r);
    for (std::int64_t c = 0; c < cols; ++c) {
      total[c] = factor * (slot > 0 ? total[c] + sums.row(r)[c] : sums.row(r)[c]);
    }
  }
}

void ConvertSums::operator()(Cta& cta) {
  const TileCoord at = cta.coord(cta.first_head(), cta.first_block());
  const int block = cta.first_block();
  const int slots = adds_slots(cta.program())                        ? cta.inner_tiles(block).count()
                    : cta.program().has_prologue(cta.batch(), block) ? 1
                                                                     : 0;
  for (std::size_t i = 0; slots == 0 && i < tiles_.size(); ++i) tiles_[i].zero();
  for (int slot = 0; slot < slots; ++slot) {
    for (std::size_t i = 0; i < tiles_.size(); ++i) add(cta, i, slot, slot + 1 == slots);
  }
  const auto& stores = cta.program().epilogue;
  for (std::size_t i = 0; i < stores.size(); ++i) cta.store(stores[i].tensor, at, tiles_[i].view());
}

}  // namespace tilescope
