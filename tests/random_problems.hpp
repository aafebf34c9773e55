// SPDX-License-Identifier: Apache-2.0
// Random problems for property tests, with sizes round the tile edges and a seed to print on failure.
#pragma once

#include <random>
#include <vector>

#include "cpu_ref/schedule/problem.hpp"
#include "cpu_ref/schedule/tile_schedule.hpp"

namespace tilescope::testing {

class ProblemGenerator {
 public:
  explicit ProblemGenerator(unsigned seed) : random_(seed) {}

  int between(int low, int high) { return std::uniform_int_distribution<int>(low, high)(random_); }
  bool chance(double probability) { return std::bernoulli_distribution(probability)(random_); }
  TileShape tile(int most = 24) { return {between(1, most), between(1, most)}; }

  /// The same, with sides that `slices` divides.
  TileShape tile_of_slices(int slices, int most = 24) {
    const TileShape part = tile(most);
    return {slices * part.block_m, slices * part.block_n};
  }

  /// A length next to a multiple of the tile's rows: {1, m-1, m, m+1, 2m+3}, or any up to 4m.
  int length(int tile_rows) {
    const int edges[] = {
        1, tile_rows - 1, tile_rows, tile_rows + 1, 2 * tile_rows + 3, between(1, 4 * tile_rows)};
    return std::max(1, edges[between(0, 5)]);
  }

  /// Any mask, head grouping, ragged and unequal lengths.
  AttentionProblem problem(TileShape tile) {
    AttentionProblem p;
    p.batch = between(1, 2);
    p.heads_kv = between(1, 2);
    p.heads = p.heads_kv * between(1, 3);
    p.seqlen_q = length(tile.block_m);
    p.seqlen_k = chance(0.5) ? p.seqlen_q : length(tile.block_n);
    p.head_dim = between(1, 40);
    p.causal = chance(0.4);
    if (chance(0.4)) p.window_left = between(0, static_cast<int>(p.seqlen_k));
    if (chance(0.4)) p.window_right = between(0, static_cast<int>(p.seqlen_k));
    p.seed = static_cast<std::uint64_t>(between(0, 1 << 30));
    return p;
  }
  /// The same with keys and values in fp8 beside wider queries, and descales of heads.
  AttentionProblem with_fp8_keys(AttentionProblem p) {
    p.kv_dtype = ElementType::fp8e4m3;
    if (is_fp8(p.dtype)) p.dtype = ElementType::bf16;
    if (chance(0.5)) p.descales.k = {Descale::From::random};
    if (chance(0.5)) p.descales.v = {Descale::From::random};
    return p;
  }
  /// The same with a mask beside the band. Lengths of queries follow those of keys where it asks for it.
  AttentionProblem masked(AttentionProblem p) {
    const auto keys = static_cast<int>(p.seqlen_k);
    switch (between(0, 5)) {
      case 0:
        p.window_left = between(0, keys);
        p.mask = {MaskKind::sink, {between(1, keys)}};
        break;
      case 1:
        p.causal = p.causal || !p.windowed();
        p.mask = {MaskKind::prefix, {between(1, keys)}};
        break;
      case 2:
        p.seqlen_q = p.seqlen_k;
        p.mask = {MaskKind::documents, parts_of(keys)};
        break;
      case 3:
        p.mask = block_lists(p);
        if (p.visible_pairs() == 0) p.mask = {};
        break;
      case 4:
        p.causal = false;
        p.mask = {MaskKind::block_causal, {between(1, keys)}};
        break;
      default:
        p.seqlen_q = between(1, keys);
        p.causal = false;
        p.window_left = p.window_right = -1;
        p.mask = {MaskKind::tree, {}};
        for (int node = 1; node <= p.seqlen_q; ++node) p.mask.numbers.push_back(between(0, node - 1));
    }
    return p;
  }
  MaskRule block_lists(const AttentionProblem& p) {
    const std::int64_t size = between(1, 20);
    MaskRule rule{MaskKind::blocks, {size}};
    for (std::int64_t row = 0; row * size < p.seqlen_q; ++row) {
      rule.numbers.push_back(kNextRow);
      for (std::int64_t column = 0; column * size < p.seqlen_k; ++column) {
        if (chance(0.4)) rule.numbers.push_back(column);
      }
    }
    return rule;
  }
  /// Numbers whose sum is `whole`, 0 and 1 too.
  std::vector<std::int64_t> parts_of(int whole) {
    std::vector<std::int64_t> parts;
    while (whole > 0) {
      parts.push_back(chance(0.3) ? between(0, 1) : between(1, whole));
      whole -= static_cast<int>(parts.back());
    }
    return parts;
  }
  /// The same with padding: keys of the batch entries end anywhere, of all but one before the first one too.
  AttentionProblem padded(AttentionProblem p) {
    p.batch = between(2, 3);
    for (std::int64_t entry = 0; entry < p.batch; ++entry) {
      p.key_lengths.push_back(between(entry == 0 ? 1 : 0, static_cast<int>(p.seqlen_k)));
    }
    return p;
  }
  /// The same with score modifiers, each in half of the cases.
  AttentionProblem modified(AttentionProblem p) {
    for (const ScoreModRow& row : score_mod_rows()) {
      if (chance(0.5)) row.set(p.score_mods, row.example);
    }
    return p;
  }
  /// The same with values that are some of the keys' columns, or all.
  AttentionProblem with_shared_kv(AttentionProblem p) {
    p.shared_kv = true;
    p.head_dim_v = chance(0.3) ? 0 : between(1, static_cast<int>(p.head_dim));
    return p;
  }
  /// The same with values of other columns than keys.
  AttentionProblem with_value_dim(AttentionProblem p) {
    p.head_dim_v = between(1, 40);
    return p;
  }

 private:
  std::mt19937 random_;
};

}  // namespace tilescope::testing
