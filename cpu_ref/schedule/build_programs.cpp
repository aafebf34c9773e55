// SPDX-License-Identifier: Apache-2.0
// The algorithms of the papers, each pass as a program of tile loads and stores.
#include <algorithm>

#include "cpu_ref/schedule/kv_pages.hpp"
#include "cpu_ref/schedule/program_parts.hpp"
#include "cpu_ref/schedule/sum_slots.hpp"

namespace tilescope {
namespace {

void set_grid(TileProgram& program, const ProgramOptions& options) {
  const std::int64_t heads = program.kv_heads ? program.problem.heads_kv : program.q_heads();
  const int splits = program.name == PassName::combine ? 1 : program.splits.count * program.head_splits;
  const bool fused = program.name == PassName::dkdvdq && !program.ordered;
  const bool own_sections = fused && options.fused_swizzled_heads > 0;
  program.grid = {.num_blocks = program.whole_head ? 1 : program.num_blocks(),
                  .num_heads = static_cast<int>(program.problem.batch * heads * splits),
                  .swizzled_heads =
                      splits * (own_sections ? options.fused_swizzled_heads
                                             : ceil_div(options.swizzled_heads, program.interleaved_heads())),
                  .order = options.order,
                  .last_block_first = program.axis == Axis::q,
                  .ctas_per_wave = options.ctas_per_wave,
                  .num_splits = splits};
  // Who adds in turn waits for CTAs that share the kv tile, and for kv tiles in front: the CTAs of a head
  // come side by side, block after block.
  const bool side_by_side = splits > 1 && options.order == TileOrder::row_major;
  if (program.ordered && (side_by_side || options.ordered_swizzled_heads > 0)) {
    program.grid.order = TileOrder::head_swizzled;
    program.grid.swizzled_heads = splits * std::max(options.ordered_swizzled_heads, 1);
    program.grid.last_block_first = options.ordered_shortest_first;
  }
}

SplitTiles tiles_to_split(const TileProgram& forward, const SplitPolicy& policy) {
  const AttentionProblem& problem = forward.problem;
  SplitTiles tiles{.q_tiles = problem.batch * forward.q_heads() * forward.num_blocks(),
                   .kv_tiles = num_n_blocks(problem.band(), forward.tile)};
  if (policy.kind != SplitPolicy::Kind::automatic) return tiles;  // the others do not ask what is visited
  problem.for_each_length([&](std::int64_t entries, std::int64_t entry) {
    for (int block = 0; block < forward.num_blocks(); ++block) {
      const int visited = forward.inner_tiles(static_cast<int>(entry), block).count();
      tiles.most_visited = std::max(tiles.most_visited, visited);
      tiles.visited += entries * forward.q_heads() * visited;
    }
  });
  return tiles;
}

std::vector<TileProgram> flash2_forward(const AttentionProblem& problem, const ProgramOptions& options) {
  using enum TensorName;
  TileProgram forward = make_pass(PassName::forward, problem, Axis::q, options);
  forward.prologue = {load(q)};
  load_score_operands(forward);
  forward.phases = {problem.shared_kv ? std::vector{load(k)} : std::vector{load(k), load(v)}};
  forward.epilogue = {store(out), store(lse)};
  forward.products = products_of(Direction::forward);
  forward.pack_gqa = options.pack_gqa;
  forward.interleaves_heads = options.pack_gqa && options.interleaves_heads;
  forward.splits = split_keys(options.splits, tiles_to_split(forward, options.splits), forward.tile.block_n);
  const std::vector<Operand> state =
      problem.score_mods.learned_sink ? std::vector{load(sink)} : std::vector<Operand>{};
  if (forward.splits.count == 1) {
    forward.init = state;
    return {forward};
  }
  forward.epilogue = {store(out_partial), store(lse_partial)};
  TileProgram combine =
      make_elementwise_pass(PassName::combine, PassName::forward, problem, Axis::q, options);
  combine.tile.block_m = combined_rows(problem.value_dim());
  combine.init = state;  // once, not in every split
  combine.phases = {{load(out_partial), load(lse_partial)}};
  combine.epilogue = {store(out), store(lse)};
  combine.pack_gqa = options.pack_gqa;
  combine.splits = forward.splits;
  combine.scan = Scan::ascending;
  return {forward, combine};
}

/// The pass that zeroes the sums of dK and dV, on the tiles of `served`.
TileProgram init_pass(const AttentionProblem& problem, PassName served, const ProgramOptions& options) {
  using enum TensorName;
  TileProgram init = make_elementwise_pass(PassName::init, served, problem, Axis::kv, options);
  init.kv_heads = true;
  init.epilogue = {store(dk_accum), store(dv_accum)};
  return init;
}
/// The pass that rounds them.
TileProgram convert_dkdv(const AttentionProblem& problem, PassName served, const ProgramOptions& options) {
  using enum TensorName;
  return convert_pass(problem, served, Axis::kv, {load(dk_accum), load(dv_accum)}, {store(dk), store(dv)},
                      options);
}

/// Of the programs delta, dkdvdq and convert, lets several CTAs share a kv tile: see
/// ProgramOptions::query_splits.
/// Sums are cleared and rounded by few rows a CTA, since there are few kv tiles. In an ordered pass each CTA
/// stores its own, of which none is cleared.
void share_kv_tiles(std::vector<TileProgram>& programs, const ProgramOptions& options) {
  using enum TensorName;
  TileProgram& main = programs[1];
  const AttentionProblem& problem = main.problem;
  main.head_splits = head_splits_of(options.kv_tile_sharers(), static_cast<int>(problem.group_size()));
  main.splits.count = options.kv_tile_sharers() / main.head_splits;
  TileProgram convert = convert_dkdv(problem, PassName::dkdvdq, options);
  convert.tile.block_n = kRowsOfSums;
  if (main.ordered) {
    // Kv tiles that wait for each other should go through the same parts.
    if (dq_slots(main).in_turn())
      main.splits = aligned_parts(main.splits.count, num_m_blocks(problem.band(), main.tile));
    main.epilogue = {store(dk_accum), store(dv_accum)};
    add_dkdv_slots(convert, main.query_splits());
    programs.push_back(convert);
    return;
  }
  main.epilogue = {reduce(dk_accum), reduce(dv_accum)};
  TileProgram init = init_pass(problem, PassName::dkdvdq, options);
  init.tile.block_n = kRowsOfSums;
  programs.insert(programs.begin() + 1, init);
  programs.push_back(convert);
}

std::vector<TileProgram> flash2_backward(const AttentionProblem& problem, const ProgramOptions& options) {
  using enum TensorName;
  if (options.backward == BackwardOrder::q_outer) {
    TileProgram main = make_pass(PassName::dqdkdv, problem, Axis::q, options);
    main.prologue = {load(q), load(out), load(dout), load(lse)};
    load_score_operands(main);
    main.phases = {{load(k), load(v), reduce(dk_accum), reduce(dv_accum)}};
    main.epilogue = {store(dq)};
    sum_sink_gradient(main);
    main.products = products_of(Direction::backward);
    return {init_pass(problem, PassName::dqdkdv, options), main,
            convert_dkdv(problem, PassName::dqdkdv, options)};
  }
  const bool ordered = options.backward == BackwardOrder::ordered;
  const bool fused = ordered || options.backward == BackwardOrder::fused;
  const bool shares = options.diagonal_slices == 1 && options.kv_tile_sharers() > 1;
  // A kv tile that stores must store a q tile whole. CTAs that share kv tiles come in an order in which
  // others must not wait for the first, but in an ordered pass (set_grid).
  const DqStart dq_start = !fused || options.diagonal_slices > 1 || (shares && !ordered) ? DqStart::cleared
                           : ordered                                                     ? DqStart::in_order
                                                                                         : options.dq_start;
  const bool clears = fused && dq_start == DqStart::cleared;
  const PassName main = fused ? PassName::dkdvdq : PassName::dkdv;
  TileProgram delta_pass = make_elementwise_pass(PassName::delta, main, problem, Axis::q, options);
  delta_pass.prologue = {load(out), load(dout)};
  delta_pass.epilogue = {store(delta)};
  if (clears) delta_pass.epilogue.push_back(store(dq_accum));  // zeros, as FlashAttention-2
  if (problem.score_mods.learned_sink) delta_pass.prologue.push_back(load(lse));
  sum_sink_gradient(delta_pass);
  TileProgram dkdv = make_pass(main, problem, Axis::kv, options);
  dkdv.kv_heads = true;
  dkdv.prologue = {load(k), load(v)};
  load_score_operands(dkdv);
  dkdv.phases = {{load(q), load(dout), load(lse), load(delta)}};
  dkdv.epilogue = {store(dk), store(dv)};
  dkdv.products = fused ? products_of(Direction::backward) : Products{2, 2};
  if (fused) {
    dkdv.phases[0].push_back(clears ? reduce(dq_accum) : store_then_reduce(dq_accum));
    dkdv.ordered = ordered;
    std::vector<TileProgram> programs = {
        delta_pass, dkdv,
        convert_pass(problem, PassName::dkdvdq, Axis::q, {load(dq_accum)}, {store(dq)}, options)};
    for (TileProgram& program : programs) {
      program.dq_start = dq_start;
      program.dq_flags = options.dq_flags;
    }
    if (const DqSlots slots = dq_slots(programs[1]); slots.count > 1) {
      add_dq_slots(programs[2]);
      for (TileProgram& program : programs) program.dq_flags *= slots.in_turn() ? slots.count : 0;
    }
    if (shares) share_kv_tiles(programs, options);
    return programs;
  }
  TileProgram dq_pass = make_pass(PassName::dq, problem, Axis::q, options);
  dq_pass.prologue = {load(q), load(dout), load(lse), load(delta)};
  load_score_operands(dq_pass);
  dq_pass.phases = {{load(k), load(v)}};
  dq_pass.epilogue = {store(dq)};
  dq_pass.products = {2, 1};
  dkdv.single_launch = dq_pass.single_launch = options.backward == BackwardOrder::single_launch;
  return {delta_pass, dkdv, dq_pass};
}

/// The words by which CTAs of the pass agree, and those that say where keys and values lie and what those in
/// fp8 beside wider queries are multiplied by, a number each.
bool has_persistent_ctas(const TileProgram& program, const ProgramOptions& options) {
  if (program.name != PassName::dkdvdq || program.waits_for_sums()) return false;
  return program.dq_start == DqStart::claimed ||
         (options.persistent && program.query_splits() == 1 && program.grid.heads_in_turn());
}

void set_words(TileProgram& program) {
  program.words.pass = page_words(program);
  if (program.work_counter) {  // each CTA, a block's, asks it once; the last one clears it
    program.words.cta = {1, 1};
    program.words.pass = program.words.pass + WordAccesses{.stored = 1};
  }
  if (const AttentionProblem& problem = program.problem;
      problem.kv_dtype && program.name == PassName::forward) {
    for (const Descale& descale : {problem.descales.k, problem.descales.v}) {
      if (descale != Descale{}) program.words.cta = program.words.cta + WordAccesses{1, 0};
    }
  }
  if (program.dq_start == DqStart::cleared) return;
  if (program.name == PassName::delta)
    program.words.cta = {.stored = program.dq_flags};  // cleared, of a q tile
  if (program.name != PassName::dkdvdq) return;
  // Who claims asks and tells whatever he finds; who stores in order need not ask.
  const std::int64_t claims = program.dq_start == DqStart::claimed ? 1 : 0;
  const WordAccesses first{claims, claims + 1}, later{1, program.ordered ? 1 : claims};
  const int flags = program.dq_flags / dq_slots(program).count;  // of each
  program.words.first_sum = first * flags;
  program.words.later_sum = later * flags;
}

void check_tile(const char* field, TileShape tile) {
  const auto bad = [](int rows) { return rows < 1 || rows > 4096; };
  if (!bad(tile.block_m) && !bad(tile.block_n)) return;
  throw BadInput(field, std::to_string(tile.block_m) + "x" + std::to_string(tile.block_n),
                 "both sides must lie in 1 ... 4096");
}

void check_slices(Algorithm algorithm, const TileProgram& program) {
  const int slices = program.diagonal_slices;
  if (slices == 1) return;
  const auto refuse = [&](const std::string& allowed) {
    throw BadInput("diagonal-slices", std::to_string(slices), allowed);
  };
  if (slices < 1 || slices > kMaxDiagonalSlices) {
    refuse("must lie in 1 ... " + std::to_string(kMaxDiagonalSlices));
  }
  if (algorithm != Algorithm::flash2) {
    refuse("must be 1: " + std::string(to_string(algorithm)) + " computes its tiles whole");
  }
  if (program.problem.mask.any()) refuse("must be 1: tiles are cut finer only without mask");
  const TileShape tile = program.tile;
  if (tile.block_m % slices == 0 && tile.block_n % slices == 0) return;
  refuse("must divide both sides of a tile, which in pass " + std::string(to_string(program.name)) + " is " +
         std::to_string(tile.block_m) + "x" + std::to_string(tile.block_n));
}

/// What splits keys or packs heads streams the tiles of FlashAttention-2's forward pass, and takes them
/// whole.
void check_splits(Algorithm algorithm, const AttentionProblem& problem, const ProgramOptions& options) {
  const bool splits = options.splits.kind != SplitPolicy::Kind::none;
  if (!splits && !options.pack_gqa) return;
  const auto refuse = [&](const std::string& why) {
    if (splits) throw BadInput("splits", to_string(options.splits), "must be none: " + why);
    throw BadInput("pack-gqa", "on", "must be off: " + why);
  };
  if (algorithm != Algorithm::flash2) refuse(std::string(to_string(algorithm)) + " has no such order");
  if (options.diagonal_slices > 1) refuse("diagonal-slices is " + std::to_string(options.diagonal_slices));
  if (options.pack_gqa && problem.descales.by_block()) {
    throw BadInput("pack-gqa", "on", "must be off: descales of blocks are those of a head's rows");
  }
}

}  // namespace

std::vector<TileProgram> build_programs(Algorithm algorithm, Direction direction,
                                        const AttentionProblem& problem, const ProgramOptions& options) {
  validate(problem);
  for (const PassOptions& pass : options.passes) check_tile("tile", pass.tile);
  const bool forward = direction == Direction::forward;
  if (forward) check_splits(algorithm, problem, options);
  std::vector<TileProgram> programs;
  switch (algorithm) {
    case Algorithm::standard:
      programs = forward ? standard_forward_programs(problem, options)
                         : standard_backward_programs(problem, options);
      for (TileProgram& program : programs) program.dense = true;
      break;
    case Algorithm::flash1:
      programs =
          forward ? flash1_forward_programs(problem, options) : flash1_backward_programs(problem, options);
      break;
    case Algorithm::flash2:
      programs = forward ? flash2_forward(problem, options) : flash2_backward(problem, options);
      break;
  }
  for (TileProgram& program : programs) {
    if (!program.phases.empty()) program.diagonal_slices = options.diagonal_slices;
    if (is_fp8(problem.dtype)) program.fp8_sums = options.fp8_sums;
    if (program.name == PassName::forward) program.variant = options.variant;
    program.work_counter = options.work_counter && program.name == PassName::forward;
    program.page_lookups = options.page_lookups;
    check_slices(algorithm, program);
    set_grid(program, options);
    program.persistent = has_persistent_ctas(program, options);
    set_words(program);
  }
  return programs;
}

std::vector<PassName> tiled_passes(Algorithm algorithm, Direction direction, BackwardOrder backward) {
  ProgramOptions options;
  options.backward = backward;
  std::vector<PassName> names;
  for (const TileProgram& program : build_programs(algorithm, direction, {}, options)) {
    if (!program.phases.empty()) names.push_back(program.name);
  }
  return names;
}

}  // namespace tilescope
