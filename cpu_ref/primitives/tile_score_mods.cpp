// SPDX-License-Identifier: Apache-2.0
#include "cpu_ref/primitives/tile_score_mods.hpp"

#include <algorithm>
#include <cmath>

#include "cpu_ref/primitives/score_constants.hpp"

namespace tilescope {

TileScoreMods::TileScoreMods(const TileProgram& program)
    : mods_(program.problem.score_mods),
      change_scores_(tilescope::change_scores(mods_)),
      change_gradients_(tilescope::change_gradients(mods_)),
      heads_(static_cast<int>(program.problem.heads)),
      alibi_slopes_(static_cast<std::size_t>(program.query_heads_of_cta())) {}

void TileScoreMods::load(Cta& cta, const TileCoord& owned) {
  first_head_ = cta.first_query_head(owned);
  for (const TensorName name : score_operands(cta.problem())) {
    cta.load_heads(name, owned, alibi_slopes_.data());
  }
}

void TileScoreMods::apply(const ScoreTile& place, double unit, Tile& scores, Tile* derivatives) const {
  if (!change_scores_) return;
  if (derivatives != nullptr) derivatives->fill(1.0f);
  place.for_each_head([&](const ScoreTile& part, int column) {
    const auto head = static_cast<std::size_t>(part.batch_head % heads_ - first_head_);
    const bool by_query = part.queries_along == Queries::rows;
    for_each_score_mod(mods_, unit, alibi_slopes_[head], [&](const ScoreMod auto& mod) {
      for (int r = 0; r < part.rows(); ++r) {
        float* const row = scores.row(r) + column;
        float* const slopes = derivatives != nullptr ? derivatives->row(r) + column : nullptr;
        for (int c = 0; c < part.cols(); ++c) {
          const ScorePlace at{part.first_query + (by_query ? r : c), part.first_key + (by_query ? c : r),
                              part.diagonal};
          if (slopes != nullptr) slopes[c] *= mod.derivative(row[c], at);
          row[c] = mod.value(row[c], at);
        }
      }
    });
  });
}

RowStates::RowStates(const TileProgram& program)
    : sinks_(!program.init.empty()),
      rows_(static_cast<std::size_t>(padded(program.tile.block_m))),
      of_heads_(static_cast<std::size_t>(program.query_heads_of_cta())) {}

void RowStates::begin(Cta& cta, const TileCoord& owned, double unit, float one, float* row_max,
                      float* row_sum) {
  std::fill_n(row_max, rows_, kMinusInfinity);
  std::fill_n(row_sum, rows_, 0.0f);
  if (!sinks_) return;
  cta.load_heads(TensorName::sink, owned, of_heads_.data());
  const auto rows_of_head = static_cast<int>(cta.problem().seqlen_q);
  for (int i = 0; i < cta.queries(owned); ++i) {
    const int packed_row = owned.m_block * cta.program().tile.block_m + i;
    const float sink = of_heads_[static_cast<std::size_t>(packed_row / rows_of_head)];
    if (sink == kMinusInfinity) continue;  // no term: no bit of the result depends on it
    row_max[i] = static_cast<float>(sink / unit);
    row_sum[i] = one;
  }
}

float sink_probability(float sink, float lse) { return sink == kMinusInfinity ? 0.0f : std::exp(sink - lse); }

float sink_gradient(float sink, const float* lse, const float* delta, int rows) {
  double sum = 0;
  for (int i = 0; i < rows; ++i) {
    sum -= static_cast<double>(sink_probability(sink, lse[i])) * static_cast<double>(delta[i]);
  }
  return static_cast<float>(sum);
}

}  // namespace tilescope
