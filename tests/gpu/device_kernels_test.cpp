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

const Kernel& mirror_of(const Kernel& kernel) {
  for (const Kernel& mirror : cpu_kernels()) {
    if (mirror.algorithm == kernel.algorithm) return mirror;
  }
  throw BadInput("kernel", std::string(kernel.name), "has no CPU mirror");
}

/// A problem that the kernel takes, with lengths round its tile, any mask, grouping, scale and dropout.
AttentionProblem draw_problem(testing::ProblemGenerator& random, const Kernel& kernel) {
  AttentionProblem problem;
  do {
    const int head_dim = random.chance(0.5) ? 16 << random.between(0, 4) : random.between(1, 256);
    const TileShape tile =
        kernel.default_options({.head_dim = head_dim, .dtype = problem.dtype}).forward_tile;
    problem = random.problem(tile);
    problem.head_dim = head_dim;
    problem.dtype = kElementTypes[random.between(0, 2)];
    if (random.chance(0.25)) problem.dropout = 0.2;
    if (random.chance(0.3)) problem.softmax_scale = std::array{0.0, -0.2, 1.0}[random.between(0, 2)];
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
  return options;
}

/// Largest difference, relative to the largest finite value of the mirror, or to `least` if all are smaller.
/// Infinite when one is not finite where the other is.
double relative_difference(const Tensor& result, const Tensor& mirror, double least) {
  double largest = least, difference = 0.0;
  for (std::int64_t i = 0; i < mirror.shape().elements(); ++i) {
    const double a = static_cast<double>(result.get(i)), b = static_cast<double>(mirror.get(i));
    if (a == b) continue;
    if (!std::isfinite(a) || !std::isfinite(b)) return INFINITY;
    difference = std::max(difference, std::abs(a - b));
  }
  for (std::int64_t i = 0; i < mirror.shape().elements(); ++i) {
    const double b = std::abs(static_cast<double>(mirror.get(i)));
    if (std::isfinite(b)) largest = std::max(largest, b);
  }
  return difference / largest;
}

/// fp32: rounding of sums in another order and of ex2.approx. Narrower: that may tip the rounding of one P,
/// dS or result, which is then off by one unit in the last place of the type.
double mirror_bound(ElementType type) {
  return type == ElementType::fp32 ? 1e-5 : type == ElementType::fp16 ? 2e-3 : 1.6e-2;
}

/// Where the terms of a gradient cancel, as in a row that sees one key, its size says nothing about its
/// rounding; that of a term does: dP has head_dim products of normal numbers.
double least_size(const AttentionProblem& problem) {
  return std::max(1e-3, 4.0 * std::abs(problem.scale()) * std::sqrt(static_cast<double>(problem.head_dim)));
}

TensorSet with_inputs(const AttentionProblem& problem) {
  TensorSet tensors(problem);
  fill_random_inputs(tensors, Direction::backward);
  return tensors;
}

void copy_tensors(const TensorSet& from, TensorSet& to, std::initializer_list<TensorName> names) {
  for (TensorName name : names) {
    if (from.has(name)) to[name] = from[name].as(from[name].dtype());
  }
}

void check_close(const TensorSet& result, const TensorSet& mirror, std::initializer_list<TensorName> names) {
  for (TensorName name : names) {
    const double difference = relative_difference(result[name], mirror[name], least_size(result.problem()));
    const double bound = mirror_bound(name == TensorName::lse ? ElementType::fp32 : result.problem().dtype);
    CHECK_MESSAGE(difference <= bound, to_string(name), " is off by ", difference);
  }
}

void check_states(const TileObserver& device, const TileObserver& mirror, ElementType type) {
  REQUIRE(device.passes.size() == mirror.passes.size());
  for (std::size_t pass = 0; pass < device.passes.size(); ++pass) {
    const PassLog &ours = device.passes[pass], &theirs = mirror.passes[pass];
    CAPTURE(to_string(ours.pass));
    REQUIRE(ours.pass == theirs.pass);
    // These two work on whole rows, not on tiles, and log none.
    if (ours.pass == PassName::softmax || ours.pass == PassName::dscores) continue;
    REQUIRE(ours.ctas.size() == theirs.ctas.size());
    for (std::size_t cta = 0; cta < ours.ctas.size(); ++cta) {
      CAPTURE(cta);
      REQUIRE(ours.ctas[cta].states.size() == theirs.ctas[cta].states.size());
      for (std::size_t i = 0; i < ours.ctas[cta].states.size(); ++i) {
        const TileState &a = ours.ctas[cta].states[i], &b = theirs.ctas[cta].states[i];
        REQUIRE(a.batch == b.batch);
        REQUIRE(a.head == b.head);
        REQUIRE(a.m_block == b.m_block);
        REQUIRE(a.n_block == b.n_block);
        for (auto field : {&TileState::scores, &TileState::row_max, &TileState::row_sum, &TileState::probs,
                           &TileState::dprobs, &TileState::dscores, &TileState::accum}) {
          // Sums of thousands of terms of both signs: the bound is loose, the value beside it is not small.
          REQUIRE(std::abs(a.*field - b.*field) <= 10 * mirror_bound(type) * (10 + std::abs(b.*field)));
        }
      }
    }
  }
}

/// Runs the forward pass on the device, observed or not, and in the kernel's CPU mirror.
void check_forward(const Kernel& kernel, const ProgramOptions& options, TensorSet& device, TensorSet& host,
                   TileObserver* device_tiles, TileObserver& host_tiles) {
  kernel.run(options, Direction::forward, device, device_tiles);
  mirror_of(kernel).run(options, Direction::forward, host, &host_tiles);
  check_close(device, host, {TensorName::out, TensorName::lse});
}

/// Runs forward and backward on the device, observed or not, and in the kernel's CPU mirror.
void check_against_mirror(const Kernel& kernel, const AttentionProblem& problem,
                          const ProgramOptions& options, bool observed) {
  CAPTURE(kernel.name);
  CAPTURE(describe(problem));
  CAPTURE(to_string(options.backward));
  const Kernel& mirror = mirror_of(kernel);
  TensorSet device = with_inputs(problem), host = with_inputs(problem);
  TileObserver device_tiles, host_tiles;
  TileObserver* observer = observed ? &device_tiles : nullptr;
  check_forward(kernel, options, device, host, observer, host_tiles);
  // The same forward results for both, so that only the backward passes differ.
  copy_tensors(
      host, device,
      {TensorName::out, TensorName::lse, TensorName::row_max, TensorName::row_sum, TensorName::probs});
  kernel.run(options, Direction::backward, device, observer);
  mirror.run(options, Direction::backward, host, &host_tiles);
  check_close(device, host, {TensorName::dq, TensorName::dk, TensorName::dv});
  if (observed) check_states(device_tiles, host_tiles, problem.dtype);
}

TEST_CASE("results, visited tiles and states are those of the CPU mirror") {
  for (const GpuKernel& rung : chosen_rungs()) {
    for (int i = 0; i < cases_per_kernel; ++i) {
      const unsigned seed = first_seed + static_cast<unsigned>(i);
      CAPTURE(seed);
      testing::ProblemGenerator random(seed);
      const AttentionProblem problem = draw_problem(random, rung.row);
      const ProgramOptions options = draw_options(random, rung.row, problem);
      check_against_mirror(rung.row, problem, options, i % 2 == 1);  // the fast build, and the observed one
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
    CAPTURE(describe(problem));
    TensorSet device = with_inputs(problem), host = with_inputs(problem);
    TileObserver device_tiles, host_tiles;
    const bool observed = i % 2 == 1;
    check_forward(kernel, kernel.default_options(problem), device, host, observed ? &device_tiles : nullptr,
                  host_tiles);
    if (observed) check_states(device_tiles, host_tiles, problem.dtype);
  }
}

/// A tile shape that a kernel can be tuned to, beside its own, which the other tests run.
struct TunedTile {
  Kernel kernel;
  std::int64_t head_dim;
  ElementType type;
  TiledPass pass;
  TileShape tile;
};

std::vector<TunedTile> tuned_tiles() {
  std::vector<TunedTile> tiles;
  for (const GpuKernel& rung : chosen_rungs()) {
    for (const std::int64_t head_dim : {64, 128, 256}) {
      for (const ElementType type : {ElementType::fp32, ElementType::fp16, ElementType::bf16}) {
        const AttentionProblem problem{.head_dim = head_dim, .dtype = type};
        if (rung.row.refusal(problem, Direction::forward, rung.row.default_options(problem))) continue;
        for (const TiledPass pass : kTiledPasses) {
          const std::vector<TileShape> choices = tile_choices(rung.row, problem, pass);
          for (std::size_t i = 1; i < choices.size(); ++i) {
            tiles.push_back({rung.row, head_dim, type, pass, choices[i]});
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
    for (const AttentionProblem& problem : problems_round(tuned)) {
      ProgramOptions options = tuned.kernel.default_options(problem);
      tile_of(options, tuned.pass) = tuned.tile;
      for (const BackwardOrder order : tuned.kernel.backward_orders) {
        if (only_backward && order != *only_backward) continue;
        options.backward = order;
        check_against_mirror(tuned.kernel, problem, options, false);
      }
    }
  }
  MESSAGE(tiles.size(), " tile shapes beside the kernels' own");
  const bool some = only_kernel.empty() || only_kernel == "gpu:flash2-mma";
  CHECK(tiles.empty() != some);
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

std::size_t free_device_bytes() {
  std::size_t free_bytes = 0, total_bytes = 0;
  check_cuda(cudaMemGetInfo(&free_bytes, &total_bytes), "asking for free device memory");
  return free_bytes;
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

TEST_CASE("tensors in scattered pages give the same bits, and give their pages back") {
  for (const GpuKernel& rung : chosen_rungs()) {
    CAPTURE(rung.row.name);
    // Of several pages: Q takes three or more.
    AttentionProblem problem{
        .heads = 12, .heads_kv = 6, .seqlen_q = 3000, .seqlen_k = 3000, .dtype = ElementType::fp16};
    if (rung.reason(problem, Direction::forward, rung.row.default_options(problem))) {
      problem.dtype = ElementType::fp32;
    }
    const TensorSet inputs = with_inputs(problem);
    const Tensor contiguous = forward_out(rung, inputs, TensorLayout::bhnd);
    CHECK(same_bits(forward_out(rung, inputs, TensorLayout::bhnd, 0), contiguous));
    const std::size_t before = free_device_bytes();
    CHECK(same_bits(forward_out(rung, inputs, TensorLayout::bhnd, 1), contiguous));
    CHECK(free_device_bytes() == before);
  }
}

TEST_CASE("passes without reductions give the same bits every time") {
  constexpr int kRuns = 100;
  for (const GpuKernel& rung : chosen_rungs()) {
    AttentionProblem problem{
        .heads = 4, .heads_kv = 2, .seqlen_q = 500, .seqlen_k = 700, .head_dim = 64, .causal = true};
    if (rung.reason(problem, Direction::forward, rung.row.default_options(problem))) {
      problem.dtype = ElementType::fp16;
    }
    ProgramOptions options = rung.row.default_options(problem);
    options.backward = BackwardOrder::split;
    CAPTURE(rung.row.name);
    TensorSet first = with_inputs(problem);
    rung.row.run(options, Direction::forward, first, nullptr);
    rung.row.run(options, Direction::backward, first, nullptr);
    for (int run = 1; run < kRuns; ++run) {
      TensorSet again = with_inputs(problem);
      rung.row.run(options, Direction::forward, again, nullptr);
      rung.row.run(options, Direction::backward, again, nullptr);
      for (TensorName name :
           {TensorName::out, TensorName::lse, TensorName::dq, TensorName::dk, TensorName::dv}) {
        CAPTURE(to_string(name));
        REQUIRE(std::memcmp(first[name].data(), again[name].data(),
                            static_cast<std::size_t>(first[name].bytes())) == 0);
      }
    }
  }
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
  const std::size_t before = free_device_bytes();
  // S and P of 4096 heads are 2^12 * 2^34 * 4 * 2 bytes, Q, K, V, O and LSE 2^39 + 2^31.
  CHECK_THROWS_WITH_AS(open(large), doctest::Contains("gpu:standard needs 5373972"), MachineLacks);
  CHECK_THROWS_WITH_AS(open(large), doctest::Contains("MiB are free"), MachineLacks);
  CHECK(free_device_bytes() == before);
  // The same when the memory is gone between that question and the allocation.
  const auto too_much = static_cast<std::int64_t>(before) + (std::int64_t{1} << 30);
  CHECK_THROWS_WITH_AS(DeviceBuffer("too much", too_much),
                       doctest::Contains("out of device memory: too much"), MachineLacks);
  CHECK(free_device_bytes() == before);
  CHECK_NOTHROW(open(small));
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
