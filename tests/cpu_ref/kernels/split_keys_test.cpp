// SPDX-License-Identifier: Apache-2.0
// Split keys and packed heads: other schedules of the same attention, whose bits say what they may change.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

#include "cpu_ref/judge/equivalence.hpp"
#include "cpu_ref/judge/locate.hpp"
#include "tests/cpu_ref/kernels/kernel_cases.hpp"
#include "tests/random_problems.hpp"

namespace tilescope {
namespace {

using Kind = SplitPolicy::Kind;

const Kernel& splitting_kernel() { return cpu_kernels().back(); }

/// out and lse on the inputs of `tensors`.
void run_forward(const ProgramOptions& options, TensorSet& tensors, TileObserver* observer = nullptr) {
  splitting_kernel().run(options, Direction::forward, tensors, observer);
}

TensorSet random_inputs(const AttentionProblem& problem) {
  TensorSet tensors(problem);
  fill_random_inputs(tensors, Direction::forward);
  return tensors;
}

using testing::copy_row;
using testing::same_bits;

SplitPolicy random_policy(testing::ProblemGenerator& random, int block_n) {
  if (random.chance(0.4)) return {Kind::fixed, block_n * random.between(1, 4)};
  if (random.chance(0.3)) return {Kind::automatic, random.between(1, 40)};
  return {Kind::number, random.between(1, 9)};
}

TEST_CASE("split and packed, random problems lie within the judge's bound, and do what their programs say") {
  for (unsigned seed = 0; seed < 80; ++seed) {
    testing::ProblemGenerator random(seed);
    const TileShape tile = random.tile(24);
    AttentionProblem p = random.problem(tile);
    p.dtype = kElementTypes[seed % 5];
    if (random.chance(0.25)) p.dropout = 0.25;
    if (random.chance(0.3)) p = random.padded(p);
    if (random.chance(0.3)) p.seqlen_q = random.between(1, 3);
    if (seed % 2 == 0) p = random.masked(p);
    if (seed % 4 == 1) p = random.with_fp8_keys(p);
    if (seed % 4 == 3) p = random.with_shared_kv(p);
    ProgramOptions options = ProgramOptions::with_tile(tile);
    options.splits = random_policy(random, tile.block_n);
    options.pack_gqa = random.chance(0.5);
    options.order = random.chance(0.5) ? TileOrder::row_major : TileOrder::longest_first;
    CAPTURE(seed);
    CAPTURE(describe(p));
    CAPTURE(to_string(options.splits));
    CAPTURE(options.pack_gqa);
    Reference reference(p, InputKind::normal, Direction::forward);
    TileObserver observer;
    reference.run(splitting_kernel(), options, Direction::forward, &observer);
    CHECK(reference.judge(Direction::forward).passed());
    const auto check_log = [&] {
      const auto where =
          first_divergence(reference, splitting_kernel(), options, Direction::forward, observer);
      if (where) FAIL_CHECK(describe(*where, p));
    };
    check_log();
    for (PassLog& log : observer.passes) log.has_accesses = false;  // as a GPU kernel's
    check_log();
  }
}

TEST_CASE("fp8 keys beside wider queries: results of the same numbers stored wide, and half of the bytes") {
  for (const ElementType dtype : {ElementType::fp32, ElementType::fp16}) {
    AttentionProblem narrow{
        .batch = 2, .heads = 6, .heads_kv = 3, .seqlen_q = 5, .seqlen_k = 70, .head_dim = 24, .dtype = dtype};
    narrow.key_lengths = {70, 33};
    AttentionProblem wide = narrow;
    narrow.kv_dtype = ElementType::fp8e4m3;
    narrow.descales.k = {.value = 0.25};
    narrow.descales.v = {.value = 2.0};
    TensorSet of_narrow = random_inputs(narrow), of_wide(wide);
    of_wide[TensorName::q] = of_narrow[TensorName::q].as(dtype);
    for (const TensorName name : {TensorName::k, TensorName::v}) {
      Tensor& values = of_wide.allocate(name);
      for (std::int64_t i = 0; i < values.shape().elements(); ++i) {
        values.set(i, of_narrow[name].get(i) * of_narrow.descale(name, 0, 0, 0));
      }
    }
    const ProgramOptions options = ProgramOptions::with_tile({16, 16});
    run_forward(options, of_narrow);
    run_forward(options, of_wide);
    for (const TensorName name : {TensorName::out, TensorName::lse}) {
      const Tensor &narrow_result = of_narrow[name], &wide_result = of_wide[name];
      if (dtype == ElementType::fp32) {
        CHECK(same_bits(narrow_result, wide_result));
        continue;
      }
      // P in fp16 is kept 2^15 times as large beside fp8: its exponents are rounded elsewhere.
      const float most = name == TensorName::out ? 0x1p-9f : 0x1p-20f;
      for (std::int64_t i = 0; i < wide_result.shape().elements(); ++i) {
        REQUIRE(std::abs(narrow_result.get(i) - wide_result.get(i)) <=
                most * std::max(1.0f, std::abs(wide_result.get(i))));
      }
    }
    for (const TensorName name : {TensorName::k, TensorName::v}) {
      CHECK(tensor_extent(wide, name).bytes() == element_bytes(dtype) * tensor_extent(narrow, name).bytes());
    }
  }
}

TEST_CASE("automatic splits share out what is visited, and no tiles that a window hides") {
  AttentionProblem problem{
      .batch = 2, .heads = 4, .heads_kv = 4, .seqlen_q = 1, .seqlen_k = 4096, .head_dim = 16};
  ProgramOptions options = ProgramOptions::with_tile({16, 64});
  options.splits = {Kind::automatic, 132};
  const auto splits = [&] {
    return build_programs(Algorithm::flash2, Direction::forward, problem, options).front().splits.count;
  };
  CHECK(splits() == 16);  // 128 CTAs, of 64 tiles
  problem.key_lengths = {4096, 640};
  CHECK(splits() == 16);  // by the longest sequence
  problem.key_lengths = {640, 640};
  CHECK(splits() == 10);  // 80 CTAs; of nine splits four would have nothing
  problem.key_lengths = {};
  problem.causal = true;
  problem.window_left = 639;
  CHECK(splits() == 10);
  problem.window_left = 255;  // four tiles
  CHECK(splits() == 1);
}

TEST_CASE("automatic splits of sequences of very different lengths have tiles of their own number") {
  AttentionProblem p{.batch = 4, .heads = 8, .heads_kv = 2, .seqlen_q = 1, .seqlen_k = 64000, .head_dim = 64};
  ProgramOptions options = ProgramOptions::with_tile({16, 64});
  options.splits = {Kind::automatic, 10};
  options.pack_gqa = true;
  const auto keys = [&] {
    return build_programs(Algorithm::flash2, Direction::forward, p, options).front().splits;
  };
  CHECK(keys() == SplitKeys{1});  // 8 tiles fill four fifths of the SMs
  p.key_lengths = {64000, 640, 640, 640};
  // 2 heads of 1000 and 3 times 10 tiles are 206 an SM.
  CHECK(keys() == SplitKeys{5, 206});
  p.key_lengths = {64000, 60000, 64000, 64000};
  CHECK(keys() == SplitKeys{1});
  p.seqlen_k = 256;
  p.key_lengths = {256, 1, 1, 1};
  CHECK(keys() == SplitKeys{1});  // nothing is long
}

TEST_CASE("the tiles that a band leaves packed rows are those that its mask leaves them") {
  for (unsigned seed = 0; seed < 200; ++seed) {
    testing::ProblemGenerator random(seed);
    const TileShape tile = random.tile(24);
    AttentionProblem problem = random.problem(tile);
    problem.seqlen_q = random.between(1, 40);
    if (random.chance(0.4)) problem = random.padded(problem);
    CAPTURE(seed);
    CAPTURE(describe(problem));
    const int rows = static_cast<int>(problem.group_size() * problem.seqlen_q);
    for (std::int64_t entry = 0; entry < problem.batch; ++entry) {
      for (int block = 0; block < ceil_div(rows, tile.block_m); ++block) {
        const TileRuns expected = problem.mask_of(entry).packed_kv_tiles(tile, rows, block);
        const TileRange range = packed_kv_tiles(problem.band(entry), tile, rows, block);
        CHECK(expected.count() == range.count());
        for (int step = 0; step < range.count(); ++step) {
          CHECK(expected[step] == range.begin + step);
          CHECK(expected.full(range.begin + step) == range.full(range.begin + step));
        }
      }
    }
  }
}

TEST_CASE("one query behind its keys is the last row of dense causal attention, split or not") {
  const AttentionProblem dense{.batch = 2,
                               .heads = 4,
                               .heads_kv = 2,
                               .seqlen_q = 150,
                               .seqlen_k = 150,
                               .head_dim = 16,
                               .causal = true};
  AttentionProblem last = dense;
  last.seqlen_q = 1;
  const ProgramOptions options = ProgramOptions::with_tile({16, 16});
  TensorSet all = random_inputs(dense), one(last);
  run_forward(options, all);
  one[TensorName::k] = all[TensorName::k].as(dense.dtype);
  one[TensorName::v] = all[TensorName::v].as(dense.dtype);
  one.allocate(TensorName::q);
  for (std::int64_t batch = 0; batch < dense.batch; ++batch) {
    for (std::int64_t head = 0; head < dense.heads; ++head) {
      copy_row(all[TensorName::q], batch, head, 149, one[TensorName::q], batch, 0);
    }
  }
  for (const bool pack_gqa : {false, true}) {
    for (const SplitPolicy splits :
         {SplitPolicy{}, SplitPolicy{Kind::number, 3}, SplitPolicy{Kind::fixed, 32}}) {
      CAPTURE(to_string(splits));
      CAPTURE(pack_gqa);
      ProgramOptions decode = options;
      decode.splits = splits;
      decode.pack_gqa = pack_gqa;
      run_forward(decode, one);
      for (std::int64_t batch = 0; batch < dense.batch; ++batch) {
        for (std::int64_t head = 0; head < dense.heads; ++head) {
          for (const TensorName name : {TensorName::out, TensorName::lse}) {
            const Tensor &from = all[name], &to = one[name];
            for (std::int64_t col = 0; col < from.shape().cols; ++col) {
              const float expected = from.get(from.row_index(batch, head, 149) + col);
              const float value = to.get(to.row_index(batch, head, 0) + col);
              if (splits == SplitPolicy{}) CHECK(value == expected);
              CHECK(std::abs(value - expected) < 1e-5f);
            }
          }
        }
      }
    }
  }
}

TEST_CASE("splits of fixed length give a sequence the same bits in any batch") {
  for (unsigned seed = 0; seed < 20; ++seed) {
    testing::ProblemGenerator random(seed);
    const std::vector<std::int64_t> lengths = {random.between(1, 90), 90, random.between(0, 30)};
    AttentionProblem batch{.batch = 3,
                           .heads = 4,
                           .heads_kv = 2,
                           .seqlen_k = 90,
                           .head_dim = 24,
                           .dtype = kElementTypes[seed % 3],
                           .key_lengths = lengths};
    ProgramOptions options = ProgramOptions::with_tile({8, 8});
    options.splits = {Kind::fixed, 8 * random.between(1, 4)};
    options.pack_gqa = seed % 2 == 0;
    CAPTURE(seed);
    TensorSet together = random_inputs(batch);
    run_forward(options, together);
    for (std::int64_t entry = 0; entry < 3; ++entry) {
      AttentionProblem alone = batch;
      alone.batch = 1;
      alone.seqlen_k = std::max<std::int64_t>(1, lengths[static_cast<std::size_t>(entry)]);
      alone.key_lengths = {};
      if (lengths[static_cast<std::size_t>(entry)] == 0) alone.key_lengths = {0};
      TensorSet tensors(alone);
      for (const TensorName name : {TensorName::q, TensorName::k, TensorName::v}) {
        Tensor& to = tensors.allocate(name);
        for (std::int64_t head = 0; head < to.shape().heads; ++head) {
          for (std::int64_t row = 0; row < to.shape().rows; ++row) {
            copy_row(together[name], entry, head, row, to, 0, row);
          }
        }
      }
      run_forward(options, tensors);
      for (const TensorName name : {TensorName::out, TensorName::lse}) {
        const Tensor &its = tensors[name], &all = together[name];
        CAPTURE(to_string(name));
        CHECK(std::memcmp(its.data(), all.row(entry, 0, 0), static_cast<std::size_t>(its.bytes())) == 0);
      }
    }
  }
}

TEST_CASE("packed heads give the bits of heads apart") {
  for (unsigned seed = 0; seed < 60; ++seed) {
    testing::ProblemGenerator random(seed);
    const TileShape tile = random.tile(24);
    AttentionProblem p = random.problem(tile);
    p.dtype = kElementTypes[seed % 3];
    if (random.chance(0.3)) p.dropout = 0.25;
    if (random.chance(0.3)) p = random.padded(p);
    ProgramOptions options = ProgramOptions::with_tile(tile);
    // Where a window ends differs from tile to tile, so that shares of equal size would too.
    if (random.chance(0.5)) options.splits = {Kind::fixed, tile.block_n * random.between(1, 3)};
    CAPTURE(seed);
    CAPTURE(describe(p));
    TensorSet tensors = random_inputs(p);
    run_forward(options, tensors);
    const Tensor out = tensors[TensorName::out].as(tensors[TensorName::out].dtype());
    const Tensor lse = tensors[TensorName::lse].as(ElementType::fp32);
    options.pack_gqa = true;
    run_forward(options, tensors);
    CHECK(same_bits(tensors[TensorName::out], out));
    CHECK(same_bits(tensors[TensorName::lse], lse));
  }
}

TEST_CASE("rows without a key stay 0 and -inf behind empty splits") {
  // Of 20 queries the last 7 see keys; two of the five splits have none.
  const AttentionProblem p{
      .heads = 2, .heads_kv = 1, .seqlen_q = 20, .seqlen_k = 7, .head_dim = 8, .causal = true};
  ProgramOptions options = ProgramOptions::with_tile({4, 4});
  options.splits = {Kind::number, 5};
  for (const bool pack_gqa : {false, true}) {
    options.pack_gqa = pack_gqa;
    TensorSet tensors = random_inputs(p);
    run_forward(options, tensors);
    const Tensor &out = tensors[TensorName::out], &lse = tensors[TensorName::lse];
    for (std::int64_t row = 0; row < 40; ++row) {
      const bool sees = row % 20 >= 13;
      CHECK(std::isinf(lse.get(row)) == !sees);
      CHECK((out.get(row * 8) != 0) == sees);
    }
  }
}

}  // namespace
}  // namespace tilescope
