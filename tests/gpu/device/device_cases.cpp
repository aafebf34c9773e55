// SPDX-License-Identifier: Apache-2.0
#include "tests/gpu/device/device_cases.hpp"

#include <doctest/doctest.h>

#include <array>
#include <cstring>

#include "cpu_ref/judge/locate.hpp"
#include "cpu_ref/numeric/random_inputs.hpp"
#include "gpu/launch/device_session.hpp"

namespace tilescope::testing {
namespace {

void check_verdict(const Verdict& verdict, const char* against) {
  CAPTURE(std::string(against));
  for (const TensorVerdict& tensor : verdict.tensors) {
    CHECK_MESSAGE(tensor.passed, to_string(tensor.tensor), " is off by ", tensor.error.max_abs, ", ",
                  tensor.share, " of its bound");
  }
}

}  // namespace

DeviceTestOptions device_options;

std::vector<GpuKernel> chosen_rungs() {
  std::vector<GpuKernel> rungs;
  for (const GpuKernel& rung : gpu_ladder()) {
    if (device_options.only_kernel.empty() || rung.row.name == device_options.only_kernel)
      rungs.push_back(rung);
  }
  return rungs;
}

void require_cases(std::int64_t ran) {
  if (device_options.only_kernel.empty() && !device_options.only_backward) CHECK(ran > 0);
}

AttentionProblem draw_problem(ProblemGenerator& random, const Kernel& kernel) {
  AttentionProblem problem;
  do {
    const int drawn = random.chance(0.5) ? 16 << random.between(0, 4) : random.between(1, 256);
    const std::int64_t head_dim = device_options.only_head_dim.value_or(drawn);
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

ProgramOptions draw_options(ProblemGenerator& random, const Kernel& kernel, const AttentionProblem& problem) {
  ProgramOptions options = kernel.default_options(problem);
  const auto& orders = kernel.backward_orders;
  if (!orders.empty()) {
    options.backward =
        orders[static_cast<std::size_t>(random.between(0, static_cast<int>(orders.size()) - 1))];
  }
  if (device_options.only_backward) options.backward = *device_options.only_backward;
  options.order = static_cast<TileOrder>(random.between(0, 2));
  options.swizzled_heads = random.between(1, 3);
  options.ctas_per_wave = random.between(1, 5);
  options.scan = static_cast<Scan>(random.between(0, 2));
  options.diagonal_slices = 1 << random.between(0, 3);
  for (const Direction direction : {Direction::forward, Direction::backward}) {
    if (kernel.refusal(problem, direction, options) || build_lack(kernel, problem, direction, options)) {
      options.diagonal_slices = 1;
    }
  }
  return options;
}

TensorSet with_inputs(const AttentionProblem& problem) {
  TensorSet tensors(problem);
  fill_random_inputs(tensors, Direction::backward);
  return tensors;
}

void judge_on_device(const Kernel& kernel, const AttentionProblem& problem, const ProgramOptions& options,
                     Direction direction, bool observed) {
  Reference reference(problem, InputKind::normal, direction);
  judge_on_device(reference, kernel, options, direction, observed);
}

void judge_on_device(Reference& reference, const Kernel& kernel, const ProgramOptions& options,
                     Direction direction, bool observed) {
  const AttentionProblem& problem = reference.problem();
  CAPTURE(kernel.name);
  CAPTURE(describe(problem));
  CAPTURE(to_string(options.backward));
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

bool same_bits(const Tensor& a, const Tensor& b) {
  return a.bytes() == b.bytes() && std::memcmp(a.data(), b.data(), static_cast<std::size_t>(a.bytes())) == 0;
}

std::int64_t free_device_bytes() {
  std::size_t free_bytes = 0, total_bytes = 0;
  check_cuda(cudaMemGetInfo(&free_bytes, &total_bytes), "asking for free device memory");
  return static_cast<std::int64_t>(free_bytes);
}

}  // namespace tilescope::testing
