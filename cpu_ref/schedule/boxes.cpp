// SPDX-License-Identifier: Apache-2.0
#include "cpu_ref/schedule/boxes.hpp"

#include <algorithm>

namespace tilescope {
namespace {

/// What sectors hold beside `bytes` from `begin` on.
std::int64_t beside_in_sectors(std::int64_t begin, std::int64_t bytes) {
  return touched_bytes(begin, begin + bytes) - bytes;
}

/// The sum of of(0) ... of(count - 1), where these are of places that lie evenly, multiples of 4 bytes: the
/// ninth begins in a sector as the first.
template <typename Of>
std::int64_t sum_of_even(std::int64_t count, Of of) {
  constexpr std::int64_t kPhases = kSectorBytes / 4;
  std::int64_t sum = 0;
  for (std::int64_t phase = 0; phase < std::min(kPhases, count); ++phase)
    sum += (count - phase + kPhases - 1) / kPhases * of(phase);
  return sum;
}

/// Of pieces that are asked for one by one.
std::int64_t beside_in_pieces(std::int64_t begin, std::int64_t bytes, std::int64_t piece) {
  const std::int64_t whole = bytes / piece;
  return sum_of_even(whole, [&](std::int64_t i) { return beside_in_sectors(begin + i * piece, piece); }) +
         beside_in_sectors(begin + whole * piece, bytes - whole * piece);
}

/// Of numbers that are copied by 16 bytes: where they begin inside a sector, each copy takes one.
std::int64_t beside_copies(std::int64_t begin, std::int64_t bytes) {
  if (begin % kSectorBytes == 0) return beside_in_sectors(0, bytes);
  return rounded_up(bytes, kSectorBytes / 2) * 2 - bytes;
}

/// Of numbers that are loaded by so many bytes, and the last ones, which are fewer, one by one.
std::int64_t beside_runs(std::int64_t bytes, std::int64_t run) {
  constexpr std::int64_t kOne = 4;
  const std::int64_t whole = bytes / run * run;
  return beside_in_sectors(0, whole) + (bytes - whole) / kOne * (kSectorBytes - kOne);
}

/// What crosses beside the rows of one tile. @param begin  of its first row [bytes]
std::int64_t beside_tile(const Boxes& boxes, std::int64_t begin, std::int64_t rows, std::int64_t row_bytes) {
  const std::int64_t bytes = rows * row_bytes, piece = boxes.panel_bytes;
  switch (boxes.asked_by) {
    case AskedBy::copies:
      return beside_copies(begin, bytes);
    case AskedBy::copies_or_pieces:
      return begin % (kSectorBytes / 2) == 0 ? beside_copies(begin, bytes)
                                             : beside_in_pieces(begin, bytes, piece);
    case AskedBy::aligned_copies:
      return beside_copies(0, bytes);
    case AskedBy::aligned_runs:
      return beside_runs(bytes, piece);
    default:
      if (piece >= row_bytes) return beside_in_pieces(begin, bytes, piece);
      return sum_of_even(rows, [&](std::int64_t row) {
        return beside_in_pieces(begin + row * row_bytes, row_bytes, piece);
      });
  }
}

}  // namespace

std::int64_t Boxes::beside_rows(std::int64_t first, std::int64_t rows, std::int64_t tile_rows,
                                std::int64_t row_bytes, bool numbers) const {
  const std::int64_t whole_tiles = rows / tile_rows, last_rows = rows % tile_rows;
  if (asked_by == AskedBy::pieces || (numbers && asked_by != AskedBy::boxes)) {
    const auto of_tile = [&](std::int64_t tile, std::int64_t of_rows) {
      return beside_tile(*this, (first + tile * tile_rows) * row_bytes, of_rows, row_bytes);
    };
    return sum_of_even(whole_tiles, [&](std::int64_t tile) { return of_tile(tile, tile_rows); }) +
           of_tile(whole_tiles, last_rows);
  }
  if (asked_by == AskedBy::padded_rows) return rows * (rounded_up(row_bytes, kSectorBytes) - row_bytes);
  const std::int64_t odd_rows = (first + rows) / 2 - first / 2, whole_panels = row_bytes / panel_bytes;
  std::int64_t zeros = 0;
  if (asked_by == AskedBy::boxes) {
    const std::int64_t box_rows =
        whole_tiles * rounded_up(tile_rows, this->rows) + rounded_up(last_rows, this->rows);
    zeros = box_rows * rounded_up(row_bytes, panel_bytes) - rows * row_bytes;
  }
  if (row_bytes % kSectorBytes == 0) return zeros;
  const std::int64_t of_a_row = asked_by == AskedBy::boxes ? kSectorBytes : kSectorBytes / 2;
  return zeros + rows * of_a_row + odd_rows * whole_panels * kSectorBytes;
}

}  // namespace tilescope
