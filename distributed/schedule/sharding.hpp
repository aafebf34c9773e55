// SPDX-License-Identifier: Apache-2.0
// Which rank owns which tokens, and what of a visiting shard a rank's queries see.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace tilescope {

/// [begin, end) of rows or heads.
struct IndexRange {
  std::int64_t begin = 0, end = 0;
  std::int64_t count() const { return end - begin; }
  bool overlaps(const IndexRange& other) const { return begin < other.end && other.begin < end; }
  bool contains(const IndexRange& other) const { return begin <= other.begin && other.end <= end; }
  bool operator==(const IndexRange&) const = default;
};

/// Tokens first, first + stride, ... of a sequence.
struct Segment {
  std::int64_t first = 0, count = 0, stride = 1;
  std::int64_t token(std::int64_t row) const { return first + row * stride; }
  bool operator==(const Segment&) const = default;
};

/// The tokens of one rank in the order of its rows; segments ascend.
struct Shard {
  std::vector<Segment> segments;
  std::int64_t rows() const;
  std::int64_t token(std::int64_t row) const;
  /// Rows [begin, end) of it.
  Shard part(IndexRange range) const;
  bool operator==(const Shard&) const = default;
};

enum class Sharding : std::uint8_t {
  contiguous,  // rank r owns the r-th of as many chunks as there are ranks
  zigzag,      // ... the r-th and the r-th last of twice as many: equal work under a causal mask
  striped,     // token t belongs to rank t mod ranks (arXiv:2311.09431)
};

/// Part `index` of `parts` near-equal ones of [0, length): the first length mod parts are one longer.
IndexRange near_equal_part(std::int64_t length, int parts, int index);

/// Precondition: length is at least ranks, of zigzag 2 ranks.
std::vector<Shard> shard_tokens(Sharding sharding, std::int64_t length, int ranks);

/// Rows of two shards that meet in one launch. Query row q_rows.begin + i sees key row kv_rows.begin + j
/// where j <= i + diagonal, or all.
struct Slice {
  IndexRange q_rows, kv_rows;
  std::optional<std::int64_t> diagonal;
  std::int64_t visible_pairs() const;
  bool operator==(const Slice&) const = default;
};

/// What the tokens `q` see of the tokens `kv`, in as few slices as there are bands; nothing outside them is
/// visible, each visible pair lies in one. Rows and keys that see nothing at the edges are cropped.
/// @param offset  query token t sees key tokens up to t + offset; none: all
std::vector<Slice> visible_slices(const Shard& q, const Shard& kv, std::optional<std::int64_t> offset);

}  // namespace tilescope
