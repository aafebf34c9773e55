// SPDX-License-Identifier: Apache-2.0
#include "analysis/model/time/crossing_bytes.hpp"

#include <algorithm>
#include <map>
#include <utility>

#include "analysis/model/machine/machine.hpp"

namespace tilescope {
namespace {

// What an SM lets out at most, where few share the L2's rate, and what an added or a stored byte costs the L2
// where all do, of a byte that is read: until 1 MiB is read for additions 26.5 to 26.9 a clock, for stores
// 33.2 to 33.6; all SMs at once read 35.9 a clock each, add 16.9 and store 21.2.
constexpr double kAddedBytesPerClock = 26.7, kStoredBytesPerClock = 33.3;
constexpr double kAddedCost = 2.12, kStoredCost = 1.69;
// Likewise where threads add pairs of sums, four lanes a row: 16.2 clocks for 256 bytes on one SM, 28.3 on
// all.
constexpr double kPairsPerClock = 15.8, kPairsCost = 3.96;
// Where all SMs read rows of 144 bytes, each its own, a row takes 10.67 clocks and 304 bytes cross for it;
// whole lines cross at 36.15 bytes a clock.
constexpr double kInsideSectorCost = 10.67 * 36.15 / 304;
// Source: the same record, where all SMs read the same lines and where each reads its own.
constexpr double kSharedByTpc = 0.5;
constexpr std::int64_t kLineBytes = SplitL2Shape::kLineBytes;

/// Of the rows of as many full tiles, those that the matrix has.
double present_share(std::int64_t rows, std::int64_t tile_rows) {
  return static_cast<double>(rows) / static_cast<double>(rounded_up(rows, tile_rows));
}

/// Of the bytes of rows that lie one after the other, those in lines that one of them has whole.
double whole_line_share(std::int64_t row_bytes) {
  std::int64_t lines = 0;  // of as many rows as bring each place in a line about
  for (std::int64_t begin = 0; begin < kLineBytes * row_bytes; begin += row_bytes) {
    const std::int64_t first = rounded_up(begin, kLineBytes) / kLineBytes;
    lines += std::max<std::int64_t>(0, (begin + row_bytes) / kLineBytes - first);
  }
  return static_cast<double>(lines) / static_cast<double>(row_bytes);
}

/// Two CTAs of those that run at once go through the same rows, by chance.
double same_stream_share(const TileProgram& program, std::int64_t ctas_at_once) {
  const auto stream_of = [&program](std::int64_t cta) {
    const CtaWork work = program.work(cta);
    std::vector<std::pair<int, int>> heads = {{work.split, 0}};
    for (const std::vector<Operand>& phase : program.phases) {
      for (const Operand& operand : phase) {
        if (operand.kind != AccessKind::load) continue;
        const TileAccess access = program.access(operand, work.batch, work.first_head, 0, 0);
        heads.emplace_back(access.batch, access.head);
      }
    }
    return heads;
  };
  std::map<std::vector<std::pair<int, int>>, double> ctas_of;
  const std::int64_t count = std::min(ctas_at_once, program.num_ctas());
  for (std::int64_t cta = 0; cta < count; ++cta) ctas_of[stream_of(cta)] += 1.0 / static_cast<double>(count);
  double same = 0;
  for (const auto& [stream, share] : ctas_of) same += share * share;
  return same;
}

bool by_boxes(const TileProgram& program) {
  return std::ranges::any_of(program.boxes, [](const Boxes& one) {
    return one.tensor == TensorName::k && one.asked_by == AskedBy::boxes;
  });
}

}  // namespace

double CrossingBytes::clocks_of_pairs(double of_l2) const {
  return std::max(added / kPairsPerClock, kPairsCost * added / of_l2);
}
double CrossingBytes::clocks_out() const {
  return added / kAddedBytesPerClock + stored / kStoredBytesPerClock;
}
double CrossingBytes::in_l2() const { return looked_up * loaded + kAddedCost * added + kStoredCost * stored; }

CrossingBytes& operator+=(CrossingBytes& sum, const CrossingBytes& other) {
  sum.loaded += other.loaded;
  sum.added += other.added;
  sum.stored += other.stored;
  return sum;
}

CrossingBytes bytes_of(const TileProgram& program, const std::vector<Operand>& operands) {
  const double of_queries = present_share(program.q_rows(), program.tile.block_m);
  const double of_keys = present_share(program.problem.seqlen_k, program.tile.block_n);
  CrossingBytes bytes;
  for (const Operand& operand : operands) {
    const bool by_n = program.extent(operand.tensor).cut_by_n();
    const double share = by_n ? of_keys : of_queries;
    const auto of_tile = share * static_cast<double>(program.tile_bytes(operand.tensor));
    if (operand.kind != AccessKind::load) {
      (reduces(operand.kind) ? bytes.added : bytes.stored) += of_tile;
      continue;
    }
    const std::int64_t rows = by_n ? program.tile.block_n : program.tile.block_m;
    bytes.loaded += of_tile + share * static_cast<double>(program.filled_bytes(operand, 0, 0, rows));
  }
  return bytes;
}

double looked_up_share(const TileProgram& program, std::int64_t ctas_at_once) {
  const std::int64_t row_bytes = program.problem.head_dim * element_bytes(program.problem.dtype);
  const double asked_once =
      kSharedByTpc * same_stream_share(program, ctas_at_once) * whole_line_share(row_bytes);
  const bool inside_sector = row_bytes % kSectorBytes != 0 && by_boxes(program);
  return (1 - asked_once) * (inside_sector ? kInsideSectorCost : 1);
}

}  // namespace tilescope
