// SPDX-License-Identifier: Apache-2.0
// What libraries launch around the backward pass with the products: they touch each element once, or a few
// of them twice.
#include <fmt/format.h>

#include <algorithm>

#include "analysis/explain/candidate_parts.hpp"

namespace tilescope {
namespace {

using enum TensorName;

/// Rows of a CTA, and columns that a row of its sums has; where `rows` is 0, those of the tensors.
struct PassTile {
  std::int64_t rows = 0, columns = 0;

  /// As a convention beside tensors of so many rows and columns.
  std::string text(const TensorExtent& sums) const {
    if (rows == 0) return "";
    if (sums.rows % rows == 0 && sums.cols == columns) return fmt::format("{} rows a CTA", rows);
    return fmt::format("sums in whole tiles of {} rows of {} columns", rows, columns);
  }
};

/// What CTAs of `tile` have of a tensor's sums beyond its elements, over all heads.
std::int64_t sums_beyond(const TensorExtent& extent, const PassTile& tile) {
  if (tile.rows == 0) return 0;
  const std::int64_t whole = rounded_up(extent.rows, tile.rows) * (extent.cols > 1 ? tile.columns : 1);
  return extent.batch * extent.heads * (whole - extent.rows * extent.cols) * kSumBytes;
}

/// A grid with a CTA for so many rows.
void set_grid(CandidateProgram& candidate, const TensorExtent& extent, std::int64_t rows) {
  if (rows == 0) return;
  candidate.blocks = (extent.rows + rows - 1) / rows;
  candidate.num_ctas = candidate.blocks * extent.batch * extent.heads;
}

std::string joined(const std::string& first, const std::string& second) {
  return first.empty() || second.empty() ? first + second : first + ", " + second;
}

/// Passes over whole tiles, as in FlashAttention-2 and -3; or of plain tensors.
void add_in_tiles(CandidateCollector& collector, const AttentionProblem& problem, const PassTile& tile) {
  const TensorExtent dq_sums = tensor_extent(problem, dq_accum), deltas = tensor_extent(problem, delta);
  const std::string whole = tile.text(dq_sums);
  const auto add = [&](const std::string& name, const std::string& convention, std::vector<Operand> loads,
                       std::vector<Operand> stores) -> CandidateProgram& {
    CandidateProgram& candidate =
        collector.add(name, joined(convention, whole),
                      {elementwise(problem, Axis::q, std::move(loads), std::move(stores))});
    set_grid(candidate, dq_sums, tile.rows);
    return candidate;
  };
  const std::int64_t more = sums_beyond(dq_sums, tile), more_delta = sums_beyond(deltas, tile);
  add("delta", "", {load(out), load(dout)}, {store(delta)}).bytes.write_bytes += more_delta;
  add("delta", "dQ sums zeroed", {load(out), load(dout)}, {store(delta), store(dq_accum)})
      .bytes.write_bytes += more_delta + more;
  add("convert", "dQ sums to dQ", {load(dq_accum)}, {store(dq)}).bytes.read_bytes += more;
  add("fill", "dQ sums zeroed", {}, {store(dq_accum)}).bytes.write_bytes += more;
}

/// The delta pass of FlashAttention-4: beside delta it stores the lse in another base. Each of a CTA's
/// threads does so for a row, whether the row is its tile's or one of the next tiles'.
void add_flash4_delta(CandidateCollector& collector, const AttentionProblem& problem, const PassTile& tile,
                      std::int64_t threads) {
  const TensorExtent rows = tensor_extent(problem, lse), sums = tensor_extent(problem, dq_accum);
  const std::string again = threads > tile.rows ? fmt::format(", lse by {} rows", threads) : "";
  CandidateProgram& pass =
      collector.add("delta", joined(fmt::format("dQ sums zeroed, lse in base 2{}", again), tile.text(sums)),
                    {elementwise(problem, Axis::q, {load(out), load(dout), load(lse)},
                                 {store(delta), store(lse), store(dq_accum)})});
  set_grid(pass, sums, tile.rows);
  pass.threads = threads;
  const std::int64_t heads = rows.batch * rows.heads, whole = rounded_up(rows.rows, tile.rows);
  const auto touched = [](std::int64_t first, std::int64_t end) {
    return touched_bytes(first * kSumBytes, end * kSumBytes);
  };
  std::int64_t read = 0, asked = 0, written = 0;
  for (std::int64_t first = 0; first < rows.rows; first += tile.rows) {
    constexpr std::int64_t kWarp = 32;
    const std::int64_t end = std::min(rows.rows, first + threads);
    written += heads * (std::min(whole, first + threads) - first) * kSumBytes;
    for (std::int64_t begin = 0; begin < heads * rows.rows; begin += rows.rows) {
      read += touched(begin + first, begin + end);
      for (std::int64_t row = first; row < end; row += kWarp) {
        asked += touched(begin + row, begin + std::min(end, row + kWarp));
      }
    }
  }
  pass.bytes.read_bytes += read - rows.bytes();
  pass.asked_bytes = pass.bytes.read_bytes + asked - read;
  pass.bytes.write_bytes += written - rows.bytes() + sums_beyond(rows, tile) + sums_beyond(sums, tile);
}

/// Converts the sums of a group's dK or dV, in whole tiles.
void add_group_convert(CandidateCollector& collector, const AttentionProblem& problem, const PassTile& tile) {
  const TensorExtent sums = tensor_extent(problem, dk_accum);
  CandidateProgram& convert = collector.add("convert", joined("dK or dV sums to dK or dV", tile.text(sums)),
                                            {elementwise(problem, Axis::kv, {load(dk_accum)}, {store(dk)})});
  set_grid(convert, sums, tile.rows);
  convert.bytes.read_bytes += sums_beyond(sums, tile);
}

/// Reads dK of each query head, and stores that of their group.
std::vector<TileProgram> sum_over_group(const AttentionProblem& problem) {
  AttentionProblem expanded = problem;
  expanded.heads_kv = problem.heads;
  return {elementwise(expanded, Axis::kv, {load(dk)}, {}), elementwise(problem, Axis::kv, {}, {store(dk)})};
}

/// cuDNN's passes give each thread some elements of a row, and a CTA as many whole rows as its threads have:
/// those that are left over do elements of the next CTA's rows.
void add_by_thread(CandidateCollector& collector, const AttentionProblem& problem, bool converts) {
  constexpr std::int64_t kThreads = 128;
  const std::int64_t elements = kThreads * (converts ? 16 : 8);
  const TensorExtent extent = tensor_extent(problem, converts ? dq : dk);
  if (elements < extent.cols) return;
  const std::int64_t rows = elements / extent.cols, ctas = (extent.rows + rows - 1) / rows;
  std::int64_t done = 0;
  for (std::int64_t cta = 0; cta < ctas; ++cta) {
    done += std::min(elements, (extent.rows - cta * rows) * extent.cols);
  }
  const std::int64_t again = (done - extent.rows * extent.cols) * extent.batch * extent.heads;
  std::string convention = converts ? "dQ sums to dQ" : "dK or dV over the query heads of a group";
  convention += fmt::format(", {} rows a CTA", rows);
  if (again > 0) convention += ", and some of the next one's";
  CandidateProgram& pass = converts
                               ? collector.add("convert", convention,
                                               {elementwise(problem, Axis::q, {load(dq_accum)}, {store(dq)})})
                               : collector.add("sum", convention,
                                               {elementwise(problem, Axis::q, {load(q)}, {}),
                                                elementwise(problem, Axis::kv, {}, {store(dk)})});
  set_grid(pass, extent, rows);
  pass.threads = kThreads;
  pass.bytes.write_bytes += again * extent.element_bytes;
  if (converts) {  // 64 bytes a thread, in quarters: each sector is asked for twice
    pass.bytes.read_bytes += again * kSumBytes;
    pass.asked_bytes = 2 * pass.bytes.read_bytes;
  } else {
    pass.bytes.read_bytes += again * extent.element_bytes * problem.group_size();
  }
}

}  // namespace

void add_passes_around_backward(CandidateCollector& collector, const AttentionProblem& problem) {
  constexpr std::int64_t kColumns = 32;
  const std::int64_t columns = rounded_up(problem.head_dim, kColumns);
  add_in_tiles(collector, problem, {});
  for (const std::int64_t rows : {64, 80, 128}) {
    add_in_tiles(collector, problem, {rows, columns});
    for (const std::int64_t threads : {128, 256}) {
      add_flash4_delta(collector, problem, {rows, columns}, threads);
    }
  }
  add_by_thread(collector, problem, true);
  if (problem.group_size() == 1) return;
  for (const int rows : kCandidateBlocks) add_group_convert(collector, problem, {rows, columns});
  add_by_thread(collector, problem, false);
  collector.add("sum", "dK or dV over the query heads of a group", sum_over_group(problem));
}

}  // namespace tilescope
