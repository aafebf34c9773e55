// SPDX-License-Identifier: Apache-2.0
// Tables of visited tiles against the program that they are made of, and against the mask, entry by entry.
#include "cpu_ref/schedule/visit_tables.hpp"

#include <doctest/doctest.h>

#include "tests/random_problems.hpp"

namespace tilescope {
namespace {

constexpr int kRandomTables = 60;

/// The passes of FlashAttention-2 that walk tiles.
std::vector<TileProgram> walking_programs(const AttentionProblem& problem, TileShape tile) {
  std::vector<TileProgram> walking;
  for (const Direction direction : {Direction::forward, Direction::backward}) {
    for (const TileProgram& program :
         build_programs(Algorithm::flash2, direction, problem, ProgramOptions::with_tile(tile))) {
      if (!program.phases.empty()) walking.push_back(program);
    }
  }
  return walking;
}

bool bit_of(const VisitTables& tables, const VisitedTile& tile, int row, int column, int columns) {
  if (tile.bits == VisitedTile::kFull) return true;
  const auto word = static_cast<std::size_t>(tile.bits + row * (columns / 32) + column / 32);
  return (tables.bits.at(word) >> column % 32 & 1) != 0;
}

/// Of the tiles of one block: what is not as the mask has it.
int wrong_entries(const TileProgram& program, const VisitTables& tables, std::int64_t entry, int block,
                  const VisitedTiles& visited) {
  const Mask mask = program.problem.mask_of(entry);
  const bool by_query = program.axis == Axis::q;
  const int rows = by_query ? program.tile.block_m : program.tile.block_n;
  const int columns = by_query ? program.tile.block_n : program.tile.block_m;
  int wrong = 0;
  for (int i = 0; i < visited.count; ++i) {
    const VisitedTile& tile = tables.tiles.at(static_cast<std::size_t>(visited.first + i));
    for (int row = 0; row < rows; ++row) {
      for (int column = 0; column < columns; ++column) {
        const int own = block * rows + row, other = tile.tile * columns + column;
        const int query = by_query ? own : other, key = by_query ? other : own;
        const bool inside = query < mask.seqlen_q() && key < mask.seqlen_k();
        wrong += bit_of(tables, tile, row, column, columns) != (inside && mask.visible(query, key));
      }
    }
  }
  return wrong;
}

TEST_CASE("tables hold the tiles that a program visits, and the bits of what its mask leaves") {
  testing::ProblemGenerator random(20261126);
  for (int i = 0; i < kRandomTables; ++i) {
    const TileShape tile{32 * random.between(1, 2), 32 * random.between(1, 2)};
    AttentionProblem problem = random.masked(random.problem(tile));
    if (random.chance(0.3)) {
      for (int entry = 0; entry < problem.batch; ++entry) {
        problem.key_lengths.push_back(random.between(0, static_cast<int>(problem.seqlen_k)));
      }
    }
    CAPTURE(describe(problem));
    for (const TileProgram& program : walking_programs(problem, tile)) {
      const VisitTables tables = visit_tables(program);
      const std::int64_t entries = problem.key_lengths.empty() ? 1 : problem.batch;
      REQUIRE(static_cast<std::int64_t>(tables.blocks.size()) == entries * program.num_blocks());
      for (std::size_t place = 0; place < tables.blocks.size(); ++place) {
        const auto entry = static_cast<std::int64_t>(place) / program.num_blocks();
        const int block = static_cast<int>(place) % program.num_blocks();
        const TileRuns runs = program.inner_tiles(static_cast<int>(entry), block);
        const VisitedTiles visited = tables.blocks[place];
        REQUIRE(visited.count == runs.count());
        for (int step = 0; step < visited.count; ++step) {
          const VisitedTile& found = tables.tiles.at(static_cast<std::size_t>(visited.first + step));
          CHECK(found.tile == runs[step]);
          CHECK((found.bits == VisitedTile::kFull) == runs.full(found.tile));
        }
        CHECK(wrong_entries(program, tables, entry, block, visited) == 0);
      }
    }
  }
}

TEST_CASE("partial tiles that are alike have their bits once") {
  AttentionProblem problem{.seqlen_q = 640, .seqlen_k = 640, .causal = true};
  const TileProgram forward = walking_programs(problem, {64, 64}).front();
  CHECK(visit_tables(forward).bits.size() == 64 * 64 / 32);
}

TEST_CASE("CTAs ask for a sector each, one a step, and the bits of partial tiles, as a walk counts them") {
  testing::ProblemGenerator random(7);
  for (int i = 0; i < kRandomTables; ++i) {
    const TileShape tile{32 * random.between(1, 2), 32 * random.between(1, 2)};
    const AttentionProblem problem = random.masked(random.problem(tile));
    CAPTURE(describe(problem));
    for (TileProgram& program : walking_programs(problem, tile)) {
      program.bit_reads = random.between(1, 3);
      std::int64_t sectors = 0;
      for (std::int64_t cta = 0; cta < program.num_ctas(); ++cta) {
        const CtaWork work = program.work(cta);
        const TileRuns visited = program.inner_tiles(work, work.first_block);
        std::int64_t of_head = 0;
        for (int step = 0; step < visited.count(); ++step) {
          of_head +=
              1 +
              (visited.full(visited[step]) ? 0 : program.bit_reads * tile.block_m * tile.block_n / 8 / 32);
        }
        sectors += 1 + of_head * (work.end_head - work.first_head);
      }
      CHECK(visit_words(program).asked == sectors);
      CHECK(visit_words(program).told == 0);
    }
  }
}

}  // namespace
}  // namespace tilescope
