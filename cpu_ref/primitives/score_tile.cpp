// SPDX-License-Identifier: Apache-2.0
#include "cpu_ref/primitives/score_tile.hpp"

#include <algorithm>
#include <limits>

namespace tilescope {

ScoreTile::ScoreTile(const Cta& cta, const TileCoord& at, Queries along)
    : ScoreRegion{.batch_head =
                      cta.batch() * static_cast<int>(cta.problem().heads) + cta.first_query_head(at),
                  .first_query = at.m_block * cta.program().tile.block_m,
                  .queries = cta.queries(at),
                  .first_key = at.n_block * cta.program().tile.block_n,
                  .keys = cta.keys(at)},
      band(cta.problem().band(cta.batch())),
      queries_along(along),
      diagonal(static_cast<int>(cta.problem().seqlen_k - cta.problem().seqlen_q)) {}

ScoreTile::Columns ScoreTile::visible_columns(int row) const {
  const bool by_query = queries_along == Queries::rows;
  if (!by_query && first_key + row >= band.seqlen_k) return {0, 0};  // padding
  const int first = by_query ? band.first_key(first_query + row) : band.first_query(first_key + row);
  const int last = by_query ? band.last_key(first_query + row) : band.last_query(first_key + row);
  const int origin = by_query ? first_key : first_query;
  const int begin = std::clamp(first - origin, 0, cols());
  return {begin, std::clamp(last + 1 - origin, begin, cols())};
}

namespace {

void multiply(const ProductSums& how, const LeftOperand& a, const float* b, std::ptrdiff_t b_stride, float* c,
              std::ptrdiff_t c_stride, int rows, int cols, int depth, Accumulate accumulate) {
  if (how.by_tensor_cores) {
    fp8_tile_matmul(how.dtype, a, b, b_stride, c, c_stride, rows, cols, depth, accumulate);
  } else {
    tile_matmul(a, b, b_stride, c, c_stride, rows, cols, depth, accumulate);
  }
}

}  // namespace

void multiply_scores(const TileParts& parts, const TileView& streamed, const TileView& owned_transposed,
                     Tile& scores, int head_dim, const ProductSums& how) {
  for (const TilePart& part : parts) {
    const int first = part.first_col / kTileAlign * kTileAlign;  // whole vectors, which end where rows do
    multiply(how, streamed.rows().from(part.first_row), owned_transposed.data + first,
             owned_transposed.stride, scores.row(part.first_row) + first, scores.stride(), part.rows,
             part.first_col + part.cols - first, head_dim, Accumulate::no);
  }
}

void add_to_owned(const TileParts& parts, const Tile& scores, const TileView& streamed, Tile& sums,
                  int head_dim, const ProductSums& how) {
  for (const TilePart& part : parts) {
    multiply(how, scores.transposed().from(part.first_col, part.first_row), streamed.row(part.first_row),
             streamed.stride, sums.row(part.first_col), sums.stride(), part.cols, head_dim, part.rows,
             Accumulate::yes);
  }
}

void multiply_by_owned(const TileParts& parts, const Tile& scores, const TileView& owned, Tile& sums,
                       int head_dim) {
  for (const TilePart& part : parts) {
    tile_matmul(scores.by_rows().from(part.first_row, part.first_col), owned.row(part.first_col),
                owned.stride, sums.row(part.first_row), sums.stride(), part.rows, head_dim, part.cols,
                Accumulate::no);
  }
}

void apply_mask(const ScoreTile& place, Tile& scores) {
  const float hidden = -std::numeric_limits<float>::infinity();
  place.for_each_head([&](const ScoreTile& part, int column) {
    for (int r = 0; r < part.rows(); ++r) {
      const ScoreTile::Columns visible = part.visible_columns(r);
      float* const row = scores.row(r) + column;
      std::fill(row, row + visible.begin, hidden);
      std::fill(row + visible.end, row + part.cols(), hidden);
    }
  });
}

void dropout_factors(const ScoreTile& place, const DropoutMask& dropout, Tile& factors) {
  place.for_each_head([&](const ScoreTile& part, int column) {
    if (part.queries == place.queries) {
      return dropout_factors(dropout, part, part.queries_along, factors.data(), factors.stride());
    }
    Tile own(part.rows(), part.cols());  // the vectors that fill it may end beyond its columns
    dropout_factors(dropout, part, part.queries_along, own.data(), own.stride());
    for (int r = 0; r < part.rows(); ++r) std::copy_n(own.row(r), part.cols(), factors.row(r) + column);
  });
}

double visible_sum(const ScoreTile& place, const Tile& tile) {
  double sum = 0;
  place.for_each_head([&](const ScoreTile& part, int column) {
    for (int r = 0; r < part.rows(); ++r) {
      const ScoreTile::Columns visible = part.visible_columns(r);
      for (int c = visible.begin; c < visible.end; ++c) sum += static_cast<double>(tile.row(r)[column + c]);
    }
  });
  return sum;
}

double tile_sum(const TileView& tile, int rows, int cols) {
  double sum = 0;
  for (int r = 0; r < rows; ++r) {
    for (int c = 0; c < cols; ++c) sum += static_cast<double>(tile.row(r)[c]);
  }
  return sum;
}

}  // namespace tilescope
