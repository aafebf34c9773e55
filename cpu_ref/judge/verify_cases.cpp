// SPDX-License-Identifier: Apache-2.0
#include "cpu_ref/judge/verify_cases.hpp"

#include <algorithm>

#include "cpu_ref/judge/case_list.hpp"

namespace tilescope {
namespace {

/// Lengths round the edges of a tile, ascending, without repetition.
std::vector<std::int64_t> edge_lengths(std::int64_t tile_rows) {
  std::vector<std::int64_t> lengths = {1, tile_rows - 1, tile_rows, tile_rows + 1, 2 * tile_rows + 3};
  std::erase_if(lengths, [](std::int64_t length) { return length < 1; });
  lengths.erase(std::unique(lengths.begin(), lengths.end()), lengths.end());
  return lengths;
}

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
  add_feature_cases(list, tile, size);
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
