// SPDX-License-Identifier: Apache-2.0
// What the rows of the GPU kernels refuse, and in which words.
#include <doctest/doctest.h>

#include "gpu/registry/kernel_registry.hpp"

namespace tilescope {
namespace {

TEST_CASE("what a row does not list is refused, feature by feature") {
  const AttentionProblem all{.heads = 4,
                             .heads_kv = 2,
                             .seqlen_q = 64,
                             .seqlen_k = 64,
                             .head_dim = 64,
                             .dtype = ElementType::fp16,
                             .causal = true,
                             .window_left = 8,
                             .softmax_scale = -0.5,
                             .dropout = 0.1};
  for (const GpuKernel& rung : gpu_ladder()) {
    AttentionProblem problem = all;
    const FeatureSet can = rung.row.can.forward;
    if (!can.has(Feature::fp16)) problem.dtype = ElementType::fp32;
    if (!can.has(Feature::dropout)) problem.dropout = 0;
    const ProgramOptions options = rung.row.default_options(problem);
    CHECK(!rung.row.refusal(problem, Direction::forward, options));
    int needed = 0;
    for (int i = 0; i < kNumFeatures; ++i) {
      const auto feature = static_cast<Feature>(i);
      CAPTURE(to_string(feature));
      Kernel poorer = rung.row;
      poorer.can.forward = can.without({feature});
      const bool needs = required_features(problem).has(feature);
      needed += needs;
      CHECK(poorer.refusal(problem, Direction::forward, options).has_value() == needs);
      CHECK(!poorer.refusal(problem, Direction::backward, options));
    }
    CHECK(needed == 5 + (problem.dropout > 0));
  }
}

TEST_CASE("a refusal names the kernel, the reason and what takes the problem instead") {
  AttentionProblem problem{.heads = 2, .heads_kv = 2, .seqlen_q = 64, .seqlen_k = 64, .head_dim = 64};
  const Kernel& simt = find_gpu_kernel("gpu:flash2-simt").row;
  SUBCASE("element type") {
    problem.dtype = ElementType::fp16;
    const auto reason = simt.refusal(problem, Direction::forward, simt.default_options(problem));
    REQUIRE(reason);
    CHECK(*reason == "computes fp32 only, not fp16");
    const std::string sentence = refusal_sentence(simt, *reason, problem, Direction::forward);
    CHECK(sentence.find(
              "gpu:flash2-simt computes fp32 only, not fp16; it runs on gpu:standard, gpu:flash1") == 0);
    CHECK(sentence.find("gpu:flash2-simt", 1) == std::string::npos);
  }
  SUBCASE("tile shape") {
    ProgramOptions options = simt.default_options(problem);
    options[PassName::forward].tile = {48, 24};
    const auto reason = simt.refusal(problem, Direction::forward, options);
    REQUIRE(reason);
    CHECK(reason->find("is compiled for forward tiles of ") == 0);
    CHECK(reason->find("not 48x24") != std::string::npos);
    CHECK(!simt.refusal(problem, Direction::backward, options));
  }
  SUBCASE("tiles cut finer") {
    const Kernel& mma = find_gpu_kernel("gpu:flash2-mma").row;
    const auto refusal = [&](const Kernel& kernel, int slices, Direction direction,
                             BackwardOrder order = BackwardOrder::split) {
      ProgramOptions options = kernel.default_options(problem);
      options.diagonal_slices = slices;
      options.backward = order;
      return kernel.refusal(problem, direction, options).value_or("");
    };
    CHECK(refusal(simt, 2, Direction::forward) ==
          "computes the tiles that a mask cuts whole, not with diagonal-slices 2");
    problem.dtype = ElementType::fp16;
    CHECK(refusal(mma, 8, Direction::forward).empty());
    CHECK(refusal(mma, 4, Direction::backward).empty());
    CHECK(
        refusal(mma, 8, Direction::backward) ==
        "cuts tiles into parts whose sides are multiples of 16, which those of pass dq, 128x64, do not have "
        "with diagonal-slices 8");
    ProgramOptions in_parts = simt.default_options(problem);
    in_parts.diagonal_slices = 2;
    CHECK_THROWS_WITH_AS(require_supported(simt, problem, Direction::forward, in_parts),
                         doctest::Contains("runs on cpu:flash2, gpu:flash2-mma"), BadInput);
    CHECK(refusal(mma, 2, Direction::backward, BackwardOrder::single_launch) ==
          "computes the tiles that a mask cuts whole in the single-launch order, not with diagonal-slices 2");
    problem.dropout = 0.1;
    CHECK(refusal(mma, 2, Direction::forward) ==
          "cuts tiles finer only without dropout, not with diagonal-slices 2");
  }
  SUBCASE("fp8 has no backward pass on any rung") {
    problem.dtype = ElementType::fp8e4m3;
    for (const Kernel& kernel : gpu_kernels()) {
      CAPTURE(kernel.name);
      CHECK(kernel.refusal(problem, Direction::backward, kernel.default_options(problem)));
    }
  }
  SUBCASE("a way to sum fp8 that it has not, in fp8 alone") {
    problem.dtype = ElementType::fp8e4m3;
    const Kernel& flash3 = find_gpu_kernel("gpu:flash3").row;
    ProgramOptions options = flash3.default_options(problem);
    CHECK(options.fp8_sums == Fp8Sums::two_level);
    CHECK(!flash3.refusal(problem, Direction::forward, options));
    options.fp8_sums = Fp8Sums::fp32;
    CHECK(flash3.refusal(problem, Direction::forward, options) ==
          "sums products of fp8 two-level or fast, not fp32");
    problem.dtype = ElementType::fp16;
    options = flash3.default_options(problem);
    CHECK(options.fp8_sums == Fp8Sums::fp32);
    CHECK(!flash3.refusal(problem, Direction::forward, options));
  }
  SUBCASE("a variant that it has not, or not of this problem") {
    problem = {.heads = 2,
               .heads_kv = 2,
               .seqlen_q = 256,
               .seqlen_k = 256,
               .head_dim = 128,
               .dtype = ElementType::fp16};
    const auto refusal = [&](const char* name, Variant variant, Direction direction = Direction::forward) {
      const Kernel& kernel = find_gpu_kernel(name).row;
      ProgramOptions options = kernel.default_options(problem);
      options.variant = variant;
      if (kernel.name == "gpu:flash3") options[PassName::forward].tile = {128, 128};
      return kernel.refusal(problem, direction, options).value_or("");
    };
    for (const Variant variant : {Variant::no_ping_pong, Variant::no_overlap, Variant::serial}) {
      CHECK(refusal("gpu:flash3", variant) == "");
      CHECK(refusal("gpu:flash2-mma", variant) == "has no variant " + std::string(to_string(variant)));
    }
    CHECK(refusal("gpu:flash3-basic", Variant::unspecialised) == "");
    CHECK(refusal("gpu:flash2-mma", Variant::normalised) == "");
    CHECK(refusal("gpu:flash2-mma", Variant::normalised, Direction::backward) ==
          "has no variant normalised of its backward pass");
    problem.dtype = ElementType::bf16;
    CHECK(refusal("gpu:flash3", Variant::serial)
              .starts_with("has its variants in fp16 at head_dim 120 and 128"));
    CHECK(refusal("gpu:flash3-basic", Variant::unspecialised).starts_with("has its variant in fp16"));
    CHECK(refusal("gpu:flash2-mma", Variant::normalised).starts_with("normalises at each step in fp16"));
    CHECK(refusal("gpu:flash3", Variant::own) == "");
  }
  SUBCASE("a direction") {
    const Capabilities forward_alone{.forward = {Feature::fp32}, .backward = {}};
    CHECK(*missing_feature(forward_alone, problem, Direction::backward) == "has a forward pass alone");
  }
  SUBCASE("head dimensions") {
    constexpr int kDims[] = {64, 128};
    const Capabilities even{
        .forward = {Feature::fp16}, .backward = {}, .head_dims = kDims, .row_bytes_multiple = 16};
    problem.dtype = ElementType::fp16;
    problem.head_dim = 136;
    CHECK(*missing_feature(even, problem, Direction::forward) == "computes head_dim 128 and below, not 136");
    problem.head_dim = 100;
    CHECK(*missing_feature(even, problem, Direction::forward) ==
          "computes multiples of 8 as head_dim, not 100");
    problem.head_dim = 104;
    CHECK(!missing_feature(even, problem, Direction::forward));
    const Capabilities bytes{
        .forward = {Feature::fp8e4m3}, .backward = {}, .head_dims = kDims, .row_bytes_multiple = 16};
    problem.dtype = ElementType::fp8e4m3;
    CHECK(*missing_feature(bytes, problem, Direction::forward) ==
          "computes multiples of 16 as head_dim of fp8e4m3, not 104");
  }
}

}  // namespace
}  // namespace tilescope
