// SPDX-License-Identifier: Apache-2.0
#include "gpu/kernels/flash3/flash3.hpp"

#include <algorithm>

#include "gpu/kernels/decode/decode.hpp"
#include "gpu/kernels/elementwise/elementwise.hpp"
#include "gpu/kernels/flash3/choices.hpp"
#include "gpu/registry/asked_by.hpp"

namespace tilescope {
namespace {

/// Of the height that has the tile; the whole one where none has.
Flash3ForwardShape forward_shape(const AttentionProblem& problem, TileShape tile) {
  for (const Flash3Height height : {Flash3Height::low, Flash3Height::half}) {
    const Flash3ForwardShape shape = flash3_forward_shape(problem, height);
    if (tile == shape.tile) return shape;
  }
  return flash3_forward_shape(problem);
}

Flash3BackwardShape backward_shape(const TileProgram& program) {
  const int head_dim = static_cast<int>(program.problem.head_dim);
  if (flash3_has_backward_tables(program.problem)) return flash3_backward_table_shape(head_dim);
  return flash3_backward_shape(head_dim, program.ordered, program.persistent);
}

/// Of the height that has the program's tile.
Flash3Fp8Shape fp8_shape(const TileProgram& program) {
  const int head_dim = static_cast<int>(program.problem.head_dim);
  const Flash3Fp8Shape half = flash3_fp8_shape(head_dim, program.fp8_sums, Flash3Height::half);
  return program.tile == half.tile ? half : flash3_fp8_shape(head_dim, program.fp8_sums);
}

/// claimed is for persistent CTAs in the default order: in another, long and short kv tiles might not come in
/// turn.
DqStart dq_start(const AttentionProblem& problem, const ProgramOptions& options) {
  if (flash3_has_backward_tables(problem)) return DqStart::cleared;
  const bool in_turn = !problem.masked() || options.fused_swizzled_heads == 1;
  if (flash3_can_persist(problem) && in_turn) {
    // Where few queries see many keys, all of a head's CTAs would ask for the same few q tiles.
    return flash3_sees_few_keys(problem) ? DqStart::claimed : DqStart::cleared;
  }
  // Where a kv tile goes through several heads, those that see fewer queries would wait for the first one at
  // each head.
  const bool waits = problem.group_size() > 1 && !flash3_sees_evenly(problem);
  // All CTAs of one head, or of two, would stay in step behind those of the first kv tiles: one head of 25788
  // causal keys (192) takes 1401 us so, 1248 without.
  const bool behind_one = problem.batch * problem.heads <= 2;
  return !waits && !behind_one && flash3_stores_in_order(static_cast<int>(problem.head_dim), problem.masked())
             ? DqStart::in_order
             : DqStart::cleared;
}

/// What instances with tables of a mask, with modifiers of scores and with pages cannot do, as the words that
/// follow "not" in a sentence; empty if they can do all that is asked for.
std::string beyond_plain_instances(const AttentionProblem& problem, const ProgramOptions& options) {
  if (is_fp8(problem.dtype)) return "in fp8";
  if (flash3_has_values(problem)) return "with head_dim_v other than head_dim";
  if (options.splits.kind != SplitPolicy::Kind::none) return "with split keys";
  if (options.pack_gqa) return "with packed heads";
  if (options.variant != Variant::own) return "in a variant";
  return "";
}

std::optional<std::string> too_wide_for_tables(const AttentionProblem& problem) {
  if (problem.head_dim <= kFlash3TablesHeadDim) return std::nullopt;
  return "has masks beside causal and windows up to head_dim " + std::to_string(kFlash3TablesHeadDim) +
         ", not at " + std::to_string(problem.head_dim);
}

}  // namespace

bool Flash3::short_rows(const AttentionProblem& problem) {
  return flash3_short_rows(problem.visible_pairs(), problem.batch * problem.heads * problem.seqlen_q);
}

ProgramOptions Flash3::default_options(const AttentionProblem& problem) {
  ProgramOptions options;
  const Flash3ForwardWay forward = flash3_forward_way(problem);
  options.set_tile(Direction::forward, flash3_forward_tile(problem, forward.height));
  if (forward.splits > 1) options.splits = {SplitPolicy::Kind::number, forward.splits};
  options.pack_gqa = forward.packed;
  options.interleaves_heads = flash3_interleaves_heads(problem);
  const Flash3BackwardWay backward = flash3_backward_way(problem);
  options.query_splits = backward.splits;
  const Flash3OrderedWay ordered = flash3_ordered_way(problem);
  options.ordered_query_splits = ordered.splits;
  options.ordered_swizzled_heads = ordered.swizzled_heads;
  options.ordered_shortest_first = ordered.shortest_first;
  options.set_tile(Direction::backward, flash3_backward_shape(problem).tile);
  options.backward = BackwardOrder::fused;
  options.scan = Scan::descending;
  options.work_counter = true;
  options.page_lookups = {.parts = kFlash3PageLoaders, .each_operand = true};
  if (is_fp8(problem.dtype)) options.fp8_sums = Fp8Sums::two_level;
  if (problem.masked()) {
    options.order = TileOrder::head_swizzled;
    options.swizzled_heads = flash3_forward_swizzle(problem, options[PassName::forward].tile);
    options.fused_swizzled_heads = backward.swizzled_heads;
  }
  options.dq_flags = flash3_backward_shape(problem).flags();
  options.persistent = flash3_can_persist(problem);
  options.dq_start = dq_start(problem, options);
  return options;
}

std::vector<TileShape> Flash3::tile_choices(const AttentionProblem& problem, PassName pass) {
  std::vector<TileShape> tiles{default_options(problem)[pass].tile};
  if (pass != PassName::forward) return tiles;
  for (const Flash3Height height : {Flash3Height::whole, Flash3Height::half, Flash3Height::low}) {
    const TileShape other = flash3_forward_tile(problem, height);
    if (std::find(tiles.begin(), tiles.end(), other) == tiles.end()) tiles.push_back(other);
  }
  return tiles;
}

std::vector<Boxes> Flash3::boxes(const TileProgram& program) {
  using enum TensorName;
  const int bytes = element_bytes(program.problem.dtype);
  const auto boxes = [bytes](TensorName tensor, const gpu::sm90::PanelTile& tile, bool evict_first = false) {
    return Boxes{tensor, tile.rows, tile.panel_cols() * bytes, evict_first};
  };
  const auto stored = [](TensorName tensor, const gpu::sm90::PanelTile& tile) {
    return Boxes{tensor, tile.rows, tile.panel_cols() * tile.element_bytes, false, AskedBy::stored_boxes};
  };
  const auto rows_of_a_head = [&program](gpu::sm90::PanelTile tile) {
    tile.rows = std::min(tile.rows, 64 / program.interleaved_heads());
    return tile;
  };
  constexpr bool kEvictFirst = true;  // what a CTA loads once: CacheHint of the producers
  if (program.name == PassName::forward && is_fp8(program.problem.dtype)) {
    const Flash3Fp8Shape shape = fp8_shape(program);
    return {boxes(q, shape.q_tile(), kEvictFirst), boxes(k, shape.kv_tile()), boxes(v, shape.kv_tile())};
  }
  if (program.name == PassName::forward) {
    const Flash3ForwardShape shape = forward_shape(program.problem, program.tile);
    // In pages too K and V cross by whole tiles: behind the keys by boxes of a page that does not exist.
    std::vector<Boxes> all{boxes(q, rows_of_a_head(shape.q_tile()), kEvictFirst), boxes(k, shape.k_tile()),
                           boxes(v, shape.v_tile())};
    if (shape.output == Flash3Output::staged) all.push_back(stored(out, rows_of_a_head(shape.out_tile())));
    for (const TensorName numbers : {alibi_slopes, sink}) {  // of heads, each asked for by itself
      if (shape.mods) all.push_back({.tensor = numbers, .rows = 1, .panel_bytes = kSectorBytes});
    }
    return all;
  }
  if (program.name == PassName::combine) return combined_lse(program);
  if (program.name == PassName::delta) {
    std::vector<Boxes> all = delta_boxes(program.problem);
    if (program.problem.score_mods.learned_sink)
      all.insert(all.end(), {warp_piece(lse), {.tensor = sink, .rows = 1, .panel_bytes = kSectorBytes}});
    return all;
  }
  if (program.name != PassName::dkdvdq) return {};
  const Flash3BackwardShape shape = backward_shape(program);
  return {boxes(q, shape.q_tile()),
          boxes(dout, shape.q_tile()),
          boxes(k, shape.kv_tile(), kEvictFirst),
          boxes(v, shape.kv_tile(), kEvictFirst),
          warp_piece(lse),
          warp_piece(delta),
          stored(dk, shape.kv_tile()),
          stored(dv, shape.kv_tile())};
}

std::optional<std::string> Flash3::lack(const AttentionProblem& problem, const ProgramOptions& options) {
  const bool splits = options.splits.kind != SplitPolicy::Kind::none;
  if (options.variant != Variant::own) {
    const TileShape whole = flash3_forward_shape(kFlash3VariantHeadDim).tile;
    if (problem.dtype != ElementType::fp16 || problem.head_dim > kFlash3VariantHeadDim ||
        problem.head_dim <= 112 || flash3_has_values(problem) || options[PassName::forward].tile != whole) {
      return "has its variants in fp16 at head_dim 120 and 128 alone, with tiles of 128 x 128";
    }
  }
  if (flash3_has_values(problem) && (is_fp8(problem.dtype) || splits || !flash3_has_values_shape(problem))) {
    return "has values of other columns than keys in 16 bits without split keys, where head_dim is 136 to "
           "192 "
           "and head_dim_v 72 to 128";
  }
  const std::string beyond = beyond_plain_instances(problem, options);
  if (flash3_has_tables(problem) && !beyond.empty())
    return "has masks beside causal and windows, but not " + beyond;
  if (flash3_has_tables(problem) && too_wide_for_tables(problem)) return too_wide_for_tables(problem);
  if (flash3_has_mods(problem) && !beyond.empty()) return "modifies scores, but not " + beyond;
  if (problem.page_size > 0) {
    const std::string besides = flash3_has_tables(problem) ? "under masks beside causal and windows"
                                : flash3_has_mods(problem) ? "with modified scores"
                                                           : beyond;
    if (!besides.empty()) return "reads pages, but not " + besides;
  }
  if (is_fp8(problem.dtype) && options.pack_gqa) return "packs heads of 16-bit types alone";
  if (options.pack_gqa && problem.masked() && !flash3_interleaves_heads(problem)) {
    return "packs 2, 4 or 8 query heads of a key/value head under a mask, not " +
           std::to_string(problem.group_size());
  }
  return std::nullopt;
}

std::optional<std::string> Flash3::backward_lack(const AttentionProblem& problem,
                                                 const ProgramOptions& options) {
  if (problem.score_mods.learned_sink && options.backward == BackwardOrder::ordered) {
    return "has learned sinks, but not in an ordered backward pass";
  }
  if (!flash3_has_backward_tables(problem)) return std::nullopt;
  if (options.backward == BackwardOrder::ordered) {
    return "has masks beside causal and windows, but not in an ordered backward pass";
  }
  return too_wide_for_tables(problem);
}

int Flash3::bit_reads(const TileProgram& program) {
  if (program.name == PassName::dkdvdq) return flash3_has_backward_tables(program.problem) ? 1 : 0;
  return program.name == PassName::forward && flash3_has_tables(program.problem) ? 1 : 0;
}

LaunchShape Flash3::launch_shape(const TileProgram& program) {
  if (program.name == PassName::combine) return {combine_threads_of(program.problem.head_dim), 0};
  if (program.name == PassName::forward && is_fp8(program.problem.dtype)) {
    const Flash3Fp8Shape shape = fp8_shape(program);
    return {shape.threads(), Flash3Fp8Layout(shape).end, 1};
  }
  if (program.name == PassName::forward) {
    const Flash3ForwardShape shape = forward_shape(program.problem, program.tile);
    return {shape.threads(), Flash3ForwardLayout(shape).end, 1};
  }
  if (program.name == PassName::dkdvdq) {
    const Flash3BackwardShape shape = backward_shape(program);
    return {shape.threads(), Flash3BackwardLayout(shape).end, 1};
  }
  return {kElementwiseThreads, 0};
}

WarpWork Flash3::warp_work(const TileProgram& program) {
  constexpr int kRows = 64;  // of a WGMMA
  if (is_fp8(program.problem.dtype)) {
    const Flash3Fp8Shape shape = fp8_shape(program);
    if (shape.tile != program.tile) return {};
    return {.warps = shape.warps(),
            .in_flight = shape.order == Flash3Fp8Order::after ? 1 : 2,
            .ahead = shape.q_stages > 1,
            .keeps_maxima = true,
            .exchanged_bytes = 2 * shape.kv_tile().bytes(),  // V, transposed
            .sums_twice = program.fp8_sums == Fp8Sums::two_level,
            .products = {{kRows, shape.tile.block_n, shape.head_dim}, {kRows, 0, shape.head_dim}}};
  }
  if (program.name == PassName::forward) {
    const Flash3ForwardShape shape = forward_shape(program.problem, program.tile);
    if (shape.tile != program.tile) return {};
    return {.warps = shape.warps(),
            .in_flight = 2,
            .ahead = shape.q_stages > 1,
            .skipping_rows = shape.skips ? kRows : 0,
            .keeps_maxima = true,
            .products = {{kRows, shape.own_keys()}, {kRows}}};
  }
  const Flash3BackwardShape shape = backward_shape(program);
  if (shape.tile != program.tile) return {};
  const int queries = shape.tile.block_m, scores = queries * shape.tile.block_n, dim = shape.head_dim;
  // Of whole panels, or of half the queries each.
  const int dq_dim = shape.dq_by_queries() ? dim
                     : shape.by_columns()  ? shape.consumers() * shape.dq_cols(0)
                                           : shape.dq_cols(0) + shape.dq_cols(1);
  const ProductPart dq{kRows, shape.dq_cols(0), dq_dim};
  constexpr int kScoreBytes = 2, kProbabilityBytes = 4;
  // For Q and dO, for dS, for a place to put dQ; with dP in halves until the dS before has been read, too.
  WarpWork work{.warps = shape.warps(),
                .waits = shape.halves ? 4 : 3,
                .exchanged_bytes = scores * kScoreBytes,
                .products = {{kRows, queries, dim},
                             {kRows, shape.halves ? queries / 2 : queries, dim},
                             {kRows, 0, dim},
                             {kRows, 0, dim},
                             dq}};
  if (shape.split != Flash3Split::keys) {  // and for P, and a place to put it, too
    work.waits += 2;
    work.exchanged_bytes += scores * (shape.by_columns() ? kScoreBytes : 2 * kProbabilityBytes);
  }
  if (shape.by_columns()) {
    const int keys = shape.tile.block_n, own_keys = keys / shape.consumers();
    const ProductPart own{kRows, own_keys, dim}, sums{kRows, keys, dq_dim};
    work.products = {own, own, sums, sums, dq};
  }
  return work;
}

}  // namespace tilescope
