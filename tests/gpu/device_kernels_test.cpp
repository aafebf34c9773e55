// SPDX-License-Identifier: Apache-2.0
// The GPU kernels on a device, against their CPU mirrors: results, visited tiles and their state. Exits with
// 77 (skipped) where there is no device.
// Usage: test_gpu_device [doctest options] [--cases=N] [--seed=S] [--kernel=gpu:NAME] [--backward=ORDER]
#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "cpu_ref/judge/equivalence.hpp"
#include "cpu_ref/judge/locate.hpp"
#include "cpu_ref/numeric/random_inputs.hpp"
#include "gpu/kernels/split_k/split_k.hpp"
#include "gpu/launch/device_session.hpp"
#include "gpu/launch/pass_runner.hpp"
#include "gpu/registry/kernel_registry.hpp"
#include "tests/random_problems.hpp"

namespace tilescope {
namespace {

int cases_per_kernel = 40;
unsigned first_seed = 1;
std::string only_kernel;                     // empty: all
std::optional<BackwardOrder> only_backward;  // none: any that the kernel has

std::vector<GpuKernel> chosen_rungs() {
  std::vector<GpuKernel> rungs;
  for (const GpuKernel& rung : gpu_ladder()) {
    if (only_kernel.empty() || rung.row.name == only_kernel) rungs.push_back(rung);
  }
  return rungs;
}

/// A problem that the kernel takes, with lengths round its tile, any mask, grouping, scale and dropout.
AttentionProblem draw_problem(testing::ProblemGenerator& random, const Kernel& kernel) {
  AttentionProblem problem;
  do {
    const int head_dim = random.chance(0.5) ? 16 << random.between(0, 4) : random.between(1, 256);
    const TileShape tile =
        kernel.default_options({.head_dim = head_dim, .dtype = problem.dtype})[PassName::forward].tile;
    problem = random.problem(tile);
    problem.head_dim = head_dim;
    problem.dtype = kElementTypes[random.between(0, 2)];
    if (random.chance(0.25)) problem.dropout = 0.2;
    if (random.chance(0.3)) problem.softmax_scale = std::array{0.0, -0.2, 1.0}[random.between(0, 2)];
    if (random.chance(0.25)) problem = random.padded(problem);
  } while (kernel.refusal(problem, Direction::backward, kernel.default_options(problem)));
  return problem;
}

ProgramOptions draw_options(testing::ProblemGenerator& random, const Kernel& kernel,
                            const AttentionProblem& problem) {
  ProgramOptions options = kernel.default_options(problem);
  const auto& orders = kernel.backward_orders;
  if (!orders.empty()) {
    options.backward =
        orders[static_cast<std::size_t>(random.between(0, static_cast<int>(orders.size()) - 1))];
  }
  if (only_backward) options.backward = *only_backward;
  options.order = static_cast<TileOrder>(random.between(0, 2));
  options.heads_per_section = random.between(1, 3);
  options.ctas_per_turn = random.between(1, 5);
  options.scan = static_cast<Scan>(random.between(0, 2));
  options.diagonal_slices = 1 << random.between(0, 3);
  if (kernel.refusal(problem, Direction::forward, options) ||
      kernel.refusal(problem, Direction::backward, options)) {
    options.diagonal_slices = 1;
  }
  return options;
}

TensorSet with_inputs(const AttentionProblem& problem) {
  TensorSet tensors(problem);
  fill_random_inputs(tensors, Direction::backward);
  return tensors;
}

void check_verdict(const Verdict& verdict, const char* against) {
  CAPTURE(std::string(against));
  for (const TensorVerdict& tensor : verdict.tensors) {
    CHECK_MESSAGE(tensor.passed, to_string(tensor.tensor), " is off by ", tensor.error.max_abs, ", ",
                  tensor.share, " of its bound");
  }
}

/// Runs forward and, if `direction` is backward, backward on the device, and judges the results against exact
/// ones and the CPU mirror's, and, if observed, every tile that was visited.
void judge_on_device(const Kernel& kernel, const AttentionProblem& problem, const ProgramOptions& options,
                     Direction direction, bool observed) {
  CAPTURE(kernel.name);
  CAPTURE(describe(problem));
  CAPTURE(to_string(options.backward));
  Reference reference(problem, InputKind::normal, direction);
  TileObserver tiles;
  reference.run(kernel, options, direction, observed ? &tiles : nullptr);
  check_verdict(reference.judge(direction), "exact");
  if (observed) {
    const auto divergence = first_divergence(reference, kernel, options, direction, tiles);
    CHECK((divergence ? describe(*divergence, problem) : "none") == "none");
  }
  const TensorSet outputs = reference.take_outputs();
  reference.run(*mirror_of(kernel), options, direction);
  check_verdict(judge_mirror(reference, outputs, reference.tensors(), direction, kernel.arithmetic),
                "mirror");
}

TEST_CASE("results are exact and the CPU mirror's, visited tiles and states what their program says") {
  for (const GpuKernel& rung : chosen_rungs()) {
    for (int i = 0; i < cases_per_kernel; ++i) {
      const unsigned seed = first_seed + static_cast<unsigned>(i);
      CAPTURE(seed);
      testing::ProblemGenerator random(seed);
      const AttentionProblem problem = draw_problem(random, rung.row);
      const ProgramOptions options = draw_options(random, rung.row, problem);
      // The fast build, and the observed one.
      judge_on_device(rung.row, problem, options, Direction::backward, i % 2 == 1);
    }
  }
}

TEST_CASE("fp8 forward: results, visited tiles and states, round the tile's edges, at every head dimension") {
  for (const GpuKernel& rung : chosen_rungs()) {
    const Kernel& kernel = rung.row;
    for (const ElementType dtype : {ElementType::fp8e4m3, ElementType::fp8e5m2}) {
      if (!kernel.can.forward.has(feature_of(dtype))) continue;
      for (int i = 0; i < cases_per_kernel; ++i) {
        const unsigned seed = first_seed + static_cast<unsigned>(i);
        CAPTURE(seed);
        testing::ProblemGenerator random(seed);
        const int multiple = kernel.can.head_dim_multiple(dtype), most = kernel.can.head_dims.back();
        const std::int64_t head_dim = multiple * random.between(1, most / multiple);
        AttentionProblem problem = random.problem(
            kernel.default_options({.head_dim = head_dim, .dtype = dtype})[PassName::forward].tile);
        problem.head_dim = head_dim;
        problem.dtype = dtype;
        if (random.chance(0.3)) problem.softmax_scale = std::array{0.0, -0.2, 1.0}[random.between(0, 2)];
        ProgramOptions options = draw_options(random, kernel, problem);
        const bool observed = i % 2 == 1;  // of the kernel's own sums alone
        if (!observed) {
          options.fp8_sums = kernel.fp8_sums[static_cast<std::size_t>(i / 2) % kernel.fp8_sums.size()];
        }
        if (kernel.refusal(problem, Direction::forward, options)) continue;
        judge_on_device(kernel, problem, options, Direction::forward, observed);
      }
    }
  }
}

TEST_CASE("dK, dV and dQ in one launch, and padding, are right at every compiled head dimension") {
  for (const GpuKernel& rung : chosen_rungs()) {
    const Kernel& kernel = rung.row;
    if (!kernel.can.backward.has(Feature::key_padding)) continue;
    for (const std::int64_t head_dim : kernel.can.head_dims) {
      AttentionProblem problem{.batch = 3, .heads = 4, .heads_kv = 2, .head_dim = head_dim, .seed = 3};
      problem.dtype = kernel.can.forward.has(Feature::fp16) ? ElementType::fp16 : ElementType::fp32;
      ProgramOptions options = kernel.default_options(problem);
      const TileShape tile = options[PassName::forward].tile;
      problem.seqlen_q = 3 * tile.block_m + 5;
      problem.seqlen_k = 2 * tile.block_n + 7;
      problem.causal = true;
      const std::vector<std::int64_t> lengths = {problem.seqlen_k, tile.block_n + 1, 0};
      for (const bool padded : {false, true}) {
        problem.key_lengths = padded ? lengths : std::vector<std::int64_t>{};
        for (const BackwardOrder order : kernel.backward_orders) {
          if (only_backward && order != *only_backward) continue;
          if (!padded && order != BackwardOrder::joined) continue;  // other tests have these
          options = kernel.default_options(problem);
          options.backward = order;
          judge_on_device(kernel, problem, options, Direction::backward, false);
          judge_on_device(kernel, problem, options, Direction::backward, true);
        }
        if (padded && kernel.backward_orders.empty()) {
          judge_on_device(kernel, problem, options, Direction::backward, false);
        }
      }
    }
  }
}

TEST_CASE("the split over keys gives the CPU mirror's results and states") {
  if (!only_kernel.empty() && only_kernel != SplitK::name) return;
  const Kernel& kernel = find_gpu_kernel(SplitK::name).row;
  for (int i = 0; i < cases_per_kernel; ++i) {
    testing::ProblemGenerator random(first_seed + static_cast<unsigned>(i));
    AttentionProblem problem = random.problem(SplitK::kTile);
    problem.head_dim = random.between(1, SplitK::kHeadDim);
    problem.dtype = i % 3 == 0 ? ElementType::bf16 : ElementType::fp16;
    problem.dropout = 0;
    if (random.chance(0.3)) problem.softmax_scale = std::array{0.0, -0.2, 1.0}[random.between(0, 2)];
    judge_on_device(kernel, problem, kernel.default_options(problem), Direction::forward, i % 2 == 1);
  }
}

/// A tile shape that a kernel can be tuned to, beside its own, which the other tests run.
struct TunedTile {
  Kernel kernel;
  std::int64_t head_dim;
  ElementType type;
  PassName pass;
  TileShape tile;
  PassLaunch launch;
};

std::vector<TunedTile> tuned_tiles() {
  std::vector<TunedTile> tiles;
  if (!kHasTuner) return tiles;
  for (const GpuKernel& rung : chosen_rungs()) {
    for (const std::int64_t head_dim : {64, 128, 256}) {
      for (const ElementType type : {ElementType::fp32, ElementType::fp16, ElementType::bf16}) {
        const AttentionProblem problem{.head_dim = head_dim, .dtype = type};
        if (rung.row.refusal(problem, Direction::forward, rung.row.default_options(problem))) continue;
        for (int pass = 0; pass < kNumPasses; ++pass) {
          const auto choices = rung.row.pass_choices(problem, static_cast<PassName>(pass));
          for (std::size_t i = 1; i < choices.size(); ++i) {
            tiles.push_back(
                {rung.row, head_dim, type, static_cast<PassName>(pass), choices[i].tile, choices[i].launch});
          }
        }
      }
    }
  }
  return tiles;
}

/// One causal, with two ragged tiles a side, and one with a window and one tile of queries and a row.
std::vector<AttentionProblem> problems_round(const TunedTile& tuned) {
  AttentionProblem causal{.heads = 2, .heads_kv = 1, .head_dim = tuned.head_dim, .dtype = tuned.type};
  causal.causal = true;
  causal.seqlen_q = causal.seqlen_k = 2 * std::max(tuned.tile.block_m, tuned.tile.block_n) + 3;
  AttentionProblem windowed = causal;
  windowed.causal = false;
  windowed.window_left = tuned.tile.block_n + 1;
  windowed.seqlen_q = tuned.tile.block_m + 1;
  return {causal, windowed};
}

TEST_CASE("every tile shape that a kernel can be tuned to gives the CPU mirror's results") {
  const std::vector<TunedTile> tiles = tuned_tiles();
  for (const TunedTile& tuned : tiles) {
    CAPTURE(tuned.tile.block_m);
    CAPTURE(tuned.tile.block_n);
    CAPTURE(tuned.launch.warps);
    CAPTURE(tuned.launch.stages);
    for (const AttentionProblem& problem : problems_round(tuned)) {
      ProgramOptions options = tuned.kernel.default_options(problem);
      options[tuned.pass].tile = tuned.tile;
      options[tuned.pass].launch = tuned.launch;
      for (const BackwardOrder order : tuned.kernel.backward_orders) {
        if (only_backward && order != *only_backward) continue;
        if (order == BackwardOrder::joined && tuned.pass != PassName::forward) continue;  // own tiles alone
        options.backward = order;
        judge_on_device(tuned.kernel, problem, options, Direction::backward, false);
      }
    }
  }
  MESSAGE(tiles.size(), " tile shapes, warps and stages beside the kernels' own");
  if (kHasTuner && only_kernel.empty()) CHECK(!tiles.empty());
}

/// What the forward pass leaves in `out`, with the kernel's own options.
Tensor forward_out(const GpuKernel& rung, const TensorSet& inputs, TensorLayout layout,
                   std::optional<std::uint64_t> placement = std::nullopt) {
  const AttentionProblem& problem = inputs.problem();
  DeviceSession session(rung.row, rung.launch, problem, Direction::forward, rung.row.default_options(problem),
                        layout, placement);
  for (TensorName name : {TensorName::q, TensorName::k, TensorName::v}) session.upload(name, inputs[name]);
  for (std::size_t pass = 0; pass < session.programs().size(); ++pass) session.launch(pass);
  session.synchronize();
  session.check_guards();
  TensorSet results(problem);
  session.download(TensorName::out, results.allocate(TensorName::out));
  session.synchronize();
  return std::move(results[TensorName::out]);
}

bool same_bits(const Tensor& a, const Tensor& b) {
  return a.bytes() == b.bytes() && std::memcmp(a.data(), b.data(), static_cast<std::size_t>(a.bytes())) == 0;
}

std::int64_t free_device_bytes() {
  std::size_t free_bytes = 0, total_bytes = 0;
  check_cuda(cudaMemGetInfo(&free_bytes, &total_bytes), "asking for free device memory");
  return static_cast<std::int64_t>(free_bytes);
}

TEST_CASE("tensors with the rows outside the heads give the same bits") {
  for (const GpuKernel& rung : chosen_rungs()) {
    for (int i = 0; i < std::max(1, cases_per_kernel / 8); ++i) {
      testing::ProblemGenerator random(first_seed + 1000 + static_cast<unsigned>(i));
      const AttentionProblem problem = draw_problem(random, rung.row);
      CAPTURE(rung.row.name);
      CAPTURE(describe(problem));
      const TensorSet inputs = with_inputs(problem);
      CHECK(same_bits(forward_out(rung, inputs, TensorLayout::bhnd),
                      forward_out(rung, inputs, TensorLayout::bnhd)));
    }
  }
}

TEST_CASE("tensors in pages at random places give the same bits, and give their pages back") {
  for (const GpuKernel& rung : chosen_rungs()) {
    CAPTURE(rung.row.name);
    // Of several pages: Q takes three or more.
    AttentionProblem problem{
        .heads = 12, .heads_kv = 6, .seqlen_q = 3000, .seqlen_k = 3000, .dtype = ElementType::fp16};
    if (rung.row.refusal(problem, Direction::forward, rung.row.default_options(problem))) {
      problem.dtype = ElementType::fp32;
    }
    const TensorSet inputs = with_inputs(problem);
    const Tensor contiguous = forward_out(rung, inputs, TensorLayout::bhnd);
    CHECK(same_bits(forward_out(rung, inputs, TensorLayout::bhnd, 0), contiguous));
    // The driver and other processes take and give pages of their own meanwhile; a page that each run kept
    // would add up.
    constexpr std::int64_t kRuns = 8, kPage = 2 << 20;
    const std::int64_t before = free_device_bytes();
    for (std::int64_t run = 0; run < kRuns; ++run) {
      CHECK(same_bits(forward_out(rung, inputs, TensorLayout::bhnd, 1), contiguous));
    }
    CHECK(before - free_device_bytes() < kRuns * kPage);
  }
}

TEST_CASE("passes without reductions give the same bits every time") {
  constexpr int kRuns = 100;
  for (const GpuKernel& rung : chosen_rungs()) {
    AttentionProblem problem{
        .heads = 4, .heads_kv = 2, .seqlen_q = 500, .seqlen_k = 700, .head_dim = 64, .causal = true};
    if (rung.row.refusal(problem, Direction::forward, rung.row.default_options(problem))) {
      problem.dtype = ElementType::fp16;
    }
    ProgramOptions options = rung.row.default_options(problem);
    options.backward = BackwardOrder::split;
    CAPTURE(rung.row.name);
    const bool splits = !rung.row.refusal(problem, Direction::backward, options);
    const auto names =
        splits ? std::vector{TensorName::out, TensorName::lse, TensorName::dq, TensorName::dk, TensorName::dv}
               : std::vector{TensorName::out, TensorName::lse};
    TensorSet first = with_inputs(problem);
    rung.row.run(options, Direction::forward, first, nullptr);
    if (splits) rung.row.run(options, Direction::backward, first, nullptr);
    for (int run = 1; run < kRuns; ++run) {
      TensorSet again = with_inputs(problem);
      rung.row.run(options, Direction::forward, again, nullptr);
      if (splits) rung.row.run(options, Direction::backward, again, nullptr);
      for (const TensorName name : names) {
        CAPTURE(to_string(name));
        REQUIRE(std::memcmp(first[name].data(), again[name].data(),
                            static_cast<std::size_t>(first[name].bytes())) == 0);
      }
    }
  }
}

TEST_CASE("tiles that the mask cuts, cut finer, give the same bits and the mirror's states") {
  int cut = 0;
  for (const GpuKernel& rung : chosen_rungs()) {
    const Kernel& kernel = rung.row;
    if (kernel.smallest_part == 0) continue;
    CAPTURE(kernel.name);
    for (const std::int64_t head_dim : kernel.can.head_dims) {
      AttentionProblem problem{.heads = 4, .heads_kv = 2, .head_dim = head_dim, .dtype = ElementType::bf16};
      ProgramOptions options = kernel.default_options(problem);
      options.backward = BackwardOrder::split;
      const TileShape tile = options[PassName::forward].tile;
      problem.seqlen_q = 2 * tile.block_m + 3;
      problem.seqlen_k = 5 * tile.block_n + 37;
      for (const auto& [causal, left] : {std::pair{false, -1}, {true, tile.block_n + 21}, {true, -1}}) {
        problem.causal = causal;
        problem.window_left = left;
        CAPTURE(describe(problem));
        TensorSet whole = with_inputs(problem);
        for (const int slices : {1, 2, 4, 8}) {
          CAPTURE(slices);
          options.diagonal_slices = slices;
          if (kernel.refusal(problem, Direction::backward, options)) continue;
          TensorSet tensors = with_inputs(problem);
          kernel.run(options, Direction::forward, tensors, nullptr);
          kernel.run(options, Direction::backward, tensors, nullptr);
          if (slices == 1) {
            whole = std::move(tensors);
            continue;
          }
          ++cut;
          for (const TensorName name :
               {TensorName::out, TensorName::lse, TensorName::dq, TensorName::dk, TensorName::dv}) {
            CAPTURE(to_string(name));
            CHECK(same_bits(tensors[name], whole[name]));
          }
        }
      }
      options.backward = BackwardOrder::fused;
      options.diagonal_slices = 2;
      judge_on_device(kernel, problem, options, Direction::backward, true);
    }
  }
  if (only_kernel.empty()) CHECK(cut > 0);
}

TEST_CASE("the clocks of SMs and how long each is busy are noted round a pass") {
  const GpuKernel& kernel = find_gpu_kernel("gpu:flash2-simt");
  const AttentionProblem problem{.heads = 16, .heads_kv = 16, .seqlen_q = 8192, .seqlen_k = 8192};
  PassRunner runner(kernel, problem, Direction::forward, kernel.row.default_options(problem));
  const std::vector<double> rates = runner.clock_rates(0);
  const std::map<int, double> busy = runner.busy_cycles(0);
  runner.check();
  CHECK(rates.size() > 1);
  CHECK(busy.size() == rates.size());
  const auto [slowest, fastest] = std::minmax_element(rates.begin(), rates.end());
  CHECK(*slowest > 0.1);  // GHz
  CHECK(*fastest < 1.05 * *slowest);
  // Of many waves: no SM has nothing to do while another has two CTAs to go.
  const auto by_cycles = [](const auto& a, const auto& b) { return a.second < b.second; };
  const auto [first, last] = std::minmax_element(busy.begin(), busy.end(), by_cycles);
  CHECK(first->second > 0.5 * last->second);
}

TEST_CASE("a problem beyond the device's memory is refused with what it needs, and leaves the device clean") {
  const GpuKernel& rung = find_gpu_kernel("gpu:standard");
  const auto open = [&rung](const AttentionProblem& problem) {
    DeviceSession(rung.row, rung.launch, problem, Direction::forward, rung.row.default_options(problem));
  };
  const AttentionProblem small{.seqlen_q = 64, .seqlen_k = 64};
  const AttentionProblem large{
      .batch = 64, .heads = 64, .heads_kv = 64, .seqlen_q = 1 << 17, .seqlen_k = 1 << 17, .head_dim = 64};
  CHECK_NOTHROW(open(small));  // what the first session leaves loaded stays
  // The driver and other processes take and give pages meanwhile: no tensor of the problem may be left, and
  // the smallest has 2 GiB.
  const std::int64_t before = free_device_bytes(), least_leak = tensor_extent(large, TensorName::lse).bytes();
  REQUIRE(least_leak == std::int64_t{2} << 30);
  // S and P of 4096 heads are 2^12 * 2^34 * 4 * 2 bytes, Q, K, V, O and LSE 2^39 + 2^31.
  CHECK_THROWS_WITH_AS(open(large), doctest::Contains("gpu:standard needs 5373972"), MachineLacks);
  CHECK_THROWS_WITH_AS(open(large), doctest::Contains("MiB are free"), MachineLacks);
  CHECK(before - free_device_bytes() < least_leak);
  // The same when the memory is gone between that question and the allocation.
  const std::int64_t too_much = before + (std::int64_t{1} << 30);
  CHECK_THROWS_WITH_AS(DeviceBuffer("too much", too_much),
                       doctest::Contains("out of device memory: too much"), MachineLacks);
  CHECK(before - free_device_bytes() < least_leak);
  CHECK_NOTHROW(open(small));
}

TEST_CASE("a write outside a tensor is refused, with its first byte") {
  DeviceBuffer buffer("out", 1000);
  CHECK_NOTHROW(buffer.check_guards());
  const auto write_at = [&buffer](std::int64_t byte) {
    check_cuda(cudaMemset(static_cast<char*>(buffer.data()) + byte, 0, 3), "writing outside a tensor");
  };
  write_at(1000);
  CHECK_THROWS_WITH_AS(
      buffer.check_guards(),
      "a kernel wrote outside out: its first wrong byte is byte 1000, out has bytes 0 ... 999", DeviceError);
  write_at(-5);
  CHECK_THROWS_WITH_AS(buffer.check_guards(), doctest::Contains("its first wrong byte is byte -5,"),
                       DeviceError);
}

/// The value of "--name=value" among the arguments, or `otherwise`.
std::string argument(int argc, char** argv, const char* name, const std::string& otherwise) {
  for (int i = 1; i < argc; ++i) {
    const std::size_t length = std::strlen(name);
    if (std::strncmp(argv[i], name, length) == 0 && argv[i][length] == '=') return argv[i] + length + 1;
  }
  return otherwise;
}

}  // namespace
}  // namespace tilescope

int main(int argc, char** argv) {
  using namespace tilescope;
  if (const auto lack = device_lack()) {
    std::printf("skipped: %s\n", lack->c_str());
    return 77;
  }
  cases_per_kernel = std::stoi(argument(argc, argv, "--cases", std::to_string(cases_per_kernel)));
  first_seed = static_cast<unsigned>(std::stoul(argument(argc, argv, "--seed", std::to_string(first_seed))));
  only_kernel = argument(argc, argv, "--kernel", only_kernel);
  if (const std::string order = argument(argc, argv, "--backward", ""); !order.empty()) {
    only_backward = parse_backward_order(order);
  }
  doctest::Context context(argc, argv);
  return context.run();
}
