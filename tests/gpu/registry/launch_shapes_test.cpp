// SPDX-License-Identifier: Apache-2.0
// What launches of the GPU kernels take of a chip, and which tiles a build has.
#include <doctest/doctest.h>

#include <algorithm>

#include "gpu/kernels/flash2_simt/flash2_simt.hpp"
#include "gpu/registry/kernel_registry.hpp"
#include "tests/gpu/registry/kernel_shapes.hpp"

namespace tilescope {
namespace {

// CUDA C++ Programming Guide, table of technical specifications per compute capability.
constexpr std::int64_t kSharedBytesPerSmSm90 = 228 * 1024;
constexpr std::int64_t kSharedBytesReservedPerCta = 1024;

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

TEST_CASE("every pass fits the SM of every chip that its row names for A100 and H100") {
  for (const GpuKernel& rung : gpu_kernel_rungs()) {
    for (const Chip& chip : {kSm80, kSm90}) {
      if (!rung.row.chips.has(chip.compute_capability)) continue;
      testing::for_each_shape(rung, [&](const AttentionProblem& problem, const ProgramOptions& options) {
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
  testing::for_each_shape(rung, [&](const AttentionProblem& problem, const ProgramOptions& options) {
    for (const TileProgram& program : rung.row.programs(Direction::forward, problem, options)) {
      CAPTURE(describe(problem));
      const LaunchShape shape = rung.row.launch_shape(program, kSm90);
      CHECK(shape.ctas_per_sm == (problem.head_dim <= 192 ? 2 : 1));
      CHECK(shape.ctas_per_sm * (shape.shared_bytes + kSharedBytesReservedPerCta) <= kSharedBytesPerSmSm90);
    }
  });
}

}  // namespace
}  // namespace tilescope
