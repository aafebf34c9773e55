// SPDX-License-Identifier: Apache-2.0
// Cases of what stands beside plain attention.
#include <array>

#include "cpu_ref/judge/case_list.hpp"
#include "cpu_ref/schedule/masks/mask_models.hpp"

namespace tilescope {
namespace {

/// Values with more, and with fewer columns than keys.
void add_value_dims(CaseList& list, TileShape tile) {
  int turn = 0;
  for (const auto& [head_dim, head_dim_v] : {std::pair{24, 16}, {16, 40}, {192, 128}, {1, 3}}) {
    for (const MaskSides& mask : masks_for(tile)) {
      VerifyCase c = list.several_tiles();
      c.problem.heads = 4;
      c.problem.head_dim = head_dim;
      c.problem.head_dim_v = head_dim_v;
      c.problem.dtype = kElementTypes[turn % 5];
      if (turn % 3 == 2) c.splits = {SplitPolicy::Kind::number, 2};
      c.pack_gqa = turn % 4 == 3;
      if (turn % 7 == 6) c.problem.dropout = 0.25;
      list.add(c, mask);
      ++turn;
    }
  }
}

/// Split keys and packed heads: few queries and several tiles of them, shares that masks and padding leave
/// empty.
void add_splits(CaseList& list, TileShape tile) {
  using enum SplitPolicy::Kind;
  int turn = 0;
  for (const bool pack_gqa : {true, false}) {
    for (const SplitPolicy& splits : {SplitPolicy{number, 2}, {fixed, 2 * tile.block_n}, {number, 7}, {}}) {
      if (!pack_gqa && splits.kind == none) continue;
      for (const MaskSides& mask : masks_for(tile)) {
        VerifyCase c = list.several_tiles();
        c.splits = splits;
        c.pack_gqa = pack_gqa;
        c.problem.heads = 6;
        c.problem.seqlen_q = std::array<std::int64_t, 3>{1, 3, c.problem.seqlen_q}[turn % 3];
        c.problem.seqlen_k = turn % 7 == 6 ? 2 : 5 * tile.block_n + 3;
        c.problem.dtype = kElementTypes[turn % 5];
        if (turn % 4 == 3) c.problem.dropout = 0.25;
        if (turn % 4 == 1) {
          c.problem.batch = 2;
          c.problem.key_lengths = {c.problem.seqlen_k / 2, c.problem.seqlen_k};
        }
        list.add(c, mask, 1);
        ++turn;
      }
    }
  }
}

/// Keys and values in pages: smaller than a tile and larger, that end inside a page and at its end, with
/// batch entries that have none.
void add_pages(CaseList& list, TileShape tile) {
  int turn = 0;
  for (const std::int64_t page_size : {8, 16, 256}) {
    for (const MaskSides& mask : masks_for(tile)) {
      VerifyCase c = list.several_tiles(kGroupings[turn % 3]);
      c.direction = Direction::forward;
      c.problem.page_size = page_size;
      c.problem.seqlen_q = turn % 2 == 0 ? 1 : c.problem.seqlen_q;
      c.problem.seqlen_k += turn % 3 * page_size;
      c.problem.dtype = kElementTypes[turn % 5];
      if (turn % 3 != 0) {
        c.problem.batch = 3;
        c.problem.key_lengths = {c.problem.seqlen_k / 2, 0, c.problem.seqlen_k};
      }
      c.pack_gqa = turn % 4 == 3;
      if (turn % 2 == 1) c.splits = {SplitPolicy::Kind::number, 2};
      list.add(c, mask);
      ++turn;
    }
  }
}

/// Descales of heads, and of tiles: numbers by chance, of the data, and one of each tensor alone.
void add_descales(CaseList& list, TileShape tile) {
  constexpr Descale kRandom{Descale::From::random}, kData{Descale::From::data}, kHalf{.value = 0.5};
  int turn = 0;
  for (const Descales& descales :
       {Descales{kRandom, kRandom, kRandom}, Descales{kData, kData, kData}, Descales{.q = kRandom},
        Descales{.k = kRandom}, Descales{.v = kRandom}, Descales{kHalf, kData, kRandom}}) {
    for (const TileShape block : {tile, TileShape{0, 0}}) {
      VerifyCase c = list.several_tiles();
      c.problem.batch = 2;
      c.problem.heads = 4;
      c.problem.heads_kv = 2;
      c.problem.dtype = kFp8Types[turn % 3 / 2];
      c.problem.descales = descales;
      c.problem.descales.block = block;
      c.scan = turn % 2 == 0 ? Scan::ascending : Scan::descending;
      list.add(c, {.causal = turn % 4 == 1}, 1);
      ++turn;
    }
  }
}

/// Keys and values in fp8 beside wider queries, with descales of heads and without, in rows and in pages,
/// split and packed.
void add_fp8_keys(CaseList& list) {
  constexpr Descale kRandom{Descale::From::random}, kData{Descale::From::data};
  const Descales all[] = {{}, {.k = kRandom, .v = kRandom}, {.k = kRandom}, {.k = kData, .v = kData}};
  constexpr ElementType kTypes[] = {ElementType::bf16, ElementType::fp16, ElementType::fp32};
  for (int turn = 0; turn < 6; ++turn) {
    VerifyCase c = list.several_tiles(kGroupings[turn % 3]);
    c.direction = Direction::forward;
    c.problem.batch = 3;
    c.problem.dtype = kTypes[turn / 2];
    c.problem.kv_dtype = ElementType::fp8e4m3;
    c.problem.descales = all[turn % 4];
    c.problem.seqlen_q = turn % 2 == 0 ? 1 : c.problem.seqlen_q;
    if (turn % 3 == 1) c.problem.key_lengths = {c.problem.seqlen_k / 2, 0, c.problem.seqlen_k};
    c.problem.page_size = turn % 2 == 1 ? 16 : 0;
    c.pack_gqa = turn % 4 >= 2;
    if (turn % 3 != 2) c.splits = {SplitPolicy::Kind::number, 2};
    list.add(c, {.causal = turn % 3 == 0}, 1);
  }
}

/// Values that are columns of the keys, all of them and few: packed, split, in rows and in pages, of few
/// queries and of several tiles.
void add_shared_kv(CaseList& list, SweepSize size) {
  constexpr ElementType kTypes[] = {ElementType::bf16, ElementType::fp16, ElementType::fp32};
  int turn = 0;
  for (const auto& [head_dim, head_dim_v] : {std::pair{576, 512}, {72, 64}, {40, 40}, {576, 512}, {192, 8}}) {
    for (const bool causal : {true, false}) {
      VerifyCase c = list.several_tiles({1 + turn % 2, 6, 1 + turn % 4 / 3});
      c.direction = Direction::forward;
      c.problem.head_dim = head_dim;
      c.problem.head_dim_v = head_dim_v == head_dim ? 0 : head_dim_v;
      c.problem.shared_kv = true;
      c.problem.dtype = kTypes[turn % 5 / 2];
      c.problem.seqlen_q = std::array<std::int64_t, 3>{1, 13, c.problem.seqlen_q}[turn % 3];
      if (turn % 2 == 1) c.problem.key_lengths = {c.problem.seqlen_k, c.problem.seqlen_k / 3};
      c.problem.page_size = std::array<std::int64_t, 4>{0, 16, 64, 0}[turn % 4];
      if (turn % 5 == 4) c.problem.softmax_scale = -0.25;
      c.pack_gqa = turn % 5 != 3;
      if (turn % 3 != 2) c.splits = {SplitPolicy::Kind::number, 2 + turn % 2};
      list.add(c, {.causal = causal});
      if (size == SweepSize::full) {
        c.problem.dtype = kTypes[turn % 2];
        list.add(c, {.causal = causal});
      }
      ++turn;
    }
  }
}

/// Masks beside bands, in every element type, with padding and dropout in turn.
void add_masks(CaseList& list, TileShape tile) {
  int turn = 0;
  for (const MaskModel& model : mask_models()) {
    for (ElementType dtype : kElementTypes) {
      VerifyCase c = list.several_tiles(kGroupings[turn % 3]);
      model.apply_example(c.problem, tile);
      c.problem.dropout = turn % 4 == 2 ? 0.25 : 0.0;
      c.problem.dtype = dtype;
      if (c.problem.batch == 2) c.problem.key_lengths = {c.problem.seqlen_k, c.problem.seqlen_k / 2};
      c.pack_gqa = turn % 4 == 3;
      if (c.pack_gqa) c.splits = {SplitPolicy::Kind::number, 2};
      list.add(c, {c.problem.causal, c.problem.window_left, c.problem.window_right}, 2);
      ++turn;
    }
  }
}

/// Every score modifier by itself and all together, under every mask, in every element type; packed and split
/// where a sink then enters last, and queries that see no key.
void add_score_mods(CaseList& list, TileShape tile, SweepSize size) {
  std::vector<ScoreMods> all_mods(1);
  for (const ScoreModRow& row : score_mod_rows()) {
    row.set(all_mods.front(), row.example);
    row.set(all_mods.emplace_back(), row.example);
  }
  int turn = 0;
  for (const ScoreMods& mods : all_mods) {
    for (const MaskSides& mask : masks_for(tile)) {
      VerifyCase c = list.several_tiles();
      c.problem.score_mods = mods;
      c.problem.batch = 2;
      c.problem.heads = 6;
      c.problem.dtype = kElementTypes[turn % 5];
      if (turn % 3 == 2) c.splits = {SplitPolicy::Kind::number, 2};
      c.pack_gqa = turn % 4 == 3;
      c.diagonal_slices = turn % 6 == 4 ? 2 : 1;
      if (turn % 7 == 1) c.problem.seqlen_q = c.problem.seqlen_k + tile.block_m + 1;
      if (turn % 7 == 2) c.problem.key_lengths = {0, tile.block_n + 2};
      if (turn % 7 == 3) c.problem.dropout = 0.25;
      if (turn % 7 == 4) c.problem.softmax_scale = -0.25;
      list.add(c, mask, &mods == &all_mods.front() ? 1 : 2);
      if (size == SweepSize::full) {
        c.problem.dtype = kElementTypes[(turn + 2) % 5];
        list.add(c, mask);
      }
      ++turn;
    }
  }
}

}  // namespace

void add_feature_cases(CaseList& list, TileShape tile, SweepSize size) {
  add_descales(list, tile);
  add_splits(list, tile);
  add_masks(list, tile);
  add_value_dims(list, tile);
  add_score_mods(list, tile, size);
  add_pages(list, tile);
  add_fp8_keys(list);
  add_shared_kv(list, size);
}

}  // namespace tilescope
