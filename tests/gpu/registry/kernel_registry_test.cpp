// SPDX-License-Identifier: Apache-2.0
// What can be told about the GPU kernels without a device: their rows, tiles, budgets and refusals.
#include "gpu/registry/kernel_registry.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <set>

#include "cpu_ref/judge/verify_cases.hpp"
#include "cpu_ref/numeric/random_inputs.hpp"
#include "gpu/kernels/flash2_simt/flash2_simt.hpp"
#include "gpu/kernels/flash3_basic/flash3_basic.hpp"
#include "gpu/registry/head_dim.hpp"

namespace tilescope {
namespace {

// CUDA C++ Programming Guide, table of technical specifications per compute capability.
constexpr std::int64_t kSharedBytesPerSmSm90 = 228 * 1024;
constexpr std::int64_t kSharedBytesReservedPerCta = 1024;

constexpr int kShapeHeadDims[] = {1, 15, 16, 17, 32, 64, 65, 96, 128, 129, 192, 200, 256};

/// Every combination of compiled and uncompiled head dimensions with the element types a rung takes.
template <typename Visit>
void for_each_shape(const GpuKernel& rung, Visit&& visit) {
  for (const int head_dim : kShapeHeadDims) {
    for (ElementType dtype : kElementTypes) {
      AttentionProblem problem{
          .heads = 4, .heads_kv = 2, .seqlen_q = 333, .seqlen_k = 500, .head_dim = head_dim, .dtype = dtype};
      problem.causal = head_dim % 2 == 0;
      problem.shared_kv = rung.row.can.forward.has(Feature::shared_kv);
      const ProgramOptions options = rung.row.default_options(problem);
      if (rung.row.refusal(problem, Direction::forward, options)) continue;
      visit(problem, options);
    }
  }
}

/// The passes of both directions, the backward ones in every order that the rung has.
std::vector<TileProgram> all_programs(const GpuKernel& rung, const AttentionProblem& problem,
                                      ProgramOptions options) {
  std::vector<TileProgram> all = rung.row.programs(Direction::forward, problem, options);
  std::vector<BackwardOrder> orders = rung.row.backward_orders;
  if (orders.empty()) orders.push_back(options.backward);
  for (BackwardOrder order : orders) {
    options.backward = order;
    if (rung.row.refusal(problem, Direction::backward, options)) continue;
    for (TileProgram& program : rung.row.programs(Direction::backward, problem, options)) {
      all.push_back(std::move(program));
    }
  }
  return all;
}

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
    for (const std::int64_t head_dim : kShapeHeadDims) {
      const bool small = rung.row.can.head_dims.empty() || head_dim <= rung.row.can.head_dims.back();
      if (small && head_dim % rung.row.can.head_dim_multiple(ElementType::fp16) == 0)
        expected.insert(head_dim);
    }
    for_each_shape(rung, [&](const AttentionProblem& problem, const ProgramOptions& options) {
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
  CHECK(passes()[0].splits.count == 16);                          // 128 of 132 SMs
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

TEST_CASE("every pass fits the SM of every chip that its row names for A100 and H100") {
  for (const GpuKernel& rung : gpu_kernel_rungs()) {
    for (const Chip& chip : {kSm80, kSm90}) {
      if (!rung.row.chips.has(chip.compute_capability)) continue;
      for_each_shape(rung, [&](const AttentionProblem& problem, const ProgramOptions& options) {
        for (const TileProgram& program : all_programs(rung, problem, options)) {
          CAPTURE(rung.row.name);
          CAPTURE(describe(problem));
          CAPTURE(to_string(program.name));
          const LaunchShape shape = rung.row.launch_shape(program, chip);
          CHECK(shape.threads_per_cta >= 32);
          CHECK(shape.threads_per_cta <= 1024);
          CHECK(shape.threads_per_cta % 32 == 0);
          CHECK(shape.shared_bytes >= 0);
          CHECK(shape.shared_bytes <= chip.shared_bytes_per_cta);
        }
      });
    }
  }
}

TEST_CASE("a chip with less shared memory runs the kernels that fit, and the others say what they lack") {
  AttentionProblem problem{.seqlen_q = 256, .seqlen_k = 256, .head_dim = 64, .dtype = ElementType::fp16};
  for (const Chip& chip : {kSm86, kSm89}) {
    int able = 0, lacking = 0;
    for (const Kernel& kernel : gpu_kernels()) {
      CAPTURE(kernel.name);
      const ProgramOptions options = kernel.default_options(problem);
      if (kernel.refusal(problem, Direction::forward, options)) continue;
      const auto lack = kernel.chip_lack(chip, problem, Direction::forward, options);
      ++(lack ? lacking : able);
      if (!lack) continue;
      const bool newer = !kernel.chips.has(chip.compute_capability);
      CHECK(lack->find(newer ? "needs compute capability 9.0" : "KiB of shared memory") != std::string::npos);
      const std::string sentence = refusal_sentence(kernel, *lack, problem, Direction::forward, chip);
      if (!newer) CHECK(sentence.find(chip.name()) != std::string::npos);
      CHECK(sentence.find("it runs on ") != std::string::npos);
    }
    CHECK(able > 0);
    CHECK(lacking > 0);
  }
}

TEST_CASE("a kernel's instructions exist on the chips of its row alone") {
  Kernel kernel = gpu_kernels().front();
  const AttentionProblem problem{.head_dim = 64};
  const ProgramOptions options = kernel.default_options(problem);
  const auto lack = [&](Chip chip) { return kernel.chip_lack(chip, problem, Direction::forward, options); };
  CHECK(*lack({70, 96 * 1024}) == "needs compute capability 8.0 or newer, this device has 7.0");
  CHECK(!lack(kSm80));
  kernel.chips = {.first = 90, .last = 90};
  CHECK(!lack(kSm90));
  CHECK(*lack(kSm80) == "needs compute capability 9.0, this device has 8.0");
  CHECK(*lack({100, 227 * 1024}) == "needs compute capability 9.0, this device has 10.0");
}

TEST_CASE("a build without the tuner has each kernel's own tiles, whole, and says what to build for others") {
  const AttentionProblem problem{.head_dim = 64, .dtype = ElementType::fp16, .causal = true};
  int others = 0, cut = 0;
  for (const Kernel& kernel : gpu_kernels()) {
    ProgramOptions options = kernel.default_options(problem);
    if (kernel.refusal(problem, Direction::forward, options)) continue;
    CAPTURE(kernel.name);
    const auto check_lack = [&](const ProgramOptions& asked) {
      const auto lack = build_lack(kernel, problem, Direction::forward, asked);
      CHECK(lack.has_value() == !kHasTuner);
      if (lack) CHECK(lack->find("-D TILESCOPE_TUNER=ON") != std::string::npos);
    };
    CHECK(!build_lack(kernel, problem, Direction::forward, options));
    ProgramOptions in_slices = options;
    in_slices.diagonal_slices = 4;
    if (!kernel.refusal(problem, Direction::forward, in_slices)) {
      check_lack(in_slices);
      ++cut;
    }
    const PassName pass = tiled_passes(kernel.algorithm, Direction::forward, options.backward).front();
    const std::vector<TileShape> choices = kernel.tile_choices(problem, pass);
    for (std::size_t i = 1; i < choices.size(); ++i) {
      options[pass].tile = choices[i];
      if (find_gpu_kernel(kernel.name).tiles_of_tuner) {
        check_lack(options);
      } else {
        CHECK(!build_lack(kernel, problem, Direction::forward, options));
      }
      ++others;
    }
  }
  CHECK(others > 0);
  CHECK(cut == 1);
}

TEST_CASE("a build without the tuner says of variants, too, what to build") {
  const AttentionProblem problem{.heads = 2,
                                 .heads_kv = 2,
                                 .seqlen_q = 256,
                                 .seqlen_k = 256,
                                 .head_dim = 128,
                                 .dtype = ElementType::fp16};
  for (const Kernel& kernel : gpu_kernels()) {
    for (const Variant variant : kernel.variants) {
      CAPTURE(kernel.name);
      ProgramOptions options = kernel.default_options(problem);
      options.variant = variant;
      const auto lack = build_lack(kernel, problem, Direction::forward, options);
      CHECK(lack.has_value() == (!kHasTuner && variant != Variant::own));
      if (lack) CHECK(lack->find("-D TILESCOPE_TUNER=ON") != std::string::npos);
      const TileProgram forward = kernel.programs(Direction::forward, problem, options).front();
      CHECK(forward.variant == variant);
      CHECK(parse_variant(to_string(variant)) == variant);
    }
  }
  CHECK_THROWS_AS(parse_variant("half"), BadInput);
}

TEST_CASE("FlashAttention's order has blocks of several sizes with the tuner, all within a chip's memory") {
  AttentionProblem problem{.heads = 2,
                           .heads_kv = 2,
                           .seqlen_q = 512,
                           .seqlen_k = 512,
                           .head_dim = 64,
                           .dtype = ElementType::fp16};
  const auto check = [&](const char* name, Direction direction, std::size_t tiles) {
    const Kernel& kernel = find_gpu_kernel(name).row;
    const PassName pass = direction == Direction::forward ? PassName::forward : PassName::dkdvdq;
    const std::vector<TileShape> choices = kernel.tile_choices(problem, pass);
    CHECK(choices.size() == tiles);
    std::int64_t bytes = 0;
    std::vector<TileShape> by_keys = choices;
    std::sort(by_keys.begin(), by_keys.end(), [](TileShape a, TileShape b) {
      return std::pair(a.block_n, a.block_m) < std::pair(b.block_n, b.block_m);
    });
    for (const TileShape tile : by_keys) {
      ProgramOptions options = kernel.default_options(problem);
      options[pass].tile = tile;
      CHECK(!kernel.refusal(problem, direction, options));
      CHECK(!kernel.chip_lack(kSm90, problem, direction, options));
      for (const TileProgram& program : kernel.programs(direction, problem, options)) {
        if (program.name != pass) continue;
        CHECK(program.tile == tile);
        CHECK(kernel.launch_shape(program, kSm90).shared_bytes > bytes);
        if (tile.block_m <= tile.block_n) bytes = kernel.launch_shape(program, kSm90).shared_bytes;
      }
    }
  };
  check("gpu:flash1", Direction::forward, 4);
  check("gpu:flash1", Direction::backward, 3);
  check("gpu:flash1-mma", Direction::forward, 5);
  problem.dropout = 0.1;
  check("gpu:flash1", Direction::forward, 1);
  problem.dropout = 0;
  problem.head_dim = 128;
  check("gpu:flash1", Direction::forward, 1);
  check("gpu:flash1-mma", Direction::forward, 4);
}

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

TEST_CASE("rows of S, P and dP that do not fit an SM are counted as often as gpu:standard reads them") {
  const Kernel& standard = find_gpu_kernel("gpu:standard").row;
  const auto row_reads = [&](Direction direction, PassName name, std::int64_t seqlen) {
    AttentionProblem problem{.seqlen_q = seqlen, .seqlen_k = seqlen, .head_dim = 64};
    for (const TileProgram& program :
         standard.programs(direction, problem, standard.default_options(problem))) {
      if (program.name != name) continue;
      std::size_t reads = 0;
      for (const auto& phase : program.phases) {
        for (const Operand& operand : phase) reads += operand.kind == AccessKind::load ? 1 : 0;
      }
      return reads;
    }
    return std::size_t{0};
  };
  CHECK(row_reads(Direction::forward, PassName::softmax, 40960) == 1);
  CHECK(row_reads(Direction::forward, PassName::softmax, 40964) == 3);
  CHECK(row_reads(Direction::backward, PassName::dscores, 20480) == 2);  // P and dP
  CHECK(row_reads(Direction::backward, PassName::dscores, 20484) == 4);
}

TEST_CASE("two CTAs of flash2-simt's forward pass share an SM of sm_90 up to head_dim 192") {
  const GpuKernel& rung = find_gpu_kernel(Flash2Simt::name);
  for_each_shape(rung, [&](const AttentionProblem& problem, const ProgramOptions& options) {
    for (const TileProgram& program : rung.row.programs(Direction::forward, problem, options)) {
      CAPTURE(describe(problem));
      const LaunchShape shape = rung.row.launch_shape(program, kSm90);
      CHECK(shape.ctas_per_sm == (problem.head_dim <= 192 ? 2 : 1));
      CHECK(shape.ctas_per_sm * (shape.shared_bytes + kSharedBytesReservedPerCta) <= kSharedBytesPerSmSm90);
    }
  });
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
