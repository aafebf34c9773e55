// SPDX-License-Identifier: Apache-2.0
// The schedule against brute force over every (query, key): the judge of everything that walks tiles.
#include "cpu_ref/schedule/tile_schedule.hpp"

#include <doctest/doctest.h>

#include <set>

#include "cpu_ref/judge/mask_allows.hpp"
#include "tests/random_problems.hpp"

namespace tilescope {
namespace {

constexpr int kScheduledProblems = 400;

/// The mask of a batch entry as its definition states it, without the schedule.
bool sees(const AttentionProblem& p, std::int64_t batch, std::int64_t i, std::int64_t j) {
  return mask_allows(p, batch * p.heads, i, j);
}

struct TileCensus {
  int visible = 0;
  int inside = 0;
};

TileCensus census(const AttentionProblem& p, std::int64_t batch, TileShape tile, int m_block, int n_block) {
  TileCensus result;
  for (std::int64_t i = m_block * tile.block_m;
       i < std::min<std::int64_t>(p.seqlen_q, (m_block + 1) * tile.block_m); ++i) {
    for (std::int64_t j = n_block * tile.block_n;
         j < std::min<std::int64_t>(p.seqlen_k, (n_block + 1) * tile.block_n); ++j) {
      ++result.inside;
      result.visible += sees(p, batch, i, j);
    }
  }
  return result;
}

void check_tiles(const AttentionProblem& p, std::int64_t batch, TileShape tile, const TileRuns& visited,
                 int other_blocks, bool q_axis, int block) {
  int count = 0;
  for (int other = 0; other < other_blocks; ++other) {
    const TileCensus tiles =
        q_axis ? census(p, batch, tile, block, other) : census(p, batch, tile, other, block);
    CHECK(visited.has(other) == (tiles.visible > 0));
    CHECK(visited.full(other) == (tiles.visible == tile.block_m * tile.block_n));
    CHECK(visited.count_before(other) == count);
    if (tiles.visible > 0) CHECK(visited[count++] == other);
  }
  CHECK(visited.count() == count);
}

TEST_CASE("a tile is visited exactly when it holds a visible entry, and full exactly when all are") {
  for (unsigned seed = 0; seed < kScheduledProblems; ++seed) {
    testing::ProblemGenerator random(seed);
    const TileShape tile = random.tile(12);
    AttentionProblem p = random.problem(tile);
    if (seed % 2 == 0) p = random.masked(p);
    if (seed % 3 == 0) p = random.padded(p);
    CAPTURE(seed);
    CAPTURE(describe(p));
    CAPTURE(tile.block_m);
    CAPTURE(tile.block_n);
    const int m_blocks = num_m_blocks(p.band(), tile), n_blocks = num_n_blocks(p.band(), tile);
    std::int64_t pairs = 0;
    for (std::int64_t batch = 0; batch < p.batch; ++batch) {
      CAPTURE(batch);
      const VisibleBand band = p.band(batch);
      const Mask mask = p.mask_of(batch);
      for (int m = 0; m < m_blocks; ++m) {
        if (!p.mask.any()) check_tiles(p, batch, tile, kv_tiles(band, tile, m), n_blocks, true, m);
        check_tiles(p, batch, tile, mask.kv_tiles(tile, m), n_blocks, true, m);
      }
      for (int n = 0; n < n_blocks; ++n) {
        if (!p.mask.any()) check_tiles(p, batch, tile, q_tiles<true>(band, tile, n), m_blocks, false, n);
        check_tiles(p, batch, tile, mask.q_tiles(tile, n), m_blocks, false, n);
      }
      for (int i = 0; i < p.seqlen_q; ++i) {
        for (int j = 0; j < p.seqlen_k; ++j) {
          if (!p.mask.any()) REQUIRE(band.visible(i, j) == sees(p, batch, i, j));
          REQUIRE(mask.visible(i, j) == sees(p, batch, i, j));
          pairs += sees(p, batch, i, j);
        }
      }
    }
    CHECK(p.visible_pairs() == pairs * p.heads);
  }
}

TEST_CASE("packed rows visit what some query of theirs sees, and full is what all of them see") {
  for (unsigned seed = 0; seed < kScheduledProblems; ++seed) {
    testing::ProblemGenerator random(seed);
    const TileShape tile = random.tile(12);
    const AttentionProblem p = random.masked(random.problem(tile));
    const Mask mask = p.mask_of(0);
    const auto seqlen = static_cast<int>(p.seqlen_q), rows = seqlen * static_cast<int>(p.group_size());
    CAPTURE(seed);
    CAPTURE(describe(p));
    for (int m = 0; m < ceil_div(rows, tile.block_m); ++m) {
      const int first = m * tile.block_m, end = std::min(rows, first + tile.block_m);
      const bool one_head = first / seqlen == (end - 1) / seqlen;
      const int first_query = one_head ? first % seqlen : 0;
      const int end_query = one_head ? (end - 1) % seqlen + 1 : seqlen;
      const TileRuns visited = mask.packed_kv_tiles(tile, rows, m);
      for (int n = 0; n < num_n_blocks(p.band(), tile); ++n) {
        bool any = false, all = (n + 1) * tile.block_n <= p.seqlen_k && first + tile.block_m <= rows;
        for (int i = first_query; i < end_query; ++i) {
          for (int j = n * tile.block_n; j < std::min<int>(mask.seqlen_k(), (n + 1) * tile.block_n); ++j) {
            (sees(p, 0, i, j) ? any : all) = sees(p, 0, i, j);
          }
        }
        CHECK(visited.has(n) == any);
        CHECK(visited.full(n) == all);
      }
    }
  }
}

TEST_CASE("a part of a tile is computed exactly when it holds a visible entry, seen from either axis") {
  const auto has = [](const Interval& interval, int first) {
    return interval.begin <= first && first < interval.end;
  };
  for (unsigned seed = 0; seed < kScheduledProblems; ++seed) {
    testing::ProblemGenerator random(seed);
    const int slices = random.between(1, 4);
    const TileShape tile = random.tile_of_slices(slices, 4), part = part_of(tile, slices);
    AttentionProblem p = random.problem(tile);
    if (seed % 3 == 0) p = random.padded(p);
    CAPTURE(seed);
    CAPTURE(describe(p));
    // Parts of a ragged last tile may lie beyond the matrix.
    const int m_parts = slices * num_m_blocks(p.band(), tile),
              n_parts = slices * num_n_blocks(p.band(), tile);
    for (std::int64_t batch = 0; batch < p.batch; ++batch) {
      for (int m = 0; m < m_parts; ++m) {
        for (int n = 0; n < n_parts; ++n) {
          const bool visible = census(p, batch, part, m, n).visible > 0;
          REQUIRE(has(computed_keys(p.band(batch), part, m), n * part.block_n) == visible);
          REQUIRE(has(computed_queries(p.band(batch), part, n), m * part.block_m) == visible);
        }
      }
    }
  }
}

TEST_CASE("every order issues every CTA once") {
  for (TileOrder order : {TileOrder::row_major, TileOrder::longest_first, TileOrder::head_swizzled}) {
    for (int section : {1, 2, 3, 5, 8}) {
      for (bool last_block_first : {false, true}) {
        const Grid grid{7, 5, section, order, last_block_first};
        std::set<std::pair<int, int>> seen;
        for (std::int64_t i = 0; i < grid.size(); ++i) {
          const WorkItem item = grid.item(i);
          CHECK((item.head >= 0 && item.head < 5 && item.block >= 0 && item.block < 7));
          seen.insert({item.head, item.block});
        }
        CHECK(seen.size() == 35u);
      }
    }
  }
}

TEST_CASE("every scan visits each inner tile once") {
  const TileRange range{3, 9, 4, 8};
  for (Scan scan : {Scan::ascending, Scan::descending, Scan::sawtooth}) {
    for (int block : {0, 1}) {
      std::set<int> seen;
      for (int step = 0; step < range.count(); ++step) seen.insert(scan_tile(scan, range, block, step));
      CHECK(seen == std::set<int>{3, 4, 5, 6, 7, 8});
    }
  }
}

// The schedule is usable at compile time, where kernels choose code paths by it.
static_assert(kv_tiles(VisibleBand{128, 128, kUnbounded, 0}, TileShape{64, 32}, 1) == TileRange{0, 4, 0, 2});
static_assert(q_tiles(VisibleBand{128, 128, kUnbounded, 0}, TileShape{64, 32}, 2) == TileRange{1, 2, 1, 1});
static_assert(kv_tiles(VisibleBand{4, 2, kUnbounded, 0}, TileShape{2, 2}, 0).empty());

}  // namespace
}  // namespace tilescope
