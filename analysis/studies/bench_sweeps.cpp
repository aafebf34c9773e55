// SPDX-License-Identifier: Apache-2.0
#include "analysis/studies/bench_sweeps.hpp"

#include <initializer_list>
#include <optional>
#include <utility>

#include "analysis/studies/drawn_problems.hpp"
#include "common/nearest_names.hpp"

namespace tilescope {
namespace {

constexpr std::int64_t kTokens = 16384, kHiddenSize = 2048;
constexpr std::int64_t kHeadDims[] = {64, 128, 256};

AttentionProblem plain_problem(std::int64_t batch, std::int64_t heads, std::int64_t seqlen,
                               std::int64_t head_dim, ElementType dtype) {
  return {.batch = batch,
          .heads = heads,
          .heads_kv = heads,
          .seqlen_q = seqlen,
          .seqlen_k = seqlen,
          .head_dim = head_dim,
          .dtype = dtype};
}

/// What the CPU kernels' speed is judged by: one head leaves nothing but its blocks to work on in parallel.
std::vector<AttentionProblem> cpu_problems() {
  std::vector<AttentionProblem> problems;
  for (const std::int64_t head_dim : {64, 128}) {
    for (const std::int64_t heads : {4, 1}) {
      problems.push_back(plain_problem(1, heads, 4096, head_dim, ElementType::fp32));
    }
  }
  return problems;
}

std::vector<AttentionProblem> benchmark_problems(ElementType dtype, std::int64_t shortest) {
  std::vector<AttentionProblem> problems;
  for (const std::int64_t head_dim : kHeadDims) {
    for (const bool causal : {false, true}) {
      for (std::int64_t seqlen = shortest; seqlen <= kTokens; seqlen *= 2) {
        problems.push_back(flash2_benchmark_problem(seqlen, head_dim, dtype, causal));
      }
    }
  }
  return problems;
}

std::vector<AttentionProblem> flash2_problems() { return benchmark_problems(ElementType::fp16, 512); }
std::vector<AttentionProblem> fp32_problems() { return benchmark_problems(ElementType::fp32, 2048); }

/// 132 heads in all, so that flash1, with one CTA a head, has work for every SM of an H200.
std::vector<AttentionProblem> ladder_problems() {
  std::vector<AttentionProblem> problems;
  for (const ElementType dtype : {ElementType::fp32, ElementType::fp16}) {
    for (const std::int64_t head_dim : kHeadDims) {
      for (const std::int64_t seqlen : {2048, 4096}) {
        problems.push_back(plain_problem(12, 11, seqlen, head_dim, dtype));
      }
    }
  }
  return problems;
}

/// One query of 32 heads in 8 groups: short, long, and many sequences.
std::vector<AttentionProblem> decode_problems() {
  std::vector<AttentionProblem> problems;
  for (const auto& [batch, keys] :
       {std::pair{1, 1024}, {1, 65536}, {1, 262144}, {8, 16384}, {32, 4096}, {128, 1000}}) {
    AttentionProblem& problem = problems.emplace_back(plain_problem(batch, 32, keys, 128, ElementType::bf16));
    problem.heads_kv = 8;
    problem.seqlen_q = 1;
  }
  return problems;
}

/// The same batches with keys and values in fp8.
std::vector<AttentionProblem> with_fp8_keys(std::vector<AttentionProblem> problems) {
  for (AttentionProblem& problem : problems) problem.kv_dtype = ElementType::fp8e4m3;
  return problems;
}

/// Lists of blocks of 128 rows that leave a quarter of a long causal mask: a block sees itself, the three
/// before it and every eighth.
MaskRule listed_blocks(std::int64_t seqlen) {
  constexpr std::int64_t kBlock = 128, kNear = 3, kStride = 8;
  MaskRule rule{MaskKind::blocks, {kBlock}};
  for (std::int64_t row = 0; row * kBlock < seqlen; ++row) {
    rule.numbers.push_back(kNextRow);
    for (std::int64_t block = 0; block <= row; ++block) {
      if (block % kStride == 0 || row - block <= kNear) rule.numbers.push_back(block);
    }
  }
  return rule;
}

/// One problem plain, under each mask and with each score modifier, so that times compare.
std::vector<AttentionProblem> variant_problems() {
  constexpr std::int64_t kSeqlen = 8192;
  const AttentionProblem plain = plain_problem(2, 16, kSeqlen, 128, ElementType::bf16);
  AttentionProblem causal = plain, window = plain;
  causal.causal = window.causal = true;
  window.window_left = 1023;
  std::vector<AttentionProblem> problems = {plain, causal, window};
  for (const auto& [base, rule] :
       {std::pair{window, MaskRule{MaskKind::sink, {4}}},
        {causal, {MaskKind::prefix, {2048}}},
        {causal, {MaskKind::documents, {1530, 412, 2688, 97, 845, 1210, 66, 1344}}},
        {causal, listed_blocks(kSeqlen)},
        {plain, {MaskKind::block_causal, {512}}}}) {
    problems.emplace_back(base).mask = rule;
  }
  for (const ScoreMods mods : {ScoreMods{.softcap = 50}, ScoreMods{.alibi = true},
                               ScoreMods{.learned_sink = true}, ScoreMods{.log_bias = 0.5}}) {
    problems.emplace_back(causal).score_mods = mods;
  }
  return problems;
}

/// A short length, one at which the tiles matter and a run is short, and a long one.
std::vector<AttentionProblem> tuning_problems() {
  std::vector<AttentionProblem> problems;
  for (const ElementType dtype : {ElementType::fp16, ElementType::bf16}) {
    for (const std::int64_t head_dim : kHeadDims) {
      for (const bool causal : {false, true}) {
        for (const std::int64_t seqlen : {512, 4096, 16384}) {
          problems.push_back(flash2_benchmark_problem(seqlen, head_dim, dtype, causal));
        }
      }
    }
  }
  return problems;
}

/// 4 sequences, 32 heads, head_dim 64 and 128, with a causal mask and without.
std::vector<AttentionProblem> problems_of_32_heads(std::int64_t shortest, std::int64_t longest,
                                                   std::initializer_list<ElementType> types,
                                                   std::optional<double> scale) {
  std::vector<AttentionProblem> problems;
  for (const ElementType dtype : types) {
    for (const std::int64_t head_dim : {64, 128}) {
      for (const bool causal : {false, true}) {
        for (std::int64_t seqlen = shortest; seqlen <= longest; seqlen *= 2) {
          AttentionProblem& problem = problems.emplace_back(plain_problem(4, 32, seqlen, head_dim, dtype));
          problem.causal = causal;
          problem.softmax_scale = scale;
        }
      }
    }
  }
  return problems;
}

std::vector<AttentionProblem> triton_problems() {
  return problems_of_32_heads(1024, 16384, {ElementType::fp16, ElementType::fp8e5m2}, 1.3);
}

std::vector<AttentionProblem> tile_library_problems() {
  return problems_of_32_heads(256, 8192, {ElementType::fp16}, std::nullopt);
}

}  // namespace

AttentionProblem flash2_benchmark_problem(std::int64_t seqlen, std::int64_t head_dim, ElementType dtype,
                                          bool causal) {
  AttentionProblem problem = plain_problem(kTokens / seqlen, kHiddenSize / head_dim, seqlen, head_dim, dtype);
  problem.causal = causal;
  return problem;
}

std::span<const BenchSweep> bench_sweeps() {
  static const std::vector<BenchSweep> sweeps = {
      {"cpu", "fp32, N = 4096, four heads and one", cpu_problems, {"cpu:flash2"}},
      {"flash2",
       "FlashAttention-2's: 16384 tokens, hidden size 2048, fp16, N = 512 ... 16384",
       flash2_problems,
       {"gpu:flash2-mma"}},
      {"triton",
       "as Triton's kernels are timed: B4 H32, D 64 and 128, scale 1.3, fp16 and fp8 e5m2, N = 1024 ... "
       "16384",
       triton_problems,
       {"gpu:flash2-mma", "gpu:flash3"}},
      {"tile-library",
       "as kernels of a tile-based library are timed: B4 H32, D 64 and 128, fp16, N = 256 ... 8192",
       tile_library_problems,
       {"gpu:flash2-mma", "gpu:flash3"}},
      {"drawn",
       "by dice, with --seed S and --count N: head_dim 64 ... 256, N 128 ... 48K, masks, groups, short "
       "queries",
       [] { return drawn_problems(0, kDrawnProblems); },
       {"gpu:flash3"},
       drawn_problems},
      {"drawn-fp8",
       "by dice, as drawn, forward in fp8 e4m3: D 64, 128 and 256, causal or full",
       [] { return drawn_fp8_problems(0, kDrawnProblems); },
       {"gpu:flash3"},
       drawn_fp8_problems},
      {"decode",
       "a query of 32 heads in 8 groups: B 1 ... 128, N 1000 ... 256K",
       decode_problems,
       {"gpu:decode"}},
      {"drawn-decode",
       "by dice, as drawn: few queries, B 1 ... 256, N 200 ... 256K, groups of 1 ... 16, lengths of their "
       "own, pages",
       [] { return drawn_decode_problems(0, kDrawnProblems); },
       {"gpu:decode"},
       drawn_decode_problems},
      {"decode-fp8",
       "as decode, with keys and values in fp8 e4m3",
       [] { return with_fp8_keys(decode_problems()); },
       {"gpu:decode"}},
      {"drawn-decode-fp8",
       "as drawn-decode, with keys and values in fp8 e4m3",
       [] { return with_fp8_keys(drawn_decode_problems(0, kDrawnProblems)); },
       {"gpu:decode"},
       [](std::uint64_t seed, int count) { return with_fp8_keys(drawn_decode_problems(seed, count)); }},
      {"variants",
       "one problem plain, under each mask and with each score modifier: B2 H16, N = 8192, D 128, bf16",
       variant_problems,
       {"gpu:flash2-mma", "gpu:flash3"}},
      {"fp32", "as flash2, in fp32, N = 2048 ... 16384", fp32_problems, {"gpu:flash2-simt"}},
      {"ladder", "every rung, fp32 and fp16, 132 heads, N = 2048 and 4096", ladder_problems, {}},
      {"tune",
       "what --tune times: N = 512, 4096 and 16384, fp16 and bf16",
       tuning_problems,
       {"gpu:flash2-mma"}}};
  return sweeps;
}

const BenchSweep& find_bench_sweep(std::string_view name) {
  return find_named(bench_sweeps(), "sweep", name);
}

}  // namespace tilescope
