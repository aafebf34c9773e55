// SPDX-License-Identifier: Apache-2.0
#include "cpu_ref/schedule/visit_tables.hpp"

#include <algorithm>
#include <limits>
#include <map>
#include <string>

namespace tilescope {
namespace {

constexpr int kBitsAWord = 32;

/// Rows of the owned axis, and of the streamed one, in a tile.
int owned_rows(const TileProgram& program) {
  return program.axis == Axis::q ? program.tile.block_m : program.tile.block_n;
}
int streamed_rows(const TileProgram& program) {
  return program.axis == Axis::q ? program.tile.block_n : program.tile.block_m;
}

/// The part of a mask that the rows of a block see, so that each row looks at few regions.
Mask mask_of_block(const Mask& mask, const TileProgram& program, Interval rows) {
  std::vector<MaskRegion> regions;
  for (const MaskRegion& region : mask.regions()) {
    const Interval& own = program.axis == Axis::q ? region.queries : region.keys;
    if (own.begin < rows.end && rows.begin < own.end) regions.push_back(region);
  }
  return Mask({.seqlen_q = mask.seqlen_q(), .seqlen_k = mask.seqlen_k()}, std::move(regions));
}

/// What each row of a block sees, ascending; nothing beyond the matrix.
std::vector<std::vector<Interval>> seen_of_rows(const Mask& whole, const TileProgram& program, int block) {
  const bool by_query = program.axis == Axis::q;
  const Interval rows{block * owned_rows(program), (block + 1) * owned_rows(program)};
  const Mask mask = mask_of_block(whole, program, rows);
  std::vector<std::vector<Interval>> seen(static_cast<std::size_t>(rows.end - rows.begin));
  for (int row = rows.begin; row < std::min(rows.end, by_query ? mask.seqlen_q() : mask.seqlen_k()); ++row) {
    std::vector<Interval>& of_row = seen[static_cast<std::size_t>(row - rows.begin)];
    by_query ? mask.keys_of(row, of_row) : mask.queries_of(row, of_row);
  }
  return seen;
}

/// The bits of a tile whose columns begin at `first`, row after row.
std::vector<std::uint32_t> bits_of_tile(const std::vector<std::vector<Interval>>& seen, int first,
                                        int columns) {
  const auto words = static_cast<std::size_t>(columns / kBitsAWord);
  std::vector<std::uint32_t> bits(seen.size() * words);
  for (std::size_t row = 0; row < seen.size(); ++row) {
    for (const Interval& visible : seen[row]) {
      const int end = std::min(columns, visible.end - first);
      for (int column = std::max(0, visible.begin - first); column < end; ++column) {
        bits[row * words + static_cast<std::size_t>(column / kBitsAWord)] |= 1u << (column % kBitsAWord);
      }
    }
  }
  return bits;
}

void require_places(const AttentionProblem& problem, std::size_t count, const std::string& of_what) {
  constexpr int kMost = std::numeric_limits<int>::max();
  if (count <= static_cast<std::size_t>(kMost)) return;
  throw BadInput("problem", describe(problem),
                 "its tables of visited tiles may hold " + std::to_string(kMost) + " " + of_what);
}

}  // namespace

VisitTables visit_tables(const TileProgram& program) {
  const AttentionProblem& problem = program.problem;
  const int columns = streamed_rows(program);
  VisitTables tables;
  std::map<std::vector<std::uint32_t>, int> known;  // equal tiles have their bits once
  const auto place_of = [&](std::vector<std::uint32_t> bits) {
    const auto [found, added] = known.try_emplace(std::move(bits), static_cast<int>(tables.bits.size()));
    if (added) tables.bits.insert(tables.bits.end(), found->first.begin(), found->first.end());
    return found->second;
  };
  const std::int64_t entries = problem.key_lengths.empty() ? 1 : problem.batch;
  for (std::int64_t entry = 0; entry < entries; ++entry) {
    const Mask mask = problem.mask_of(entry);
    for (int block = 0; block < program.num_blocks(); ++block) {
      const TileRuns visited = program.inner_tiles(static_cast<int>(entry), block);
      require_places(problem, tables.tiles.size() + static_cast<std::size_t>(visited.count()), "tiles");
      require_places(problem, tables.bits.size(), "words of bits");
      tables.blocks.push_back({static_cast<int>(tables.tiles.size()), visited.count()});
      const auto seen = seen_of_rows(mask, program, block);
      for (int i = 0; i < visited.count(); ++i) {
        const int tile = visited[i];
        tables.tiles.push_back({tile, visited.full(tile)
                                          ? VisitedTile::kFull
                                          : place_of(bits_of_tile(seen, tile * columns, columns))});
      }
    }
  }
  return tables;
}

WordAccesses visit_words(const TileProgram& program) {
  const std::int64_t bit_sectors =
      std::int64_t{owned_rows(program)} * streamed_rows(program) / (8 * kSectorBytes);
  std::int64_t steps = 0;  // sectors that the steps of all heads ask for
  program.problem.for_each_length([&](std::int64_t entries, std::int64_t entry) {
    for (int block = 0; block < program.num_blocks(); ++block) {
      const TileRuns visited = program.inner_tiles(static_cast<int>(entry), block);
      for (const TileRange& run : visited.runs()) {
        const int partial = run.count() - (run.full_end - run.full_begin);
        steps += entries * (run.count() + program.bit_reads * partial * bit_sectors);
      }
    }
  });
  return {program.num_ctas() + steps * program.q_heads(), 0};
}

}  // namespace tilescope
