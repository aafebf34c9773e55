// SPDX-License-Identifier: Apache-2.0
#include "distributed/schedule/sharding.hpp"

#include <algorithm>

namespace tilescope {
namespace {

std::int64_t floor_div(std::int64_t a, std::int64_t b) { return a >= 0 ? a / b : -((-a + b - 1) / b); }

/// The visible part of one pair of segments, which start at rows q_begin and kv_begin of their shards.
std::optional<Slice> band_of(const Segment& q, std::int64_t q_begin, const Segment& kv, std::int64_t kv_begin,
                             std::optional<std::int64_t> offset) {
  Slice slice{{q_begin, q_begin + q.count}, {kv_begin, kv_begin + kv.count}, std::nullopt};
  if (!offset) return slice;
  const std::int64_t diagonal = floor_div(q.first - kv.first + *offset, q.stride);
  const std::int64_t blind = std::max<std::int64_t>(0, -diagonal);  // queries before the first visible key
  if (blind >= q.count) return std::nullopt;
  slice.q_rows.begin += blind;
  slice.kv_rows.end = kv_begin + std::min(kv.count, q.count + diagonal);
  if (diagonal + blind < slice.kv_rows.count() - 1) slice.diagonal = diagonal + blind;
  return slice;
}

/// Appends `next`, of the same queries, to the slice before it where that ends at its keys and hides none.
void append_keys(std::vector<Slice>& slices, const Slice& next) {
  if (slices.empty() || slices.back().diagonal || slices.back().q_rows != next.q_rows ||
      slices.back().kv_rows.end != next.kv_rows.begin) {
    slices.push_back(next);
    return;
  }
  Slice& before = slices.back();
  if (next.diagonal) before.diagonal = *next.diagonal + before.kv_rows.count();
  before.kv_rows.end = next.kv_rows.end;
}

/// Makes one slice of two whose queries follow each other, where their union is a band.
bool append_queries(Slice& before, const Slice& next) {
  if (before.q_rows.end != next.q_rows.begin || before.kv_rows.begin != next.kv_rows.begin) return false;
  const bool same_keys = before.kv_rows == next.kv_rows;
  if (before.diagonal.has_value() != next.diagonal.has_value()) return false;
  if (!before.diagonal && !same_keys) return false;
  if (before.diagonal) {
    if (*before.diagonal != *next.diagonal - before.q_rows.count()) return false;
    const bool unclamped = before.kv_rows.count() == before.q_rows.count() + *before.diagonal;
    if (!unclamped && !same_keys) return false;
  }
  before.q_rows.end = next.q_rows.end;
  before.kv_rows.end = next.kv_rows.end;
  return true;
}

}  // namespace

std::int64_t Shard::rows() const {
  std::int64_t rows = 0;
  for (const Segment& segment : segments) rows += segment.count;
  return rows;
}

std::int64_t Shard::token(std::int64_t row) const {
  std::size_t at = 0;
  for (; row >= segments[at].count; ++at) row -= segments[at].count;
  return segments[at].token(row);
}

Shard Shard::part(IndexRange range) const {
  Shard part;
  std::int64_t begin = 0;
  for (const Segment& segment : segments) {
    const std::int64_t from = std::max(range.begin, begin), to = std::min(range.end, begin + segment.count);
    if (from < to) part.segments.push_back({segment.token(from - begin), to - from, segment.stride});
    begin += segment.count;
  }
  return part;
}

IndexRange near_equal_part(std::int64_t length, int parts, int index) {
  const std::int64_t each = length / parts, longer = length % parts;
  const std::int64_t begin = index * each + std::min<std::int64_t>(index, longer);
  return {begin, begin + each + (index < longer ? 1 : 0)};
}

std::vector<Shard> shard_tokens(Sharding sharding, std::int64_t length, int ranks) {
  const auto chunk = [length](int parts, int index) {
    const IndexRange range = near_equal_part(length, parts, index);
    return Segment{range.begin, range.count(), 1};
  };
  std::vector<Shard> shards;
  for (int r = 0; r < ranks; ++r) {
    switch (sharding) {
      case Sharding::contiguous:
        shards.push_back({{chunk(ranks, r)}});
        break;
      case Sharding::zigzag:
        shards.push_back({{chunk(2 * ranks, r), chunk(2 * ranks, 2 * ranks - 1 - r)}});
        break;
      case Sharding::striped:
        shards.push_back({{{r, (length - r + ranks - 1) / ranks, ranks}}});
        break;
    }
  }
  return shards;
}

std::int64_t Slice::visible_pairs() const {
  if (!diagonal) return q_rows.count() * kv_rows.count();
  // Row i sees i + diagonal + 1 keys, until it sees all of them.
  const std::int64_t first = *diagonal + 1, all = kv_rows.count();
  const std::int64_t rising = std::clamp<std::int64_t>(all - first, 0, q_rows.count());
  return rising * first + rising * (rising - 1) / 2 + (q_rows.count() - rising) * all;
}

std::vector<Slice> visible_slices(const Shard& q, const Shard& kv, std::optional<std::int64_t> offset) {
  std::vector<Slice> slices;
  std::int64_t q_begin = 0;
  for (const Segment& queries : q.segments) {
    std::vector<Slice> of_queries;
    std::int64_t kv_begin = 0;
    for (const Segment& keys : kv.segments) {
      if (const auto slice = band_of(queries, q_begin, keys, kv_begin, offset))
        append_keys(of_queries, *slice);
      kv_begin += keys.count;
    }
    q_begin += queries.count;
    const bool one = of_queries.size() == 1 && !slices.empty();
    if (one && append_queries(slices.back(), of_queries.front())) continue;
    slices.insert(slices.end(), of_queries.begin(), of_queries.end());
  }
  return slices;
}

}  // namespace tilescope
