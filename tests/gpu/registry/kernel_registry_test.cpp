// SPDX-License-Identifier: Apache-2.0
// The rows of the GPU kernels: names, what stands before what, and what they say without a device.
#include "gpu/registry/kernel_registry.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <set>

#include "cpu_ref/judge/verify_cases.hpp"
#include "cpu_ref/numeric/random_inputs.hpp"
#include "gpu/kernels/flash3_basic/flash3_basic.hpp"
#include "gpu/registry/head_dim.hpp"
#include "tests/gpu/registry/kernel_shapes.hpp"

namespace tilescope {
namespace {

TEST_CASE("a kernel multiplies on what its chips have, in types that its unit takes") {
  std::set<MathUnit> units;
  for (const Kernel& kernel : gpu_kernels()) {
    CAPTURE(kernel.name);
    units.insert(kernel.math_unit);
    CHECK((kernel.math_unit == MathUnit::wgmma) == (kernel.chips.first == 90));
    CHECK((kernel.math_unit == MathUnit::cuda_cores) == kernel.can.forward.has(Feature::fp32));
  }
  CHECK(units == std::set{MathUnit::cuda_cores, MathUnit::mma_sync, MathUnit::wgmma});
}

TEST_CASE("every rung has a row with its own name, and is found by it") {
  std::set<std::string_view> names;
  REQUIRE(!gpu_kernels().empty());
  for (const GpuKernel& rung : gpu_kernel_rungs()) {
    CAPTURE(rung.row.name);
    CHECK(rung.row.name.substr(0, 4) == "gpu:");
    CHECK(!rung.row.summary.empty());
    CHECK(names.insert(rung.row.name).second);
    CHECK(&find_gpu_kernel(rung.row.name) == &rung);
    CHECK((rung.row.run != nullptr) == kHasCuda);
    CHECK((rung.launch != nullptr) == kHasCuda);
  }
  CHECK(names.size() == gpu_kernels().size());
  CHECK_THROWS_WITH_AS(find_gpu_kernel("gpu:flash9"), doctest::Contains("gpu:flash2-simt"), BadInput);
}

TEST_CASE(
    "every rung of the ladder takes fp32 or a narrower type in both directions, at every head dimension of "
    "its multiple up to the largest that it is compiled for") {
  for (const GpuKernel& rung : gpu_ladder()) {
    CAPTURE(rung.row.name);
    std::set<std::int64_t> head_dims, expected;
    for (const std::int64_t head_dim : testing::kShapeHeadDims) {
      const bool small = rung.row.can.head_dims.empty() || head_dim <= rung.row.can.head_dims.back();
      if (small && head_dim % rung.row.can.head_dim_multiple(ElementType::fp16) == 0)
        expected.insert(head_dim);
    }
    testing::for_each_shape(rung, [&](const AttentionProblem& problem, const ProgramOptions& options) {
      head_dims.insert(problem.head_dim);
      if (!is_fp8(problem.dtype)) CHECK(!rung.row.refusal(problem, Direction::backward, options));
    });
    CHECK(head_dims == expected);
    CHECK(head_dims.contains(rung.row.name == Flash3Basic::name ? 128 : 256));
  }
}

/// Whether it takes none but problems whose values are columns of the keys.
bool takes_shared_kv_alone(const Kernel& kernel) {
  AttentionProblem problem{.head_dim = 64, .dtype = ElementType::fp16};
  return kernel.refusal(problem, Direction::forward, kernel.default_options(problem)).has_value();
}

TEST_CASE("each case of the sweep that a rung does not refuse makes programs, with tiles of its own choice") {
  for (const GpuKernel& rung : gpu_kernel_rungs()) {
    CAPTURE(rung.row.name);
    int made = 0;
    for (const std::int64_t head_dim : {64, 96, 128, 256}) {
      const AttentionProblem large{
          .seqlen_q = 4096, .seqlen_k = 4096, .head_dim = head_dim, .dtype = ElementType::fp16};
      const TileShape tile = rung.row.default_options(large)[PassName::forward].tile;
      for (const VerifyCase& c : verify_cases(tile, SweepSize::normal, head_dim)) {
        const ProgramOptions options = case_options(c, rung.row);
        if (rung.row.refusal(c.problem, Direction::forward, options)) continue;
        CHECK_NOTHROW(rung.row.programs(Direction::forward, c.problem, options));
        ++made;
      }
    }
    // The sweep has 10 problems whose values are columns of the keys, of which two are of fp32.
    CHECK(made >= (takes_shared_kv_alone(rung.row) ? 4 * 8 : 100));
  }
}

TEST_CASE("ranks launch the highest rung first, of kernels whose launches can add to the same dQ") {
  const std::vector<const Kernel*> kernels = rank_kernels();
  REQUIRE(kernels.size() > 1);
  for (std::size_t i = 0; i < kernels.size(); ++i) {
    CAPTURE(kernels[i]->name);
    CHECK((i == 0 || kernels[i - 1]->rung > kernels[i]->rung));
    CHECK(kernels[i]->on_gpu());
    const AttentionProblem problem{.head_dim = 64, .dtype = ElementType::fp16};
    const ProgramOptions options = options_with_shared_dq(*kernels[i], problem);
    CHECK(!kernels[i]->refusal(problem, Direction::backward, options));
    bool fused = false;
    for (const TileProgram& pass : kernels[i]->programs(Direction::backward, problem, options)) {
      fused |= pass.name == PassName::dkdvdq;
      CHECK(pass.dq_start == DqStart::cleared);
    }
    CHECK(fused);
  }
}

TEST_CASE(
    "the ladder has one kernel a rung, and those beside it have a tile that a rung has too, or problems for "
    "which they stand before it") {
  int rung = 0;
  for (const GpuKernel& kernel : gpu_ladder()) CHECK(kernel.row.rung == ++rung);
  CHECK(rung >= 4);
  for (const Kernel& kernel : gpu_kernels()) {
    if (kernel.rung != 0) continue;
    CAPTURE(kernel.name);
    const AttentionProblem problem{
        .head_dim = 64, .dtype = ElementType::fp16, .shared_kv = takes_shared_kv_alone(kernel)};
    const ProgramOptions own = kernel.default_options(problem);
    CHECK(!kernel.refusal(problem, Direction::forward, own));
    if (kernel.first_choice) continue;
    const auto takes = [&](const GpuKernel& other) {
      return !other.row.refusal(problem, Direction::forward, own);
    };
    CHECK(std::any_of(gpu_ladder().begin(), gpu_ladder().end(), takes));
  }
}

TEST_CASE(
    "gpu:decode stands before the ladder where the rows of a group fill one of its tiles, splits and packs") {
  const Kernel& decode = find_gpu_kernel("gpu:decode").row;
  AttentionProblem problem{.heads = 32,
                           .heads_kv = 8,
                           .seqlen_q = 1,
                           .seqlen_k = 65536,
                           .head_dim = 128,
                           .dtype = ElementType::bf16};
  const auto passes = [&] {
    return decode.programs(Direction::forward, problem, decode.default_options(problem));
  };
  CHECK(decode.first_choice(problem));
  REQUIRE(passes().size() == 2);
  CHECK(passes()[0].num_ctas() == 8 * passes()[0].splits.count);  // a q tile a group
  CHECK(passes()[0].splits.count == 32);                          // 256 CTAs, of 264 that fit at once
  problem.batch = 2;  // 16 walks: with a CTA an SM head_dim 64 would be bound by what one takes
  problem.head_dim = 64;
  CHECK(passes()[0].num_ctas() > 132);
  problem.head_dim = 128;
  problem.batch = 8;
  problem.key_lengths = {65536, 300, 300, 300, 300, 300, 300, 300};
  CHECK(passes()[0].splits.tiles >= 4);  // the long one is split as finely as it would be alone, or finer
  CHECK(passes()[0].splits.tiles <= 64);
  problem.key_lengths = std::vector<std::int64_t>(8, 65536);
  CHECK(passes()[0].splits.tiles == 0);
  problem.key_lengths.clear();
  problem.batch = 1;
  problem.seqlen_q = 4;
  CHECK(decode.first_choice(problem));
  problem.seqlen_q = 5;  // 20 rows
  CHECK(!decode.first_choice(problem));
  problem.batch = 64;  // all SMs have a q tile by themselves
  CHECK(passes().size() == 1);
}

TEST_CASE("gpu:mla-decode stands before all others where values are columns of the keys, splits and packs") {
  const Kernel& mla = find_gpu_kernel("gpu:mla-decode").row;
  AttentionProblem problem = find_preset("deepseek-mla").problem;
  const auto refusal = [&] { return mla.refusal(problem, Direction::forward, mla.default_options(problem)); };
  const auto refused = [&](const char* why) { return refusal().value_or("").find(why) != std::string::npos; };
  CHECK(mla.first_choice(problem));
  CHECK(!refusal());
  for (const GpuKernel& rung : gpu_kernel_rungs()) {
    CAPTURE(rung.row.name);
    const ProgramOptions own = rung.row.default_options(problem);
    CHECK(rung.row.refusal(problem, Direction::forward, own).has_value() == (&rung.row != &mla));
    CHECK(rung.row.refusal(problem, Direction::backward, own));
  }
  const auto passes = mla.programs(Direction::forward, problem, mla.default_options(problem));
  REQUIRE(passes.size() == 2);
  CHECK(passes[0].num_ctas() == 32 * 2 * passes[0].splits.count);  // two q tiles of 64 heads a sequence
  CHECK(passes[0].splits.count == 2);
  const auto traffic = tensor_extent(problem, TensorName::v).bytes();
  CHECK(traffic == std::int64_t{32} * 4096 * 512 * 2);
  for (const std::vector<Operand>& phase : passes[0].phases) {
    for (const Operand& operand : phase) CHECK(operand.tensor == TensorName::k);
  }
  problem.head_dim_v = 520;
  CHECK(refused("head_dim_v 512 and below, not 520"));
  problem.head_dim_v = 500;
  CHECK(refused("multiples of 8 as head_dim_v, not 500"));
  problem.head_dim_v = 512;
  problem.head_dim = 572;
  CHECK(refused("multiples of 8 as head_dim, not 572"));
  problem.head_dim = 576;
  problem.kv_dtype = ElementType::fp8e4m3;
  CHECK(refused("kv_dtype must be left out"));
  problem.kv_dtype.reset();
  problem.shared_kv = false;
  CHECK(refused("shared_kv must be on"));
  CHECK(!mla.first_choice(problem));
  problem.shared_kv = true;
  for (const Chip& chip : kChips) {
    CHECK(mla.chip_lack(chip, problem, Direction::forward, mla.default_options(problem)).has_value() ==
          (chip.shared_bytes_per_cta < 150 * 1024));
  }
}

TEST_CASE("head dimensions are padded up to the next compiled one") {
  CHECK(padded_head_dim(1) == 16);
  for (int compiled : kCompiledHeadDims) {
    CHECK(padded_head_dim(compiled) == compiled);
    CHECK(padded_head_dim(compiled - 1) == compiled);
    int dispatched = 0;
    dispatch_head_dim(compiled, [&]<int Dim>() { dispatched = Dim; });
    CHECK(dispatched == compiled);
  }
}

TEST_CASE("without a device a kernel says what is missing, and leaves the tensors alone") {
  const auto lack = device_lack();
  if (!lack) return;  // this machine has one: the device tests run instead
  CHECK(lack->find("cpu: kernels") != std::string::npos);
  const AttentionProblem problem{.seqlen_q = 8, .seqlen_k = 8, .head_dim = 16};
  for (const GpuKernel& rung : gpu_kernel_rungs()) {
    if (!rung.row.run) continue;
    AttentionProblem taken = problem;
    taken.shared_kv = rung.row.can.forward.has(Feature::shared_kv);
    if (rung.row.refusal(taken, Direction::forward, rung.row.default_options(taken))) {
      taken.dtype = ElementType::fp16;
    }
    TensorSet tensors(taken);
    fill_random_inputs(tensors, Direction::forward);
    CHECK_THROWS_AS(rung.row.run(rung.row.default_options(taken), Direction::forward, tensors, nullptr),
                    MachineLacks);
    CHECK(!tensors.has(TensorName::out));
  }
}

}  // namespace
}  // namespace tilescope
