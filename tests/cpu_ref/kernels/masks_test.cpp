// SPDX-License-Identifier: Apache-2.0
// Masks that say the same in other words, and what must not leak: equal bits, in every kernel and order.
#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include "cpu_ref/schedule/masks/mask_models.hpp"
#include "tests/cpu_ref/kernels/kernel_cases.hpp"

namespace tilescope {
namespace {

constexpr TensorName kMaskInputs[] = {TensorName::q, TensorName::k, TensorName::v, TensorName::dout};
constexpr TensorName kMaskResults[] = {TensorName::out, TensorName::lse, TensorName::dq, TensorName::dk,
                                       TensorName::dv};
constexpr TileShape kMaskTile{16, 16};

TensorSet run_on_random_inputs(const testing::KernelCase& c, const AttentionProblem& problem,
                               TileShape tile) {
  TensorSet tensors(problem);
  fill_random_inputs(tensors, Direction::backward);
  testing::run_kernel(c, ProgramOptions::with_tile(tile), Direction::backward, tensors);
  return tensors;
}

AttentionProblem causal_problem() {
  return {.heads = 4,
          .heads_kv = 2,
          .seqlen_q = 70,
          .seqlen_k = 70,
          .head_dim = 24,
          .dtype = ElementType::bf16,
          .causal = true};
}

TEST_CASE("a mask that leaves what a causal mask leaves gives its bits") {
  const AttentionProblem causal = causal_problem();
  AttentionProblem wide = causal, sink = causal, all_sinks = causal, first_key = causal, one = causal,
                   blocks_of_one = causal;
  blocks_of_one.causal = false;
  blocks_of_one.mask = {MaskKind::block_causal, {1}};
  wide.window_left = sink.window_left = 69;
  sink.mask = {MaskKind::sink, {20}};
  all_sinks.window_left = 3;
  all_sinks.mask = {MaskKind::sink, {70}};
  first_key.mask = {MaskKind::prefix, {1}};
  one.mask = {MaskKind::documents, {0, 70, 0}};
  for (const testing::KernelCase& c : testing::kernel_cases()) {
    CAPTURE(c.name());
    const TensorSet expected = run_on_random_inputs(c, causal, kMaskTile);
    for (const AttentionProblem& other : {wide, sink, all_sinks, first_key, one, blocks_of_one}) {
      CAPTURE(describe(other));
      const TensorSet tensors = run_on_random_inputs(c, other, kMaskTile);
      for (const TensorName name : kMaskResults) CHECK(testing::same_bits(tensors[name], expected[name]));
    }
  }
}

TEST_CASE("a tree that is a chain, and lists of all blocks, give the bits of the masks that they are") {
  AttentionProblem causal = causal_problem();
  causal.seqlen_q = 21;
  AttentionProblem chain = causal, lists = causal;
  chain.causal = false;
  chain.mask = {MaskKind::tree, {}};
  for (std::int64_t node = 1; node <= causal.seqlen_q; ++node) chain.mask.numbers.push_back(node - 1);
  lists.mask = {MaskKind::blocks, {30, kNextRow, 0, 1, 2}};
  for (const testing::KernelCase& c : testing::kernel_cases()) {
    CAPTURE(c.name());
    const TensorSet expected = run_on_random_inputs(c, causal, kMaskTile);
    for (const AttentionProblem& other : {chain, lists}) {
      CAPTURE(describe(other));
      const TensorSet tensors = run_on_random_inputs(c, other, kMaskTile);
      for (const TensorName name : kMaskResults) CHECK(testing::same_bits(tensors[name], expected[name]));
    }
  }
}

/// Rows of each head, from one sequence to another.
void copy_rows(const Tensor& from, std::int64_t first, Tensor& to, std::int64_t to_first, std::int64_t rows) {
  for (std::int64_t head = 0; head < from.shape().heads; ++head) {
    for (std::int64_t row = 0; row < rows; ++row) {
      testing::copy_row(from, 0, head, first + row, to, 0, to_first + row);
    }
  }
}

/// Holds each document's rows of what packed ones gave to what it gives alone.
void check_documents_alone(const testing::KernelCase& c, const TensorSet& packed, TileShape tile) {
  std::int64_t first = 0;
  for (const std::int64_t length : packed.problem().mask.numbers) {
    if (length == 0) continue;
    CAPTURE(first);
    AttentionProblem problem = packed.problem();
    problem.mask = {};
    problem.seqlen_q = problem.seqlen_k = length;
    TensorSet alone(problem);
    for (const TensorName name : kMaskInputs) {
      alone.allocate(name);
      copy_rows(packed[name], first, alone[name], 0, length);
    }
    testing::run_kernel(c, ProgramOptions::with_tile(tile), Direction::backward, alone);
    for (const TensorName name : kMaskResults) {
      CAPTURE(to_string(name));
      Tensor part = alone[name].as(alone[name].dtype());
      copy_rows(packed[name], first, part, 0, length);
      CHECK(testing::same_bits(part, alone[name]));
    }
    first += length;
  }
}

TEST_CASE("documents that begin where tiles do give each the bits that it has alone") {
  for (const bool causal : {true, false}) {
    for (const testing::KernelCase& c : testing::kernel_cases()) {
      CAPTURE(c.name());
      CAPTURE(causal);
      AttentionProblem problem = causal_problem();
      problem.causal = causal;
      problem.mask = {MaskKind::documents, {32, 0, 16, 48, 1}};
      problem.seqlen_q = problem.seqlen_k = 97;
      check_documents_alone(c, run_on_random_inputs(c, problem, kMaskTile), kMaskTile);
      problem.mask = {MaskKind::documents, {0, 5, 1, 0, 7, 1, 3}};  // tiles of one row begin anywhere
      problem.seqlen_q = problem.seqlen_k = 17;
      check_documents_alone(c, run_on_random_inputs(c, problem, {1, 1}), {1, 1});
    }
  }
}

TEST_CASE("a document of NaN is seen by none of the others") {
  AttentionProblem problem = causal_problem();
  problem.mask = {MaskKind::documents, {32, 16, 22}};
  for (const testing::KernelCase& c : testing::kernel_cases()) {
    if (c.kernel->algorithm == Algorithm::standard) continue;  // which multiplies what no query sees by 0
    CAPTURE(c.name());
    const TensorSet expected = run_on_random_inputs(c, problem, kMaskTile);
    TensorSet poisoned(problem);
    fill_random_inputs(poisoned, Direction::backward);
    for (const TensorName name : kMaskInputs) {
      Tensor& tensor = poisoned[name];
      for (std::int64_t head = 0; head < tensor.shape().heads; ++head) {
        for (std::int64_t row = 32; row < 48; ++row) {
          for (std::int64_t col = 0; col < tensor.shape().cols; ++col) {
            tensor.set(tensor.row_index(0, head, row) + col, std::numeric_limits<float>::quiet_NaN());
          }
        }
      }
    }
    testing::run_kernel(c, ProgramOptions::with_tile(kMaskTile), Direction::backward, poisoned);
    for (const TensorName name : kMaskResults) {
      CAPTURE(to_string(name));
      copy_rows(expected[name], 32, poisoned[name], 32, 16);
      CHECK(testing::same_bits(poisoned[name], expected[name]));
    }
  }
}

TEST_CASE("padding that holds NaN leaks through no mask") {
  for (const MaskModel& model : mask_models()) {
    CAPTURE(model.name);
    AttentionProblem problem = causal_problem();
    problem.causal = false;
    model.apply_example(problem, kMaskTile);
    problem.batch = 3;
    problem.key_lengths = {problem.seqlen_k - 5, 0, 1};
    for (const testing::KernelCase& c : testing::kernel_cases()) {
      CAPTURE(c.name());
      const TensorSet tensors = run_on_random_inputs(c, problem, kMaskTile);  // NaN behind the lengths
      for (const TensorName name : {TensorName::out, TensorName::dq, TensorName::dk, TensorName::dv}) {
        CAPTURE(to_string(name));
        bool finite = true;
        for (std::int64_t i = 0; i < tensors[name].shape().elements(); ++i) {
          finite = finite && std::isfinite(tensors[name].get(i));
        }
        CHECK(finite);
      }
    }
  }
}

}  // namespace
}  // namespace tilescope
