// SPDX-License-Identifier: Apache-2.0
// The formulas against the sum over every access of the program, and against the papers' own counts.
#include "analysis/model/counts/closed_form.hpp"

#include <doctest/doctest.h>

#include <map>
#include <set>
#include <tuple>

#include "cpu_ref/judge/mask_allows.hpp"
#include "cpu_ref/schedule/cta_walk.hpp"
#include "tests/analysis/algorithm_choices.hpp"
#include "tests/random_problems.hpp"

namespace tilescope {
namespace {

constexpr int kRandomProblems = 400;

/// The same counts by walking every access.
std::map<TensorName, TensorTraffic> walked_traffic(const TileProgram& program) {
  std::map<TensorName, TensorTraffic> result;
  std::set<std::tuple<TensorName, int, int, int, int>> seen, written;
  for_each_access(program, [&](const TileAccess& access) {
    const std::tuple tile{access.tensor, access.batch, access.head, access.m_block, access.n_block};
    TensorTraffic& traffic = result[access.tensor];
    traffic.tensor = access.tensor;
    const bool first = seen.insert(tile).second;
    if (access.kind == AccessKind::load) {
      traffic.load_bytes += access.bytes;
      traffic.filled_bytes += access.filled_bytes;
    }
    const bool stores =
        access.kind == AccessKind::store || (access.kind == AccessKind::store_then_reduce && first);
    if (stores) traffic.store_bytes += access.bytes + access.filled_bytes;
    if (access.kind != AccessKind::load && !stores) traffic.reduce_bytes += access.bytes;
    if (first && !stores) traffic.compulsory_read_bytes += access.bytes;
    if (access.kind != AccessKind::load && written.insert(tile).second) {
      traffic.compulsory_write_bytes += access.bytes;
    }
  });
  return result;
}

/// Accesses to words, by walking every access.
WordAccesses walked_words(const TileProgram& program) {
  std::int64_t first = 0, later = 0;
  std::set<std::tuple<int, int, int>> begun;
  for_each_access(program, [&](const TileAccess& access) {
    if (access.kind != AccessKind::store_then_reduce) return;
    ++(begun.insert({access.batch, access.head, access.m_block}).second ? first : later);
  });
  return program.word_accesses(first, later);
}

/// Sectors that a row of a box takes: of each panel those that its data touch, and those that its zeros fill.
std::int64_t sectors_of_row(std::int64_t address, std::int64_t row_bytes, int panel_bytes) {
  std::int64_t sectors = 0;
  for (std::int64_t begin = 0; begin < row_bytes; begin += panel_bytes) {
    const std::int64_t data = std::min<std::int64_t>(panel_bytes, row_bytes - begin);
    const std::int64_t from = address + begin, zeros = panel_bytes - data;
    sectors += (from + data - 1) / 32 - from / 32 + 1 + (zeros + 31) / 32;
  }
  return sectors;
}

/// Of a row of a box that is stored.
std::int64_t sectors_stored(std::int64_t address, std::int64_t row_bytes, int panel_bytes) {
  std::int64_t sectors = 0;
  for (std::int64_t begin = 0; begin < row_bytes; begin += panel_bytes) {
    const std::int64_t end = std::min<std::int64_t>(row_bytes, begin + panel_bytes);
    sectors += (address + end - 1) / 32 - (address + begin) / 32 + 1;
  }
  return sectors;
}

/// Different sectors of each 32 bytes of shared memory to which bytes from `address` on are copied by 16.
std::int64_t sectors_copied(std::int64_t address, std::int64_t bytes) {
  std::set<std::pair<std::int64_t, std::int64_t>> sectors;
  for (std::int64_t copy = 0; copy < bytes; copy += 16) sectors.emplace(copy / 32, (address + copy) / 32);
  return static_cast<std::int64_t>(sectors.size());
}

std::int64_t sectors_of_pieces(std::int64_t address, std::int64_t bytes, int piece) {
  std::int64_t sectors = 0;
  for (std::int64_t begin = 0; begin < bytes; begin += piece) {
    const std::int64_t end = std::min<std::int64_t>(bytes, begin + piece);
    sectors += (address + end - 1) / 32 - (address + begin) / 32 + 1;
  }
  return sectors;
}

/// Of rows that are asked for otherwise than by boxes.
std::int64_t sectors_asked(const Boxes& boxes, std::int64_t address, std::int64_t rows,
                           std::int64_t row_bytes) {
  const bool numbers = row_bytes == 4;
  std::int64_t sectors = 0;
  if (boxes.asked_by == AskedBy::aligned_copies) return sectors_copied(0, rows * row_bytes);
  if (boxes.asked_by == AskedBy::aligned_runs) {
    const std::int64_t run = boxes.panel_bytes / 4, whole = rows / run * run;
    return (whole * 4 + 31) / 32 + (rows - whole);
  }
  if (boxes.asked_by == AskedBy::copies && numbers) return sectors_copied(address, rows * row_bytes);
  if (boxes.asked_by == AskedBy::pieces && boxes.panel_bytes >= row_bytes)
    return sectors_of_pieces(address, rows * row_bytes, boxes.panel_bytes);
  for (std::int64_t row = 0; row < rows; ++row, address += row_bytes) {
    sectors += boxes.stored()                      ? sectors_stored(address, row_bytes, boxes.panel_bytes)
               : boxes.asked_by == AskedBy::copies ? sectors_copied(address, row_bytes)
                                                   : sectors_of_pieces(address, row_bytes, boxes.panel_bytes);
  }
  return sectors;
}

/// Of the part of each row of an N x N matrix, where rows begin at sectors.
std::int64_t padding_of_matrix_tile(const TileProgram& program, const TileAccess& access,
                                    const TensorExtent& extent) {
  const TileShape tile = program.access_tile();
  const std::int64_t rows = std::min<std::int64_t>(tile.block_m, extent.rows - access.m_block * tile.block_m),
                     cols = std::min<std::int64_t>(tile.block_n, extent.cols - access.n_block * tile.block_n);
  return rows * ((cols * extent.element_bytes + 31) / 32 * 32 - cols * extent.element_bytes);
}

/// What boxes take of consecutive rows of a head, of which a tile has `tile_rows` at most.
/// @param head_row, rows_of_head  in the tensor; first  of the tile's, in the head
std::int64_t bytes_of_boxes(const Boxes& boxes, std::int64_t head_row, std::int64_t rows_of_head,
                            std::int64_t first, std::int64_t tile_rows, std::int64_t row_bytes) {
  std::int64_t bytes = 0;
  for (std::int64_t box = 0; box < tile_rows && first + box < rows_of_head; box += boxes.rows) {
    for (std::int64_t row = first + box; row < first + box + boxes.rows; ++row) {
      const std::int64_t panels = (row_bytes + boxes.panel_bytes - 1) / boxes.panel_bytes;
      bytes += row < rows_of_head
                   ? 32 * sectors_of_row((head_row + row) * row_bytes, row_bytes, boxes.panel_bytes)
                   : panels * boxes.panel_bytes;
    }
  }
  return bytes;
}

/// What crosses beside the bytes of an access, row by row.
std::int64_t filled_by_rows(const TileProgram& program, const TileAccess& access) {
  std::int64_t bytes = 0;
  for (const Boxes& boxes : program.boxes) {
    const bool asked =
        access.kind == AccessKind::store ? boxes.stored() : access.kind == AccessKind::load && boxes.loaded();
    if (boxes.tensor != access.tensor || !asked) continue;
    const TensorExtent extent = program.extent(access.tensor);
    if (boxes.asked_by == AskedBy::padded_rows) {
      bytes += padding_of_matrix_tile(program, access, extent);
      continue;
    }
    const bool by_m = extent.indexing == TileIndexing::m;
    const TileShape tile = program.access_tile();
    const std::int64_t heads = by_m ? program.interleaved_heads() : 1, rows_of_head = extent.rows / heads;
    const std::int64_t tile_rows = (by_m ? tile.block_m : tile.block_n) / heads,
                       row_bytes = extent.cols * extent.element_bytes;
    const std::int64_t split = are_partial(access.tensor) ? access.n_block : 0,
                       head = (split * program.problem.batch + access.batch) * extent.heads + access.head;
    const std::int64_t first = (by_m ? access.m_block : access.n_block) * tile_rows;
    const std::int64_t rows = std::clamp<std::int64_t>(rows_of_head - first, 0, tile_rows);
    for (std::int64_t i = 0; i < heads; ++i) {
      const std::int64_t head_row = head * extent.rows + i * rows_of_head;
      bytes += boxes.asked_by == AskedBy::boxes
                   ? bytes_of_boxes(boxes, head_row, rows_of_head, first, tile_rows, row_bytes)
               : rows > 0 ? 32 * sectors_asked(boxes, (head_row + first) * row_bytes, rows, row_bytes)
                          : 0;
    }
    bytes -= access.bytes;
  }
  return bytes;
}

/// Entries of the parts of tiles that hold a visible one, looked at one by one.
std::int64_t computed_entries(const TileProgram& program) {
  const AttentionProblem& p = program.problem;
  const TileShape part = part_of(program.tile, program.diagonal_slices);
  std::int64_t parts = 0;
  for (std::int64_t batch = 0; batch < p.batch; ++batch) {
    for (int m = 0; m * part.block_m < p.seqlen_q; ++m) {
      for (int n = 0; n * part.block_n < p.seqlen_k; ++n) {
        bool visible = program.dense;
        for (int i = m * part.block_m; i < std::min<std::int64_t>((m + 1) * part.block_m, p.seqlen_q); ++i) {
          for (int j = n * part.block_n; j < std::min<std::int64_t>((n + 1) * part.block_n, p.seqlen_k);
               ++j) {
            visible = visible || mask_allows(p, batch * p.heads, i, j);
          }
        }
        parts += visible;
      }
    }
  }
  return program.phases.empty() ? 0 : parts * part.block_m * part.block_n * p.heads;
}

/// The formulas of each tensor, and of all, against the sums over the accesses.
void check_against_walk(const TileProgram& program) {
  for_each_access(program, [&](const TileAccess& access) {
    CHECK(access.filled_bytes == filled_by_rows(program, access));
  });
  const std::map<TensorName, TensorTraffic> walked = walked_traffic(program);
  const std::vector<TensorTraffic> formula = tensor_traffic(program);
  ClosedFormBytes sum;
  REQUIRE(formula.size() == walked.size());
  for (const TensorTraffic& tensor : formula) {
    CAPTURE(to_string(tensor.tensor));
    const TensorTraffic& expected = walked.at(tensor.tensor);
    CHECK(tensor.load_bytes == expected.load_bytes);
    CHECK(tensor.filled_bytes == expected.filled_bytes);
    CHECK(tensor.store_bytes == expected.store_bytes);
    CHECK(tensor.reduce_bytes == expected.reduce_bytes);
    CHECK(tensor.compulsory_read_bytes == expected.compulsory_read_bytes);
    CHECK(tensor.compulsory_write_bytes == expected.compulsory_write_bytes);
    sum.sm_l2_read_bytes += expected.load_bytes + expected.filled_bytes;
    sum.sm_l2_write_bytes += expected.store_bytes + expected.reduce_bytes;
    sum.compulsory_read_bytes += expected.compulsory_read_bytes;
    sum.compulsory_write_bytes += expected.compulsory_write_bytes;
  }
  const WordAccesses words = walked_words(program);
  sum.word_read_bytes = words.asked_bytes();
  sum.word_write_bytes = words.told_bytes();
  sum.sm_l2_read_bytes += sum.word_read_bytes;
  sum.sm_l2_write_bytes += sum.word_write_bytes;
  CHECK(closed_form_bytes(program) == sum);
}

TEST_CASE("the closed form is the sum over the program's accesses, tensor by tensor") {
  for (unsigned seed = 0; seed < kRandomProblems; ++seed) {
    testing::ProblemGenerator random(seed);
    const int slices = 1 + static_cast<int>(seed) % 4;
    const TileShape tile = random.tile_of_slices(slices, 16 / slices);
    AttentionProblem p = random.problem(tile);
    p.dtype = kElementTypes[random.between(0, 4)];
    ProgramOptions options = ProgramOptions::with_tile(tile);
    options.diagonal_slices = slices;
    options[PassName::softmax].row_reads = random.between(1, 3);
    options[PassName::dscores].row_reads = random.between(1, 2);
    const bool by_boxes = seed % 3 == 1;
    if (slices == 1) p = random.masked(p);
    if (seed % 3 == 0) p = random.padded(p);
    if (by_boxes) p.head_dim = random.between(1, 16) * 16 / (is_fp8(p.dtype) || random.chance(0.5) ? 1 : 2);
    if (seed % 8 < 4) options.dq_start = seed % 8 < 2 ? DqStart::claimed : DqStart::in_order;
    options.dq_flags = 1 + static_cast<int>(seed) % 2;
    options.set_query_splits(seed % 5 < 2 ? 1 : random.between(2, 9));
    if (seed % 2 == 0) p = random.modified(p);
    if (seed % 4 == 3 && !by_boxes) p = random.with_value_dim(p);  // rows of boxes are multiples of 16 bytes
    for (const testing::AlgorithmChoice& choice : testing::kAlgorithmChoices) {
      for (TileProgram& program : testing::programs_of(choice, p, options)) {
        if (by_boxes) testing::draw_boxes(program, random);
        CAPTURE(seed);
        CAPTURE(describe(p));
        CAPTURE(tile.block_m);
        CAPTURE(tile.block_n);
        CAPTURE(to_string(choice.algorithm));
        CAPTURE(to_string(choice.direction));
        CAPTURE(to_string(program.name));
        check_against_walk(program);
        CHECK(executed_flops(program) == 2 * p.depth_of(program.products) * computed_entries(program));
      }
    }
  }
}

TEST_CASE("the same of split keys and packed heads, which compute what whole ones do") {
  for (unsigned seed = 0; seed < kRandomProblems; ++seed) {
    testing::ProblemGenerator random(seed);
    const TileShape tile = random.tile(16);
    AttentionProblem p = random.problem(tile);
    p.dtype = kElementTypes[random.between(0, 4)];
    if (seed % 2 == 0) p = random.masked(p);
    if (seed % 3 == 0) p = random.padded(p);
    ProgramOptions options = ProgramOptions::with_tile(tile);
    testing::draw_splits(options, tile, random);
    if (seed % 2 == 0) p = random.modified(p);
    if (seed % 4 == 3) p = random.with_value_dim(p);
    if (seed % 4 == 1) p = random.with_fp8_keys(p);
    if (seed % 4 == 2) p = random.with_shared_kv(p);
    const bool by_boxes = seed % 3 == 1 && seed % 2 == 0 && p.head_dim_v == 0;
    if (by_boxes) p.head_dim = random.between(1, 8) * 16;  // rows of boxes are multiples of 16 bytes
    options.interleaves_heads = tile.block_m % p.group_size() == 0 && random.chance(0.5);
    CAPTURE(seed);
    CAPTURE(describe(p));
    CAPTURE(to_string(options.splits));
    CAPTURE(options.pack_gqa);
    CAPTURE(options.interleaves_heads);
    const auto forward = [&] { return build_programs(Algorithm::flash2, Direction::forward, p, options); };
    const std::vector<TileProgram> split = forward();
    for (TileProgram program : split) {
      CAPTURE(to_string(program.name));
      if (by_boxes) testing::draw_boxes(program, random);
      check_against_walk(program);
    }
    CHECK(useful_flops(split.front()) == useful_flops(p, Direction::forward));
    options.splits = {};
    CHECK(executed_flops(split.front()) == executed_flops(forward().front()));
    if (split.size() == 1) continue;
    // The partial results cross once each way.
    const std::int64_t partials =
        split[0].splits.count * p.batch * p.heads * p.seqlen_q * (p.value_dim() + 1) * 4;
    const ClosedFormBytes combine = closed_form_bytes(split[1]);
    CHECK(closed_form_bytes(split[0]).sm_l2_write_bytes == partials);
    const std::int64_t sinks =
        p.score_mods.learned_sink ? 4 * p.batch * p.heads * split[1].num_blocks() : 0;  // once a CTA and head
    CHECK(combine.sm_l2_read_bytes == partials + sinks);
    CHECK(combine.sm_l2_write_bytes == closed_form_bytes(forward().front()).sm_l2_write_bytes);
  }
}

}  // namespace
}  // namespace tilescope
