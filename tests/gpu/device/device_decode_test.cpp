// SPDX-License-Identifier: Apache-2.0
// gpu:decode on a device: against its mirror tile by tile, and which schedules leave its bits as they are.
#include <doctest/doctest.h>

#include <cstring>
#include <utility>

#include "gpu/launch/device_session.hpp"
#include "tests/gpu/device/device_cases.hpp"

namespace tilescope {
namespace {

using namespace testing;
using enum TensorName;
using Kind = SplitPolicy::Kind;

const GpuKernel& decode_kernel() { return find_gpu_kernel("gpu:decode"); }

ProgramOptions decode_options(const AttentionProblem& problem, const SplitPolicy& splits, bool pack_gqa) {
  ProgramOptions options = decode_kernel().row.default_options(problem);
  options.splits = splits;
  options.pack_gqa = pack_gqa;
  return options;
}

TensorSet run(TensorSet&& tensors, const ProgramOptions& options) {
  decode_kernel().row.run(options, Direction::forward, tensors, nullptr);
  return std::move(tensors);
}

void check_same(const TensorSet& a, const TensorSet& b) {
  CHECK(same_bits(a[out], b[out]));
  CHECK(same_bits(a[lse], b[lse]));
}

/// Keys and values stored in fp8, whose rows are whole 16 bytes, with a descale of each head or without.
void fp8_keys(AttentionProblem& problem, bool descaled) {
  problem.kv_dtype = ElementType::fp8e4m3;
  problem.head_dim = std::max<std::int64_t>(16, problem.head_dim / 16 * 16);
  if (descaled) problem.descales.k = problem.descales.v = {Descale::From::random};
}

TEST_CASE("gpu:decode: random problems, split and packed in any way, each tile as its mirror's") {
  const Kernel& kernel = decode_kernel().row;
  for (unsigned seed = 1; seed <= 24; ++seed) {
    ProblemGenerator random(seed);
    const std::int64_t head_dim = 8 * random.between(1, 32);
    const TileShape tile = kernel.default_options({.head_dim = head_dim})[PassName::forward].tile;
    AttentionProblem problem = random.problem(tile);
    problem.seqlen_q = random.chance(0.5) ? random.between(1, 4) : problem.seqlen_q;
    problem.head_dim = head_dim;
    problem.dtype = random.chance(0.5) ? ElementType::fp16 : ElementType::bf16;
    if (random.chance(0.2)) problem.softmax_scale = -0.2;
    if (random.chance(0.4)) problem = random.padded(problem);
    if (random.chance(0.4)) problem.page_size = std::int64_t{8} << random.between(0, 5);
    if (seed % 3 == 0) fp8_keys(problem, random.chance(0.5));
    const SplitPolicy policies[] = {{},
                                    {Kind::number, random.between(1, 9)},
                                    {Kind::fixed, 2 * tile.block_n * random.between(1, 3)},
                                    {Kind::automatic, 30}};
    const ProgramOptions options = decode_options(problem, policies[seed % 4], random.chance(0.5));
    CAPTURE(seed);
    CAPTURE(to_string(options.splits));
    judge_on_device(kernel, problem, options, Direction::forward, true);
  }
}

TEST_CASE("gpu:decode: more splits than are weighted at once, of few rows and of many") {
  for (const std::int64_t queries : {1, 2, 4}) {  // rows whose splits four, two and one thread share
    AttentionProblem problem{.heads = 3, .heads_kv = 1, .seqlen_q = queries, .head_dim = 16};
    problem.dtype = ElementType::bf16;
    problem.seqlen_k =
        131 * decode_kernel().row.default_options({.head_dim = 16})[PassName::forward].tile.block_n;
    judge_on_device(decode_kernel().row, problem, decode_options(problem, {Kind::number, 131}, true),
                    Direction::forward, false);
  }
}

/// A batch of two sequences of 200 and 450 keys, the latter in a tensor of `keys`.
AttentionProblem two_sequences(std::int64_t keys) {
  return {.batch = 2,
          .heads = 12,
          .heads_kv = 3,
          .seqlen_q = 3,
          .seqlen_k = keys,
          .head_dim = 128,
          .dtype = ElementType::bf16,
          .key_lengths = {200, 450}};
}

TEST_CASE("gpu:decode: heads that are packed, and rows that lie apart, change no bit") {
  const AttentionProblem problem = two_sequences(450);
  const TensorSet inputs = with_inputs(problem);
  const ProgramOptions options = decode_options(problem, {Kind::number, 3}, true);
  const TensorSet packed = run(with_inputs(problem), options);
  check_same(run(with_inputs(problem), decode_options(problem, {Kind::number, 3}, false)), packed);

  DeviceSession session(decode_kernel().row, decode_kernel().launch, problem, Direction::forward, options,
                        TensorLayout::bnhd);
  for (const TensorName name : {q, k, v}) session.upload(name, inputs[name]);
  for (std::size_t pass = 0; pass < session.programs().size(); ++pass) session.launch(pass);
  session.synchronize();
  session.check_guards();
  Tensor apart(packed[out].shape(), packed[out].dtype());
  session.download(out, apart);
  session.synchronize();
  CHECK(same_bits(apart, packed[out]));
}

void check_pages(const AttentionProblem& problem) {
  const ProgramOptions options = decode_options(problem, {Kind::number, 3}, true);
  const TensorSet contiguous = run(with_inputs(problem), options);
  for (const std::int64_t page_size : {8, 16, 64, 256, 512}) {
    CAPTURE(page_size);
    AttentionProblem paged = problem;
    paged.page_size = page_size;
    TensorSet inputs = with_inputs(paged);
    const KvPageTable other = draw_kv_pages(
        {.batch = 2, .seqlen_k = 450, .seed = 98, .key_lengths = {200, 450}, .page_size = page_size});
    check_same(run(with_inputs(paged), options), contiguous);
    REQUIRE(inputs.kv_pages().entries != other.entries);
    inputs.lay_out_in_pages(other);
    check_same(run(std::move(inputs), options), contiguous);
  }
}

TEST_CASE("gpu:decode: pages, of any size and in any order, change no bit") {
  check_pages(two_sequences(450));
  AttentionProblem narrow = two_sequences(450);
  fp8_keys(narrow, true);
  check_pages(narrow);
  narrow.head_dim = 64;
  check_pages(narrow);
}

TEST_CASE("gpu:flash2-mma: pages, of any size and in any order, change no bit") {
  const GpuKernel& mma = find_gpu_kernel("gpu:flash2-mma");
  const auto out_of = [&mma](TensorSet&& tensors) {
    mma.row.run(mma.row.default_options(tensors.problem()), Direction::forward, tensors, nullptr);
    return std::move(tensors);
  };
  for (const std::int64_t head_dim : {40, 64, 128, 256}) {
    AttentionProblem problem = two_sequences(450);
    problem.seqlen_q = 300;
    problem.head_dim = head_dim;
    const TensorSet contiguous = out_of(with_inputs(problem));
    for (const std::int64_t page_size : {8, 16, 64, 512}) {
      CAPTURE(head_dim);
      CAPTURE(page_size);
      problem.page_size = page_size;
      check_same(out_of(with_inputs(problem)), contiguous);
    }
  }
}

TEST_CASE("gpu:flash2-mma: random problems in pages, each tile as its mirror's") {
  const Kernel& kernel = find_gpu_kernel("gpu:flash2-mma").row;
  for (unsigned seed = 1; seed <= 12; ++seed) {
    ProblemGenerator random(seed);
    const std::int64_t head_dim = 8 * random.between(1, 32);
    AttentionProblem problem =
        random.problem(kernel.default_options({.head_dim = head_dim})[PassName::forward].tile);
    problem.head_dim = head_dim;
    problem.dtype = random.chance(0.5) ? ElementType::fp16 : ElementType::bf16;
    problem.dropout = 0;
    if (random.chance(0.5)) problem = random.padded(problem);
    problem.page_size = std::int64_t{8} << random.between(0, 6);
    CAPTURE(seed);
    judge_on_device(kernel, problem, kernel.default_options(problem), Direction::forward, seed % 2 == 0);
  }
}

TEST_CASE("gpu:decode: descales of a power of two are the scale's and the output's") {
  AttentionProblem plain = two_sequences(450), descaled = plain;
  plain.kv_dtype = descaled.kv_dtype = ElementType::fp8e4m3;
  descaled.descales.k = {.value = 0.5};
  descaled.descales.v = {.value = 4.0};
  plain.softmax_scale = 0.5 * descaled.scale();
  const ProgramOptions options = decode_options(plain, {Kind::number, 3}, true);
  const TensorSet as_scale = run(with_inputs(plain), options),
                  as_descale = run(with_inputs(descaled), options);
  CHECK(same_bits(as_scale[lse], as_descale[lse]));
  const Tensor &expected = as_scale[out], &actual = as_descale[out];
  for (std::int64_t i = 0; i < expected.shape().elements(); ++i) {
    REQUIRE(actual.get(i) == 4.0f * expected.get(i));
  }
}

TEST_CASE("gpu:decode: splits of fixed length give a sequence the same bits beside longer ones") {
  const AttentionProblem shorter = two_sequences(450), longer = two_sequences(2500);
  TensorSet inputs = with_inputs(shorter);
  TensorSet padded(longer);
  padded[q] = inputs[q].as(shorter.dtype);
  for (const TensorName name : {k, v}) {
    const Tensor& from = inputs[name];
    Tensor& to = padded.allocate(name);  // NaN, where there are no keys
    for (std::int64_t batch = 0; batch < 2; ++batch) {
      for (std::int64_t head = 0; head < from.shape().heads; ++head) {
        std::memcpy(to.row(batch, head, 0), from.row(batch, head, 0),
                    static_cast<std::size_t>(2 * from.shape().rows * from.shape().cols));
      }
    }
  }
  const auto with = [](const AttentionProblem& problem) {
    return decode_options(problem, {Kind::fixed, 128}, true);
  };
  check_same(run(std::move(inputs), with(shorter)), run(std::move(padded), with(longer)));
}

}  // namespace
}  // namespace tilescope
