// SPDX-License-Identifier: Apache-2.0
// Each token has one owner, each visible pair of tokens one slice.
#include "distributed/schedule/sharding.hpp"

#include <doctest/doctest.h>

#include <map>
#include <set>

namespace tilescope {
namespace {

constexpr Sharding kShardings[] = {Sharding::contiguous, Sharding::zigzag, Sharding::striped};

TEST_CASE("each token belongs to one rank, and a shard's rows ascend") {
  for (const Sharding sharding : kShardings) {
    for (int ranks = 1; ranks <= 6; ++ranks) {
      for (std::int64_t length = 2 * ranks; length < 40; ++length) {
        std::set<std::int64_t> tokens;
        for (const Shard& shard : shard_tokens(sharding, length, ranks)) {
          CHECK(shard.rows() > 0);
          std::int64_t before = -1;
          for (std::int64_t row = 0; row < shard.rows(); ++row) {
            CHECK(shard.token(row) > before);
            before = shard.token(row);
            tokens.insert(before);
            CHECK(shard.part({row, row + 1}).token(0) == before);
          }
        }
        CHECK(static_cast<std::int64_t>(tokens.size()) == length);
        CHECK(*tokens.rbegin() == length - 1);
      }
    }
  }
}

/// Counts of the pairs (query token, key token) that the slices of all pairs of shards see.
std::map<std::pair<std::int64_t, std::int64_t>, int> seen_pairs(const std::vector<Shard>& q,
                                                                const std::vector<Shard>& kv,
                                                                std::optional<std::int64_t> offset,
                                                                std::int64_t& counted) {
  std::map<std::pair<std::int64_t, std::int64_t>, int> seen;
  for (const Shard& queries : q) {
    for (const Shard& keys : kv) {
      for (const Slice& slice : visible_slices(queries, keys, offset)) {
        counted += slice.visible_pairs();
        for (std::int64_t i = 0; i < slice.q_rows.count(); ++i) {
          for (std::int64_t j = 0; j < slice.kv_rows.count(); ++j) {
            if (slice.diagonal && j > i + *slice.diagonal) continue;
            ++seen[{queries.token(slice.q_rows.begin + i), keys.token(slice.kv_rows.begin + j)}];
          }
        }
        // As a problem of its own, bottom-right aligned: no diagonal may lie left of that.
        if (slice.diagonal) CHECK(*slice.diagonal >= slice.kv_rows.count() - slice.q_rows.count());
        if (slice.diagonal) CHECK(*slice.diagonal >= 0);
      }
    }
  }
  return seen;
}

TEST_CASE("slices see each visible pair once and no other") {
  for (const Sharding sharding : kShardings) {
    for (int ranks = 1; ranks <= 4; ++ranks) {
      for (const std::int64_t nq : {8, 13, 21}) {
        for (const std::int64_t nk : {8, 13, 21}) {
          for (const bool causal : {false, true}) {
            CAPTURE(static_cast<int>(sharding));
            CAPTURE(ranks);
            CAPTURE(nq);
            CAPTURE(nk);
            std::optional<std::int64_t> offset;
            if (causal) offset = nk - nq;
            std::int64_t counted = 0;
            const auto seen = seen_pairs(shard_tokens(sharding, nq, ranks), shard_tokens(sharding, nk, ranks),
                                         offset, counted);
            std::int64_t expected = 0;
            for (std::int64_t i = 0; i < nq; ++i) {
              for (std::int64_t j = 0; j < nk; ++j) {
                const bool visible = !causal || j <= i + nk - nq;
                expected += visible;
                const auto found = seen.find({i, j});
                CHECK((found == seen.end() ? 0 : found->second) == (visible ? 1 : 0));
              }
            }
            CHECK(counted == expected);
          }
        }
      }
    }
  }
}

TEST_CASE("an even zigzag is the published one: one launch a step, of equal work") {
  constexpr int kRanks = 4;
  constexpr std::int64_t kChunk = 5;
  const std::vector<Shard> shards = shard_tokens(Sharding::zigzag, 2 * kRanks * kChunk, kRanks);
  for (int r = 0; r < kRanks; ++r) {
    for (int visiting = 0; visiting < kRanks; ++visiting) {
      const auto slices =
          visible_slices(shards[static_cast<std::size_t>(r)], shards[static_cast<std::size_t>(visiting)], 0);
      REQUIRE(slices.size() == 1);
      const IndexRange all{0, 2 * kChunk}, front{0, kChunk}, back{kChunk, 2 * kChunk};
      const Slice expected = visiting == r  ? Slice{all, all, 0}
                             : visiting < r ? Slice{all, front, std::nullopt}
                                            : Slice{back, all, std::nullopt};
      CHECK(slices.front() == expected);
    }
  }
}

}  // namespace
}  // namespace tilescope
