// SPDX-License-Identifier: Apache-2.0
#include "cpu_ref/schedule/splits.hpp"

#include <algorithm>
#include <charconv>
#include <limits>
#include <string_view>

#include "common/errors.hpp"

namespace tilescope {
namespace {

constexpr std::string_view kFixed = "fixed:", kAuto = "auto";
constexpr int kSmsOfH200 = 132;  // where nobody says how many there are
constexpr int kMostKeys = 1 << 28;

/// A whole number from 1 on; 0 if `text` is none.
int number_in(std::string_view text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() ? std::max(value, 0) : 0;
}

}  // namespace

std::string to_string(const SplitPolicy& policy) {
  using enum SplitPolicy::Kind;
  switch (policy.kind) {
    case number:
      return std::to_string(policy.value);
    case fixed:
      return std::string(kFixed) + std::to_string(policy.value);
    case automatic:
      return std::string(kAuto) + (policy.value > 0 ? ":" + std::to_string(policy.value) : "");
    case none:
      break;
  }
  return "none";
}

SplitPolicy parse_split_policy(const std::string& field, const std::string& text) {
  using enum SplitPolicy::Kind;
  if (text == "none") return {};
  if (text == kAuto) return {automatic, 0};
  SplitPolicy policy{number, number_in(text)};
  if (text.starts_with(kFixed)) policy = {fixed, number_in(text.substr(kFixed.size()))};
  if (text.starts_with(std::string(kAuto) + ":"))
    policy = {automatic, number_in(text.substr(kAuto.size() + 1))};
  const int most = policy.kind == fixed ? kMostKeys : kMaxSplits;
  if (policy.value >= 1 && policy.value <= most) return policy;
  throw BadInput(field, text,
                 "must be none, a number of splits in 1 ... " + std::to_string(kMaxSplits) +
                     ", fixed:KEYS with the keys of each, or auto");
}

namespace {

constexpr int kFewTiles = 4;  // that are not worth a split

SplitKeys keys_by(const SplitPolicy& policy, const SplitTiles& all, int block_n) {
  using enum SplitPolicy::Kind;
  switch (policy.kind) {
    case none:
      break;
    case number:
      return {policy.value};
    case automatic: {
      const int sms = policy.value > 0 ? policy.value : kSmsOfH200;
      const int tiles = tiles_of_uneven_splits(all, sms);
      if (tiles > 0) return {ceil_div(all.kv_tiles, tiles), tiles};
      return {wave_efficient_splits(all.q_tiles, all.most_visited, sms)};
    }
    case fixed:
      if (policy.value % block_n == 0) {
        const int tiles = policy.value / block_n;
        return {ceil_div(all.kv_tiles, tiles), tiles};
      }
      throw BadInput("splits", to_string(policy),
                     "must be a multiple of the " + std::to_string(block_n) + " keys of a tile");
  }
  return {};
}

}  // namespace

SplitPolicy policy_of(const SplitKeys& keys, int block_n) {
  using enum SplitPolicy::Kind;
  if (keys.tiles > 0) return {fixed, keys.tiles * block_n};
  return keys.count > 1 ? SplitPolicy{number, keys.count} : SplitPolicy{};
}

SplitKeys split_keys(const SplitPolicy& policy, const SplitTiles& tiles, int block_n) {
  const SplitKeys keys = keys_by(policy, tiles, block_n);
  if (keys.count > kMaxSplits || tiles.q_tiles * keys.count > std::numeric_limits<int>::max()) {
    throw BadInput("splits", to_string(policy),
                   "must leave at most " + std::to_string(kMaxSplits) +
                       " splits, and 2147483647 CTAs: it makes " + std::to_string(keys.count) + " of " +
                       std::to_string(tiles.q_tiles) + " q tiles");
  }
  return keys;
}

int tiles_of_uneven_splits(const SplitTiles& tiles, int sms) {
  if (tiles.visited == 0 || 2 * tiles.most_visited * tiles.q_tiles <= 3 * tiles.visited) return 0;
  const std::int64_t share = std::max<std::int64_t>(kFewTiles, (tiles.visited + sms - 1) / sms);
  return share < tiles.most_visited ? static_cast<int>(share) : 0;
}

int wave_efficient_splits(std::int64_t q_tiles, int visited_tiles, int sms) {
  constexpr double kBusyEnough = 0.8, kNearBest = 0.85;
  if (static_cast<double>(q_tiles) >= kBusyEnough * sms || visited_tiles <= kFewTiles) return 1;
  const auto efficiency = [&](int splits) {
    const int share = ceil_div(visited_tiles, splits);
    if (ceil_div(visited_tiles, share) < splits) return 0.0;  // equal shares leave the last ones nothing
    const std::int64_t ctas = q_tiles * splits, waves = (ctas + sms - 1) / sms;
    return static_cast<double>(ctas) / static_cast<double>(waves * sms);
  };
  const int most = std::min({sms, visited_tiles, kMaxSplits});
  double best = 0;
  for (int splits = 1; splits <= most; ++splits) best = std::max(best, efficiency(splits));
  int splits = 1;
  while (efficiency(splits) < kNearBest * best) ++splits;
  return splits;
}

}  // namespace tilescope
