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
      mask(&cta.mask()),
      queries_along(along),
      diagonal(static_cast<int>(cta.problem().seqlen_k - cta.problem().seqlen_q)) {}

void ScoreTile::visible_columns(int row, std::vector<Interval>& columns) const {
  const bool by_query = queries_along == Queries::rows;
  by_query ? mask->keys_of(first_query + row, columns) : mask->queries_of(first_key + row, columns);
  const int origin = by_query ? first_key : first_query;
  for (Interval& seen : columns) {
    seen = {std::clamp(seen.begin - origin, 0, cols()), std::clamp(seen.end - origin, 0, cols())};
  }
}

namespace {

void multiply(const ProductSums& how, const LeftOperand& a, const float* b, std::ptrdiff_t b_stride, float* c,
              std::ptrdiff_t c_stride, int rows, int cols, int depth, Accumulate accumulate) {
  if (how.by_tensor_cores) {
    fp8_tile_matmul(how.dtype, a, b, b_stride, c, c_stride, rows, cols, depth, accumulate);
  } else if (how.amx != nullptr) {
    (*how.amx)(a, b, b_stride, c, c_stride, rows, cols, words_of(depth), accumulate);
  } else if (how.of_pairs) {
    bf16_tile_matmul(a, b, b_stride, c, c_stride, rows, cols, words_of(depth), accumulate);
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
    const int row = how.words(part.first_row);
    multiply(how, scores.transposed().from(part.first_col, row), streamed.row(row), streamed.stride,
             sums.row(part.first_col), sums.stride(), part.cols, head_dim, part.rows, Accumulate::yes);
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
  std::vector<Interval> visible;
  place.for_each_head([&](const ScoreTile& part, int column) {
    for (int r = 0; r < part.rows(); ++r) {
      part.visible_columns(r, visible);
      float* const row = scores.row(r) + column;
      int done = 0;
      for (const Interval& seen : visible) {
        std::fill(row + done, row + std::max(done, seen.begin), hidden);
        done = std::max(done, seen.end);
      }
      std::fill(row + done, row + part.cols(), hidden);
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
  std::vector<Interval> visible;
  place.for_each_head([&](const ScoreTile& part, int column) {
    for (int r = 0; r < part.rows(); ++r) {
      part.visible_columns(r, visible);
      for (const Interval& seen : visible) {
        for (int c = seen.begin; c < seen.end; ++c) sum += static_cast<double>(tile.row(r)[column + c]);
      }
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
