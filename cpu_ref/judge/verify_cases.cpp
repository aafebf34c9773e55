// SPDX-License-Identifier: Apache-2.0
#include "cpu_ref/judge/verify_cases.hpp"

#include <algorithm>
#include <array>

#include "cpu_ref/schedule/masks/mask_models.hpp"

namespace tilescope {
namespace {

struct MaskSides {
  bool causal = false;
  std::int64_t left = -1, right = -1;
};

struct Grouping {
  std::int64_t batch, heads, heads_kv;
};

constexpr Grouping kGroupings[] = {{1, 2, 2}, {2, 4, 2}, {1, 3, 1}};
constexpr ElementType kGradientTypes[] = {ElementType::fp32, ElementType::fp16, ElementType::bf16};
constexpr ElementType kFp8Types[] = {ElementType::fp8e4m3, ElementType::fp8e5m2};

/// Lengths round the edges of a tile, ascending, without repetition.
std::vector<std::int64_t> edge_lengths(std::int64_t tile_rows) {
  std::vector<std::int64_t> lengths = {1, tile_rows - 1, tile_rows, tile_rows + 1, 2 * tile_rows + 3};
  std::erase_if(lengths, [](std::int64_t length) { return length < 1; });
  lengths.erase(std::unique(lengths.begin(), lengths.end()), lengths.end());
  return lengths;
}

/// No mask, causal, windows narrower and wider than a tile, and a window whose edges are those of tiles.
std::array<MaskSides, 5> masks_for(TileShape tile) {
  return {MaskSides{}, MaskSides{.causal = true}, MaskSides{.left = tile.block_n / 2 + 1, .right = 3},
          MaskSides{.causal = true, .left = tile.block_n + 2},
          MaskSides{.left = tile.block_n, .right = tile.block_n}};
}

class CaseList {
 public:
  CaseList(TileShape tile, SweepSize size, std::int64_t head_dim)
      : tile_(tile), size_(size), head_dim_(head_dim) {}

  /// A problem of several ragged tiles a side.
  VerifyCase several_tiles(const Grouping& group = kGroupings[0]) const {
    VerifyCase c;
    c.tile = tile_;
    c.problem = {.batch = group.batch,
                 .heads = group.heads,
                 .heads_kv = group.heads_kv,
                 .seqlen_q = 2 * tile_.block_m + 3,
                 .seqlen_k = 2 * tile_.block_n + 5,
                 .head_dim = head_dim_};
    return c;
  }
  /// Adds the case; a sweep keeps every `keep_one_in`-th of those offered to it.
  void add(VerifyCase c, const MaskSides& mask, int quick_keeps_one_in = 4) {
    const int keep_one_in = size_ == SweepSize::quick ? quick_keeps_one_in : 1;
    if (offered_++ % keep_one_in != 0) return;
    c.problem.causal = mask.causal;
    c.problem.window_left = mask.left;
    c.problem.window_right = mask.right;
    c.problem.seed = ++seed_;
    if (is_fp8(c.problem.dtype)) c.direction = Direction::forward;
    cases_.push_back(c);
  }
  std::vector<VerifyCase> take() { return std::move(cases_); }

 private:
  TileShape tile_;
  SweepSize size_;
  std::int64_t head_dim_;
  int offered_ = 0;
  std::uint64_t seed_ = 0;
  std::vector<VerifyCase> cases_;
};

/// Every pair of edge lengths under every mask; element type and head grouping take turns.
void add_edge_lengths(CaseList& list, TileShape tile, SweepSize size) {
  int turn = 0;
  for (std::int64_t seqlen_q : edge_lengths(tile.block_m)) {
    for (std::int64_t seqlen_k : edge_lengths(tile.block_n)) {
      for (const MaskSides& mask : masks_for(tile)) {
        for (ElementType dtype : kGradientTypes) {
          if (size != SweepSize::full && dtype != kGradientTypes[turn % 3]) continue;
          VerifyCase c = list.several_tiles(kGroupings[turn / 2 % 3]);
          c.problem.seqlen_q = seqlen_q;
          c.problem.seqlen_k = seqlen_k;
          c.problem.dtype = dtype;
          list.add(c, mask, 7);
        }
        ++turn;
      }
    }
  }
}

/// Element types x masks x head groupings x dropout.
void add_features(CaseList& list, TileShape tile) {
  for (ElementType dtype : kElementTypes) {
    for (const MaskSides& mask : masks_for(tile)) {
      for (const Grouping& group : kGroupings) {
        for (double dropout : {0.0, 0.25}) {
          VerifyCase c = list.several_tiles(group);
          c.problem.dtype = dtype;
          c.problem.dropout = dropout;
          list.add(c, mask, 7);
        }
      }
    }
  }
}

void add_inputs_and_scales(CaseList& list) {
  for (InputKind inputs : kInputKinds) {
    for (ElementType dtype : kElementTypes) {
      for (bool causal : {false, true}) {
        VerifyCase c = list.several_tiles();
        c.inputs = inputs;
        c.problem.dtype = dtype;
        list.add(c, {.causal = causal}, 3);
      }
    }
  }
  for (double scale : {0.0, -0.25, 1.0, 0.001, 4.0}) {
    for (ElementType dtype : kGradientTypes) {
      VerifyCase c = list.several_tiles();
      c.problem.softmax_scale = scale;
      c.problem.dtype = dtype;
      list.add(c, {.causal = true}, 2);
    }
  }
  for (double dropout : {0.01, 0.5, 0.95}) {
    VerifyCase c = list.several_tiles();
    c.problem.dropout = dropout;
    list.add(c, {}, 2);
  }
}

void add_head_sizes(CaseList& list) {
  int turn = 0;
  for (std::int64_t head_dim : {1, 3, 8, 17, 32, 40, 64, 96, 128, 192, 255, 256}) {
    VerifyCase c = list.several_tiles();
    c.problem.head_dim = head_dim;
    c.problem.dtype = kGradientTypes[turn % 3];
    list.add(c, {.causal = turn % 2 == 1}, 3);
    ++turn;
  }
  for (ElementType dtype : kFp8Types) {
    for (std::int64_t head_dim : {16, 64, 129}) {
      VerifyCase c = list.several_tiles();
      c.problem.head_dim = head_dim;
      c.problem.dtype = dtype;
      list.add(c, {}, 3);
    }
  }
}

/// Rows that see no key: the first under a causal mask with fewer keys, both ends under a narrow window.
void add_empty_rows(CaseList& list, TileShape tile) {
  for (ElementType dtype : kGradientTypes) {
    for (const auto& [extra, mask] : {std::pair{tile.block_m + 1, MaskSides{.causal = true}},
                                      {2 * tile.block_m + 1, MaskSides{.causal = true, .left = 0}},
                                      {tile.block_m, MaskSides{.left = 1, .right = 1}}}) {
      VerifyCase c = list.several_tiles();
      c.problem.seqlen_q = c.problem.seqlen_k + extra;
      c.problem.dtype = dtype;
      list.add(c, mask, 2);
    }
  }
  VerifyCase single_key = list.several_tiles();  // all rows but the last are empty
  single_key.problem.seqlen_k = 1;
  list.add(single_key, {.causal = true}, 1);
}

/// Batch entries whose keys end inside a tile, at its edge and before the first: rows of padding hold NaN.
void add_padding(CaseList& list, TileShape tile) {
  int turn = 0;
  for (const MaskSides& mask : masks_for(tile)) {
    for (ElementType dtype : kElementTypes) {
      VerifyCase c = list.several_tiles();
      const std::int64_t keys = c.problem.seqlen_k;
      c.problem.key_lengths = {keys, tile.block_n + 2, tile.block_n, 0, 1};
      c.problem.batch = static_cast<std::int64_t>(c.problem.key_lengths.size());
      c.problem.heads = 2;
      c.problem.heads_kv = 1 + turn % 2;
      c.problem.dropout = turn % 3 == 2 ? 0.25 : 0.0;
      c.problem.dtype = dtype;
      list.add(c, mask, 4);
      ++turn;
    }
  }
}

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

void add_orders(CaseList& list) {
  for (TileOrder order : {TileOrder::row_major, TileOrder::longest_first, TileOrder::head_swizzled}) {
    for (Scan scan : {Scan::ascending, Scan::descending, Scan::sawtooth}) {
      VerifyCase c = list.several_tiles({1, 3, 3});
      c.order = order;
      c.scan = scan;
      list.add(c, {.causal = true}, 2);
    }
  }
}

/// Masked tiles cut finer: masks that end at the edges of parts and beside them.
void add_diagonal_slices(CaseList& list, TileShape tile) {
  int turn = 0;
  for (const int slices : {2, 4}) {
    for (const MaskSides& mask : masks_for(tile)) {
      VerifyCase c = list.several_tiles({1, 2, 1 + turn % 2});
      c.diagonal_slices = slices;
      c.problem.seqlen_k += turn % 3 * tile.block_n / 4;
      c.problem.dtype = kGradientTypes[turn % 3];
      if (turn % 5 == 3) c.problem.dropout = 0.25;
      if (turn % 5 == 4) {
        c.problem.batch = 2;
        c.problem.key_lengths = {tile.block_n + tile.block_n / 4 + 1, c.problem.seqlen_k};
      }
      list.add(c, mask, 2);
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

std::vector<VerifyCase> verify_cases(TileShape tile, SweepSize size, std::int64_t head_dim) {
  CaseList list(tile, size, head_dim);
  add_edge_lengths(list, tile, size);
  add_features(list, tile);
  add_inputs_and_scales(list);
  add_head_sizes(list);
  add_empty_rows(list, tile);
  add_padding(list, tile);
  add_orders(list);
  add_diagonal_slices(list, tile);
  add_descales(list, tile);
  add_splits(list, tile);
  add_masks(list, tile);
  add_value_dims(list, tile);
  add_score_mods(list, tile, size);
  add_pages(list, tile);
  add_fp8_keys(list);
  add_shared_kv(list, size);
  return list.take();
}

ProgramOptions case_options(const VerifyCase& verify_case, const Kernel& kernel) {
  const AttentionProblem& problem = verify_case.problem;
  ProgramOptions own = kernel.default_options(problem);
  own.order = verify_case.order;
  own.scan = verify_case.scan;
  own.swizzled_heads = 2;  // which does not divide the heads
  own.ctas_per_wave = 3;
  ProgramOptions options = own;
  options.set_tile(verify_case.tile);
  const auto refused = [&](const ProgramOptions& asked) {
    return kernel.refusal(problem, Direction::forward, asked) ||
           kernel.refusal(problem, verify_case.direction, asked);
  };
  if (refused(options)) options = own;
  ProgramOptions cut = options;
  cut.diagonal_slices = verify_case.diagonal_slices;
  cut.splits = verify_case.splits;
  if (cut.splits.kind == SplitPolicy::Kind::fixed) {  // whole tiles of whichever the kernel takes here
    const int block_n = cut[PassName::forward].tile.block_n;
    cut.splits.value = ceil_div(cut.splits.value, block_n) * block_n;
  }
  cut.pack_gqa = verify_case.pack_gqa;
  return refused(cut) ? options : cut;
}

std::vector<BackwardOrder> backward_orders(const VerifyCase& verify_case, const Kernel& kernel) {
  if (verify_case.direction == Direction::forward || kernel.backward_orders.empty()) {
    return {kernel.default_options(verify_case.problem).backward};
  }
  std::vector<BackwardOrder> orders = kernel.backward_orders;
  ProgramOptions options = case_options(verify_case, kernel);
  if (options.diagonal_slices > 1) {
    std::erase_if(orders, [&](BackwardOrder order) {
      options.backward = order;
      return kernel.refusal(verify_case.problem, Direction::backward, options).has_value();
    });
  }
  return orders;
}

}  // namespace tilescope
