// SPDX-License-Identifier: Apache-2.0
#include "tests/mutants/gpu_mutant_cases.hpp"

#include "gpu/kernels/flash3/flash3.hpp"
#include "gpu/registry/kernel_registry.hpp"

namespace tilescope {
namespace {

Case& add_case(const Kernel& kernel, Direction direction, const AttentionProblem& problem, InputKind inputs,
               std::optional<BackwardOrder> order, std::vector<Case>& cases) {
  return cases.emplace_back(kernel, direction, problem, inputs, order);
}

/// Several tiles a side, ragged by one row, as the kernel's own tiles cut them; two groups of two query
/// heads.
AttentionProblem ragged_problem(const Kernel& kernel, ElementType dtype, int head_dim) {
  AttentionProblem problem{.batch = 2, .heads = 4, .heads_kv = 2, .head_dim = head_dim, .seed = 7};
  problem.dtype = dtype;
  const TileShape tile = kernel.default_options(problem)[PassName::forward].tile;
  problem.seqlen_q = 2 * tile.block_m - 1;
  problem.seqlen_k = 4 * tile.block_n - 1;
  return problem;
}

/// The same with a window, dropout and a negative scale.
AttentionProblem windowed(const Kernel& kernel, AttentionProblem problem) {
  problem.window_left = kernel.default_options(problem)[PassName::forward].tile.block_n + 2;
  problem.window_right = 3;
  if (kernel.can.forward.has(Feature::dropout)) problem.dropout = 0.25;
  problem.softmax_scale = -0.1;
  return problem;
}

/// The same with padding behind the keys of the second batch entry.
AttentionProblem padded(AttentionProblem problem) {
  problem.key_lengths = {problem.seqlen_k, problem.seqlen_k / 2 + 3};
  return problem;
}

/// The same with values of other columns than keys, which need not be padded up to a warp's.
AttentionProblem with_values(AttentionProblem problem, int head_dim, int value_dim) {
  problem.head_dim = head_dim;
  problem.head_dim_v = value_dim;
  return problem;
}

/// Documents side by side, of which one ends inside a tile, with every score modifier.
AttentionProblem varied(AttentionProblem problem) {
  problem.causal = true;
  problem.seqlen_q = problem.seqlen_k;
  problem.mask = {MaskKind::documents, {problem.seqlen_k - 50, 50}};
  problem.score_mods = {.softcap = 2.0, .alibi = true, .learned_sink = true, .log_bias = 0.5};
  return problem;
}

/// The row of gpu:flash3 with the q tiles, unsplit, that fill a device: the program of mutants has these
/// alone.
const Kernel& flash3_with_whole_tiles() {
  static const Kernel row = [] {
    Kernel whole = find_gpu_kernel(Flash3::name).row;
    whole.default_options = [](const AttentionProblem& problem) {
      ProgramOptions options = Flash3::default_options(problem);
      if (is_fp8(problem.dtype)) return options;
      options.set_tile(Direction::forward, flash3_forward_shape(problem).tile);
      options.splits = {};
      options.pack_gqa = false;
      return options;
    };
    return whole;
  }();
  return row;
}

/// In three splits, of fp8 keys too, and in pages, where one CTA walks all of them.
void add_decode_cases(std::vector<Case>& cases) {
  const Kernel& decode = find_gpu_kernel("gpu:decode").row;
  if (!is_mutated(decode)) return;
  AttentionProblem few = ragged_problem(decode, ElementType::fp16, 64);  // 12 rows of 4 heads
  few.heads = 8;
  few.seqlen_q = 3;
  few.causal = true;
  AttentionProblem more = padded(few);  // 20 rows; the second entry has three of four tiles
  more.seqlen_q = 5;
  AttentionProblem in_small_pages = few, in_large_pages = more;
  in_small_pages.page_size = 16;
  in_small_pages.seqlen_k *= 2;    // more tiles than a ring of them has stages
  in_large_pages.page_size = 256;  // of two tiles
  AttentionProblem narrow = more;  // whose tiles have twice the keys
  narrow.seqlen_k *= 2;
  narrow.key_lengths = {narrow.seqlen_k, narrow.seqlen_k / 2 + 3};
  narrow.kv_dtype = ElementType::fp8e4m3;
  narrow.descales.k = narrow.descales.v = {Descale::From::random};
  for (const AttentionProblem& problem : {few, more, in_small_pages, in_large_pages, narrow}) {
    add_case(decode, Direction::forward, problem, InputKind::normal, std::nullopt, cases).options.splits = {
        SplitPolicy::Kind::number, problem.page_size > 0 ? 1 : 3};
  }
}

/// In three splits, and in pages.
void add_mla_cases(std::vector<Case>& cases) {
  const Kernel& mla = find_gpu_kernel("gpu:mla-decode").row;
  if (!is_mutated(mla)) return;
  AttentionProblem few{.batch = 2,  // 12 rows of 4 heads
                       .heads = 8,
                       .heads_kv = 2,
                       .seqlen_q = 3,
                       .seqlen_k = 255,
                       .head_dim = 576,
                       .dtype = ElementType::fp16,
                       .causal = true,
                       .seed = 7,
                       .head_dim_v = 512,
                       .shared_kv = true};
  AttentionProblem more = padded(few);  // 70 rows in two tiles
  more.heads = 28;
  more.seqlen_q = 5;
  AttentionProblem in_small_pages = padded(few), in_large_pages = in_small_pages;
  in_small_pages.page_size = 16;
  in_large_pages.page_size = 128;  // of two tiles
  for (const AttentionProblem& problem : {few, more, in_small_pages, in_large_pages}) {
    add_case(mla, Direction::forward, problem, InputKind::normal, std::nullopt, cases).options.splits = {
        SplitPolicy::Kind::number, problem.page_size > 0 ? 1 : 3};
  }
}

/// What flash3 has beside the other rungs: fp8, splits, tables and modified scores, ordered sums, and every
/// head dimension that it is compiled for, there with shared kv tiles too.
/// @param plain, causal  a ragged problem, and the same with the mask
void add_flash3_cases(const Kernel& kernel, const AttentionProblem& plain, const AttentionProblem& causal,
                      std::vector<Case>& cases) {
  const auto fused = std::optional(BackwardOrder::fused);
  add_case(kernel, Direction::backward, windowed(kernel, ragged_problem(kernel, ElementType::fp16, 256)),
           InputKind::normal, fused, cases);
  AttentionProblem bytes = ragged_problem(kernel, ElementType::fp8e4m3, 128);
  bytes.causal = true;  // the second tile that a row sees raises its maximum
  add_case(kernel, Direction::forward, bytes, InputKind::normal, std::nullopt, cases);
  AttentionProblem grouped = ragged_problem(kernel, ElementType::fp16, 128);
  grouped.causal = true;
  add_case(kernel, Direction::forward, grouped, InputKind::outlier, std::nullopt, cases);
  Case& split = add_case(kernel, Direction::forward, plain, InputKind::normal, std::nullopt, cases);
  split.options.splits = {SplitPolicy::Kind::number, 3};
  split.options.pack_gqa = true;
  AttentionProblem interleaved = causal;
  interleaved.heads = 4;
  interleaved.heads_kv = 1;
  Case& packed = add_case(kernel, Direction::forward, interleaved, InputKind::normal, std::nullopt, cases);
  packed.options.pack_gqa = true;
  // More items than CTAs, in half of which rows see no key.
  AttentionProblem many = causal;
  many.batch = 50;
  many.seqlen_k = 40;
  add_case(kernel, Direction::forward, many, InputKind::normal, std::nullopt, cases);
  AttentionProblem tables = causal;  // a full tile between partial ones
  tables.seqlen_q = 300;
  tables.seqlen_k = 700;
  tables.mask = {MaskKind::prefix, {300}};
  add_case(kernel, Direction::backward, tables, InputKind::normal, fused, cases);
  tables.seqlen_k = 350;  // of which the prefix shows some behind the diagonal
  tables.score_mods.alibi = true;
  add_case(kernel, Direction::forward, tables, InputKind::normal, std::nullopt, cases);
  AttentionProblem modified = plain;  // keys on both sides of the diagonal, in each tile
  modified.score_mods = {.alibi = true, .learned_sink = true};
  add_case(kernel, Direction::forward, modified, InputKind::normal, std::nullopt, cases);
  modified.softmax_scale = 1.0;  // maxima rise in tiles that exponents modify
  add_case(kernel, Direction::forward, modified, InputKind::outlier, std::nullopt, cases);
  modified.causal = true;  // rows that see no key
  modified.seqlen_k = modified.seqlen_q - 70;
  modified.softmax_scale = -0.1;
  add_case(kernel, Direction::forward, modified, InputKind::normal, std::nullopt, cases);
  for (const double cap : {2.0, 60.0}) {  // which scores pass, and which they stay below
    AttentionProblem capped = causal;
    capped.score_mods.softcap = cap;
    add_case(kernel, Direction::forward, capped, InputKind::normal, std::nullopt, cases);
  }
  AttentionProblem three = causal;  // dQ of three slots
  three.seqlen_k = 3 * kernel.default_options(causal)[PassName::dkdvdq].tile.block_n - 1;
  for (const int splits : {1, 2}) {
    add_case(kernel, Direction::backward, three, InputKind::normal, BackwardOrder::ordered, cases)
        .options.set_query_splits(splits);
  }
  for (const int head_dim : {96, 128, 160, 192, 256}) {
    AttentionProblem wider = ragged_problem(kernel, ElementType::fp16, head_dim);
    wider.causal = true;
    add_case(kernel, Direction::backward, wider, InputKind::normal, fused, cases);
    add_case(kernel, Direction::backward, wider, InputKind::normal, fused, cases).options.query_splits =
        4;  // both query heads of a group, and halves of their queries
  }
}

/// Values of other columns than keys.
void add_value_cases(const Kernel& kernel, const AttentionProblem& causal, std::optional<BackwardOrder> order,
                     std::vector<Case>& cases) {
  if (!kernel.can.forward.has(Feature::value_dim)) return;
  const bool both = kernel.can.backward.has(Feature::value_dim);
  const Direction direction = both ? Direction::backward : Direction::forward;
  for (const auto& [head_dim, value_dim] : {std::pair{64, 40}, {24, 64}, {192, 128}, {192, 104}}) {
    if (head_dim > 64 && !both) {  // the shape of its own, forward
      const AttentionProblem wide = ragged_problem(kernel, ElementType::fp16, head_dim);
      add_case(kernel, direction, with_values(wide, head_dim, value_dim), InputKind::normal, std::nullopt,
               cases);
    } else if (head_dim <= 64 && both) {
      add_case(kernel, direction, with_values(causal, head_dim, value_dim), InputKind::normal, order, cases);
    }
  }
}

}  // namespace

std::vector<Case> prepare_cases() {
  std::vector<Case> cases;
  add_decode_cases(cases);
  add_mla_cases(cases);
  for (const GpuKernel& rung : gpu_ladder()) {
    const Kernel& kernel = rung.row.name == Flash3::name ? flash3_with_whole_tiles() : rung.row;
    if (!is_mutated(kernel)) continue;
    const bool simt = kernel.name == std::string_view("gpu:flash2-simt");
    const AttentionProblem plain = ragged_problem(kernel, simt ? ElementType::fp32 : ElementType::fp16, 64);
    AttentionProblem causal = plain;
    causal.causal = true;
    const bool ordered = kernel.algorithm == Algorithm::flash2;
    const auto fused = ordered ? std::optional(BackwardOrder::fused) : std::nullopt;
    add_case(kernel, Direction::backward, causal, InputKind::normal, fused, cases);
    add_case(kernel, Direction::backward, windowed(kernel, plain), InputKind::normal, fused, cases);
    Case& full = add_case(kernel, Direction::backward, plain, InputKind::outlier, fused, cases);
    if (simt) {
      add_case(kernel, Direction::backward, windowed(kernel, plain), InputKind::normal,
               BackwardOrder::q_outer, cases);
      add_case(kernel, Direction::backward, windowed(kernel, plain), InputKind::normal, BackwardOrder::split,
               cases);
    } else if (kernel.name == std::string_view("gpu:flash3-basic")) {
      AttentionProblem wider = ragged_problem(kernel, ElementType::fp16, 128);
      wider.causal = true;
      add_case(kernel, Direction::backward, wider, InputKind::normal, fused, cases);
    } else if (kernel.name == std::string_view("gpu:flash3")) {
      full.options.dq_start = DqStart::in_order;  // of which CTAs that persist know nothing
      add_flash3_cases(kernel, plain, causal, cases);
    } else if (ordered) {
      add_case(kernel, Direction::backward, windowed(kernel, ragged_problem(kernel, ElementType::bf16, 128)),
               InputKind::normal, BackwardOrder::split, cases);
    }
    add_value_cases(kernel, causal, fused, cases);
    if (ordered && kernel.can.forward.has(Feature::key_padding)) {
      add_case(kernel, Direction::backward, padded(causal), InputKind::normal, fused, cases);
    }
    if (ordered && kernel.can.backward.has(Feature::softcap)) {
      add_case(kernel, Direction::backward, varied(plain), InputKind::normal, fused, cases);
      add_case(kernel, Direction::backward, varied(ragged_problem(kernel, ElementType::bf16, 128)),
               InputKind::normal, BackwardOrder::split, cases);
    }
    if (kernel.can.forward.has(Feature::paged_keys)) {
      AttentionProblem in_pages = kernel.can.forward.has(Feature::key_padding) ? padded(causal) : causal;
      in_pages.page_size = 16;
      add_case(kernel, Direction::forward, in_pages, InputKind::normal, std::nullopt, cases);
    }
    if (kernel.smallest_part > 0) {
      constexpr int kSlices = 4;
      add_case(kernel, Direction::backward, causal, InputKind::normal, fused, cases).options.diagonal_slices =
          kSlices;
    }
  }
  const Kernel& split_k = find_gpu_kernel("gpu:split-k").row;
  if (!is_mutated(split_k)) return cases;
  const Kernel& standard = find_gpu_kernel("gpu:standard-mma").row;  // beside the ladder, as it is
  AttentionProblem causal = ragged_problem(standard, ElementType::fp16, 64);
  causal.causal = true;
  add_case(standard, Direction::backward, causal, InputKind::normal, std::nullopt, cases);
  add_case(split_k, Direction::forward, ragged_problem(split_k, ElementType::fp16, 64), InputKind::normal,
           std::nullopt, cases);
  return cases;
}

}  // namespace tilescope
