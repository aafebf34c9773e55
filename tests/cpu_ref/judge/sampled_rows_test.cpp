// SPDX-License-Identifier: Apache-2.0
// Sampled rows: right kernels pass at any length, one wrong element of a sampled row is seen and named.
#include "cpu_ref/judge/sampled_rows.hpp"

#include <doctest/doctest.h>

#include <set>

#include "cpu_ref/judge/verify_cases.hpp"
#include "cpu_ref/kernels/cpu_kernels.hpp"
#include "tests/cpu_ref/kernels/kernel_cases.hpp"

namespace tilescope {
namespace {

using enum TensorName;
constexpr TileShape kSampledTile{16, 24};

TensorSet results_of(const testing::KernelCase& c, const AttentionProblem& problem, Direction direction,
                     InputKind kind = InputKind::normal,
                     ProgramOptions options = ProgramOptions::with_tile(kSampledTile)) {
  TensorSet tensors(problem);
  fill_random_inputs(tensors, direction, kind);
  testing::run_kernel(c, options, direction, tensors);
  return tensors;
}

Verdict judge(const TensorSet& tensors, Algorithm algorithm, Direction direction, std::int64_t rows,
              Fp8Sums sums = Fp8Sums::fp32) {
  RowJudge judge(tensors.problem(), algorithm, direction, rows, sums);
  const auto read = [&tensors](TensorName name, std::int64_t head) { return copy_head(tensors[name], head); };
  judge.forward(read);
  if (direction == Direction::backward) judge.backward(read);
  return judge.verdict();
}

std::vector<TensorName> refused_by_rows(const Verdict& verdict) {
  std::vector<TensorName> names;
  for (const TensorVerdict& tensor : verdict.tensors) {
    if (!tensor.passed) names.push_back(tensor.tensor);
    CAPTURE(to_string(tensor.tensor));
    CHECK(tensor.error.elements > 0);
  }
  return names;
}

TEST_CASE("every kernel's sampled rows pass the quick sweep") {
  for (const VerifyCase& c : verify_cases(kSampledTile, SweepSize::quick)) {
    const Descales& descales = c.problem.descales;  // of data are refused: no stored tensor tells them
    const bool of_data = descales.q.from == Descale::From::data || descales.k.from == Descale::From::data ||
                         descales.v.from == Descale::From::data;
    if (of_data || c.inputs != InputKind::normal) continue;  // what rows are judged on
    CAPTURE(describe(c.problem));
    for (const testing::KernelCase& kernel : testing::kernel_cases()) {
      CAPTURE(kernel.name());
      if (missing_feature(kernel.kernel->can, c.problem, Direction::forward)) continue;
      const TensorSet tensors =
          results_of(kernel, c.problem, c.direction, c.inputs, case_options(c, *kernel.kernel));
      CHECK(refused_by_rows(judge(tensors, kernel.kernel->algorithm, c.direction, 24)).empty());
    }
  }
}

TEST_CASE("rows of scores that are summed as tensor cores do are judged by such scores") {
  for (ElementType dtype : {ElementType::fp8e4m3, ElementType::fp8e5m2}) {
    const AttentionProblem problem{.heads = 2,
                                   .heads_kv = 1,
                                   .seqlen_q = 200,
                                   .seqlen_k = 300,
                                   .head_dim = 80,
                                   .dtype = dtype,
                                   .causal = true};
    ProgramOptions options = ProgramOptions::with_tile(kSampledTile);
    options.fp8_sums = Fp8Sums::two_level;
    TensorSet tensors(problem);
    fill_random_inputs(tensors, Direction::forward, InputKind::normal);
    flash2_forward(options, tensors, nullptr);
    const auto refused = [&](Fp8Sums sums) {
      return refused_by_rows(judge(tensors, Algorithm::flash2, Direction::forward, 24, sums));
    };
    CHECK(refused(Fp8Sums::two_level).empty());
    CHECK(refused(Fp8Sums::fp32) == std::vector<TensorName>{TensorName::lse});
  }
}

TEST_CASE("sampled rows of a longer problem pass, in every element type") {
  for (ElementType dtype : {ElementType::fp32, ElementType::fp16, ElementType::bf16}) {
    const AttentionProblem problem{.heads = 2,
                                   .heads_kv = 1,
                                   .seqlen_q = 1500,
                                   .seqlen_k = 2000,
                                   .head_dim = 32,
                                   .dtype = dtype,
                                   .causal = true};
    const testing::KernelCase kernel = testing::kernel_cases().back();
    const TensorSet tensors = results_of(kernel, problem, Direction::backward);
    CHECK(refused_by_rows(judge(tensors, kernel.kernel->algorithm, Direction::backward, 8)).empty());
  }
}

TEST_CASE("one wrong element of a sampled row is seen, and named") {
  const AttentionProblem problem{.batch = 2,
                                 .heads = 4,
                                 .heads_kv = 2,
                                 .seqlen_q = 200,
                                 .seqlen_k = 230,
                                 .head_dim = 16,
                                 .dtype = ElementType::bf16,
                                 .causal = true};
  const testing::KernelCase kernel = testing::kernel_cases().back();
  const SampledHead sampled = sample_rows(problem, 8).at(1);
  for (TensorName name : {out, lse, dq, dk, dv}) {
    CAPTURE(to_string(name));
    const bool by_key = name == dk || name == dv;
    TensorSet tensors = results_of(kernel, problem, Direction::backward);
    Tensor& tensor = tensors[name];
    const std::int64_t head = by_key ? sampled.batch_head_kv : sampled.queries[0].first;
    const std::int64_t row = by_key ? sampled.keys[0] : sampled.queries[0].second;
    const std::int64_t index = (head * tensor.shape().rows + row) * tensor.shape().cols;
    tensor.set(index, tensor.get(index) + 0.05f);
    const Verdict verdict = judge(tensors, kernel.kernel->algorithm, Direction::backward, 8);
    const std::vector<TensorName> names = refused_by_rows(verdict);
    REQUIRE(!names.empty());
    CHECK(names.front() == name);
    for (const TensorVerdict& judged : verdict.tensors) {
      if (judged.tensor == name) CHECK(judged.error.worst_index == index);
    }
  }
}

TEST_CASE("samples hold the ends of a head, spread over heads, and all rows where there are few") {
  const AttentionProblem problem{.batch = 2, .heads = 16, .heads_kv = 8, .seqlen_q = 1000, .seqlen_k = 3000};
  const std::vector<SampledHead> heads = sample_rows(problem, 10);
  REQUIRE(heads.size() == 4);
  CHECK(heads.front().batch_head_kv == 0);
  CHECK(heads.back().batch_head_kv == 15);
  std::size_t queries = 0, keys = 0;
  for (const SampledHead& head : heads) {
    queries += head.queries.size();
    keys += head.keys.size();
    CHECK(head.keys[0] == 2999);
    CHECK(head.keys[1] == 0);
    CHECK(head.queries[0] == std::pair{2 * head.batch_head_kv + 1, std::int64_t{999}});
    CHECK(head.queries[1] == std::pair{2 * head.batch_head_kv, std::int64_t{0}});
  }
  CHECK(queries == 10);
  CHECK(keys == 10);
  const SampledHead all = sample_rows({.seqlen_q = 7, .seqlen_k = 5}, 100).at(0);
  CHECK(std::set(all.keys.begin(), all.keys.end()).size() == 5);
  CHECK(std::set(all.queries.begin(), all.queries.end()).size() == 7);
}

}  // namespace
}  // namespace tilescope
