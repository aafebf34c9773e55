// SPDX-License-Identifier: Apache-2.0
// What a mask and dropout do to one tile of the score matrix, in either orientation.
#pragma once

#include <algorithm>
#include <vector>

#include "cpu_ref/launch/cta.hpp"
#include "cpu_ref/numeric/dropout_factors.hpp"
#include "cpu_ref/primitives/amx_matmul.hpp"
#include "cpu_ref/primitives/bf16_matmul.hpp"
#include "cpu_ref/primitives/fp8_matmul.hpp"
#include "cpu_ref/primitives/tile.hpp"

namespace tilescope {

/// Where a score tile lies in its matrix, and which way round it is kept. A CTA keeps the axis it owns across
/// the columns, so that the tiles it streams serve every product as they come.
/// Queries of packed rows count on through the heads of their group, from the first head's first.
struct ScoreTile : ScoreRegion {
  const Mask* mask;  // the CTA's
  Queries queries_along;
  int diagonal;  // seqlen_k - seqlen_q of the problem

  ScoreTile(const Cta& cta, const TileCoord& at, Queries queries_along);
  ScoreTile(const Cta& cta, const TileCoord& at)
      : ScoreTile(cta, at, cta.program().axis == Axis::q ? Queries::columns : Queries::rows) {}
  int rows() const { return queries_along == Queries::rows ? queries : keys; }
  int cols() const { return queries_along == Queries::rows ? keys : queries; }
  /// Replaces `columns` by those that the mask leaves visible in a row, ascending.
  void visible_columns(int row, std::vector<Interval>& columns) const;
  /// Calls visit(part, column) for the rows of each head: the part of this tile that they are, as a tile of
  /// that head, and where its columns begin. One part unless rows are packed, which are columns.
  template <typename Visit>
  void for_each_head(Visit&& visit) const {
    const int seqlen_q = mask->seqlen_q();
    if (first_query + queries <= seqlen_q) return visit(*this, 0);
    for (int column = 0; column < queries;) {
      ScoreTile part = *this;
      part.batch_head += (first_query + column) / seqlen_q;
      part.first_query = (first_query + column) % seqlen_q;
      part.queries = std::min(queries - column, seqlen_q - part.first_query);
      visit(part, column);
      column += part.queries;
    }
  }
};

/// How products are summed: in fp32, or, of an fp8 type, as Hopper's tensor cores do. What is multiplied may
/// be words of bf16 numbers (bf16_matmul.hpp), two along the depth.
struct ProductSums {
  ElementType dtype = ElementType::fp32;
  bool by_tensor_cores = false;
  bool of_pairs = false;
  AmxMatmul* amx = nullptr;  // which multiplies pairs, where there is one

  ProductSums() = default;
  explicit ProductSums(const TileProgram& program, bool of_pairs = false)
      : dtype(program.problem.dtype),
        by_tensor_cores(program.fp8_sums != Fp8Sums::fp32),
        of_pairs(of_pairs) {}
  /// Rows of a tile for so many numbers of the depth.
  int words(int depth) const { return of_pairs ? words_of(depth) : depth; }
};

/// The parts of a score tile: scores = streamed * owned^T.
void multiply_scores(const TileParts& parts, const TileView& streamed, const TileView& owned_transposed,
                     Tile& scores, int head_dim, const ProductSums& how = {});
/// sums (rows of the owned tile) += scores^T * streamed, over the parts.
void add_to_owned(const TileParts& parts, const Tile& scores, const TileView& streamed, Tile& sums,
                  int head_dim, const ProductSums& how = {});
/// The rows of the streamed tile that are in parts: sums = scores * owned, over the parts.
void multiply_by_owned(const TileParts& parts, const Tile& scores, const TileView& owned, Tile& sums,
                       int head_dim);

/// Puts -inf where the mask hides an entry.
void apply_mask(const ScoreTile& place, Tile& scores);

/// The dropout factors of a tile: keep_scale where an entry is kept, 0 where it is dropped.
void dropout_factors(const ScoreTile& place, const DropoutMask& dropout, Tile& factors);

/// Sum over the visible entries, for observers.
double visible_sum(const ScoreTile& place, const Tile& tile);
/// Sum of rows x cols entries, for observers.
double tile_sum(const TileView& tile, int rows, int cols);

}  // namespace tilescope
