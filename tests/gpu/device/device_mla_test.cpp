// SPDX-License-Identifier: Apache-2.0
// gpu:mla-decode on a device: against its mirror tile by tile, and which schedules leave its bits as they
// are.
#include <doctest/doctest.h>

#include <algorithm>
#include <utility>

#include "tests/gpu/device/device_cases.hpp"

namespace tilescope {
namespace {

using namespace testing;
using enum TensorName;
using Kind = SplitPolicy::Kind;

const Kernel& mla_kernel() { return find_gpu_kernel("gpu:mla-decode").row; }

ProgramOptions mla_options(const AttentionProblem& problem, const SplitPolicy& splits, bool pack_gqa) {
  ProgramOptions options = mla_kernel().default_options(problem);
  options.splits = splits;
  options.pack_gqa = pack_gqa;
  return options;
}

TensorSet run_mla(TensorSet&& tensors, const ProgramOptions& options) {
  mla_kernel().run(options, Direction::forward, tensors, nullptr);
  return std::move(tensors);
}

void check_same_results(const TensorSet& a, const TensorSet& b) {
  CHECK(same_bits(a[out], b[out]));
  CHECK(same_bits(a[lse], b[lse]));
}

TEST_CASE("gpu:mla-decode: random problems, split and packed in any way, each tile as its mirror's") {
  const TileShape tile = mla_kernel().default_options({.head_dim = 576})[PassName::forward].tile;
  for (unsigned seed = 1; seed <= 16; ++seed) {
    ProblemGenerator random(seed);
    AttentionProblem problem = random.problem(tile);
    problem.seqlen_q = random.chance(0.6) ? random.between(1, 4) : problem.seqlen_q;
    problem.heads *= random.chance(0.3) ? 20 : 1;
    problem.head_dim = seed % 2 == 0 ? 576 : 8 * random.between(1, 72);
    problem.head_dim_v = seed % 2 == 0 ? 512 : 8 * random.between(1, 64);
    problem.head_dim_v = std::min(problem.head_dim_v, problem.head_dim);
    problem.shared_kv = true;
    problem.dtype = random.chance(0.5) ? ElementType::fp16 : ElementType::bf16;
    if (random.chance(0.2)) problem.softmax_scale = -0.2;
    if (random.chance(0.4)) problem = random.padded(problem);
    if (random.chance(0.5)) problem.page_size = std::int64_t{8} << random.between(0, 5);
    const SplitPolicy policies[] = {{},
                                    {Kind::number, random.between(1, 9)},
                                    {Kind::fixed, tile.block_n * random.between(1, 3)},
                                    {Kind::automatic, 30}};
    const ProgramOptions options = mla_options(problem, policies[seed % 4], random.chance(0.7));
    CAPTURE(seed);
    CAPTURE(to_string(options.splits));
    judge_on_device(mla_kernel(), problem, options, Direction::forward, true);
  }
}

TEST_CASE("gpu:mla-decode: 16 to 128 heads in tiles of 64 rows, beside sequences of no key and of one") {
  for (const int heads : {16, 32, 64, 128}) {
    for (const std::int64_t page_size : {0, 8, 128}) {
      CAPTURE(heads);
      CAPTURE(page_size);
      AttentionProblem problem{.batch = 4,
                               .heads = heads,
                               .heads_kv = 1,
                               .seqlen_q = 1,
                               .seqlen_k = 330,
                               .head_dim = 576,
                               .dtype = heads % 64 == 0 ? ElementType::bf16 : ElementType::fp16,
                               .key_lengths = {330, 0, 1, 65},
                               .head_dim_v = 512,
                               .shared_kv = true};
      problem.page_size = page_size;
      ProgramOptions options = mla_options(problem, {Kind::number, page_size == 8 ? 1 : 2}, true);
      options.set_tile({64, 64});
      judge_on_device(mla_kernel(), problem, options, Direction::forward, heads != 32);
    }
  }
}

/// Sequences of 100 and 333 keys, of which 20 heads with 4 queries have two q tiles.
AttentionProblem two_latent_sequences() {
  return {.batch = 2,
          .heads = 20,
          .heads_kv = 1,
          .seqlen_q = 4,
          .seqlen_k = 333,
          .head_dim = 576,
          .dtype = ElementType::bf16,
          .causal = true,
          .key_lengths = {100, 333},
          .head_dim_v = 512,
          .shared_kv = true};
}

TEST_CASE("gpu:mla-decode: heads that are packed change no bit") {
  const AttentionProblem problem = two_latent_sequences();
  const SplitPolicy three{Kind::number, 3};
  check_same_results(run_mla(with_inputs(problem), mla_options(problem, three, true)),
                     run_mla(with_inputs(problem), mla_options(problem, three, false)));
}

TEST_CASE("gpu:mla-decode: pages, of any size and in any order, change no bit") {
  const AttentionProblem problem = two_latent_sequences();
  const ProgramOptions options = mla_options(problem, {Kind::number, 2}, true);
  const TensorSet contiguous = run_mla(with_inputs(problem), options);
  for (const std::int64_t page_size : {8, 64, 256}) {
    CAPTURE(page_size);
    AttentionProblem paged = problem;
    paged.page_size = page_size;
    TensorSet inputs = with_inputs(paged);
    const KvPageTable other = draw_kv_pages(
        {.batch = 2, .seqlen_k = 333, .seed = 98, .key_lengths = {100, 333}, .page_size = page_size});
    REQUIRE(inputs.kv_pages().entries != other.entries);
    check_same_results(run_mla(with_inputs(paged), options), contiguous);
    inputs.lay_out_in_pages(other);
    check_same_results(run_mla(std::move(inputs), options), contiguous);
  }
}

TEST_CASE("gpu:mla-decode: splits of fixed length give a sequence the same bits beside longer ones") {
  AttentionProblem together = two_latent_sequences(), alone = together;
  alone.batch = 1;
  alone.key_lengths = {100};
  const SplitPolicy fixed{Kind::fixed, 64};
  const TensorSet both = run_mla(with_inputs(together), mla_options(together, fixed, true)),
                  one = run_mla(with_inputs(alone), mla_options(alone, fixed, true));
  const std::int64_t elements = one[out].shape().elements();
  for (std::int64_t i = 0; i < elements; ++i) REQUIRE(one[out].get(i) == both[out].get(i));
}

}  // namespace
}  // namespace tilescope
