// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>

#include "analysis/cli/bench/bench.hpp"
#include "analysis/cli/options/parse_text.hpp"
#include "gpu/registry/kernel_registry.hpp"

namespace tilescope::cli {
namespace {

/// Those that a list is meant for, or the GPU's ladder, as far as the device here runs them.
std::vector<std::string> kernels_of(const BenchSweep& sweep) {
  std::vector<std::string> names = sweep.kernels;
  if (names.empty()) {
    for (const GpuKernel& rung : gpu_ladder()) names.emplace_back(rung.row.name);
  }
  const std::optional<DeviceFacts> device = device_facts();
  if (!device) return names;
  std::vector<std::string> able;
  for (const std::string& name : names) {
    const Kernel& kernel = find_kernel(name);
    if (!kernel.launch_shape || kernel.chips.has(device->chip.compute_capability)) able.push_back(name);
  }
  return able.empty() ? names : able;
}

}  // namespace

void BenchSweepOption::add_to(CLI::App& command) {
  command
      .add_option(
          "--sweep", texts_,
          "a named list of problems (tilescope list sweeps); or several round one problem: values with "
          "commas, or FIRST..LAST by doubling, of " +
              SweepAxes::axis_names() + "; may be repeated")
      ->type_name("NAME|AXIS=VALUES")
      ->expected(1, CLI::detail::expected_max_vector_size)
      ->allow_extra_args(false)
      ->group("Problem");
  command
      .add_option("--count", count_,
                  fmt::format("problems of a list that is drawn; default {}", kDrawnProblems))
      ->type_name("N")
      ->group("Problem");
}

const BenchSweep* BenchSweepOption::named() const {
  const auto is_name = [](const std::string& text) { return text.find('=') == std::string::npos; };
  const auto name = std::ranges::find_if(texts_, is_name);
  if (name == texts_.end()) return nullptr;
  const BenchSweep& sweep = find_bench_sweep(*name);
  if (texts_.size() > 1) throw BadInput("sweep", *name, "must stand alone: it names all of its problems");
  return &sweep;
}

std::vector<AttentionProblem> BenchSweepOption::problems(const BenchSweep& list, std::uint64_t seed) const {
  if (list.draw) {
    const auto count = count_ ? parse_integer_in("count", *count_, 1, 10000) : kDrawnProblems;
    return list.draw(seed, static_cast<int>(count));
  }
  if (count_) throw BadInput("count", *count_, "is of lists that are drawn alone, as --sweep drawn");
  return list.problems();
}

SweepAxes BenchSweepOption::axes() const { return named() ? SweepAxes() : SweepAxes(texts_); }

BenchSubjects bench_subjects(const BenchSweepOption& sweep, const ProblemOptions& problem,
                             const std::string& otherwise) {
  BenchSubjects subjects;
  const BenchSweep* named = sweep.named();
  if (named && (sweep.drawn() ? problem.given_beside_seed() : problem.given())) {
    throw BadInput("sweep", std::string(named->name), "must stand without options that name a problem");
  }
  const SweepAxes axes = sweep.axes();
  if (!named && (axes.given() || problem.given())) {
    subjects.points = axes.points(problem.problem());
    subjects.own_type = !axes.sets("dtype");
    subjects.sweeps = axes.given();
    subjects.kernels = kernels_of(find_bench_sweep(otherwise));
    return subjects;
  }
  const BenchSweep& list = named ? *named : find_bench_sweep(otherwise);
  for (const AttentionProblem& one : sweep.problems(list, problem.problem().seed)) {
    SweepPoint point;
    point.problem = one;
    subjects.points.push_back(point);
  }
  subjects.kernels = kernels_of(list);
  subjects.own_type = named == nullptr;
  subjects.sweeps = named != nullptr;
  return subjects;
}

BenchPlan plan_bench(const BenchSubjects& subjects, const ProblemOptions& problem,
                     const KernelOptions& kernel, const std::string& tiles, int threads) {
  std::vector<Direction> directions = {Direction::forward, Direction::backward};
  if (problem.pass_given()) directions = problem.directions();
  const bool picks = problem.pass_given() || subjects.sweeps;
  const auto kernels = kernel.kernels(subjects.kernels);
  BenchPlan plan{.cases = {}, .refusals = Refusals(subjects.sweeps)};
  for (const SweepPoint& point : subjects.points) {
    if (point.refusal) {
      plan.refusals.add("", "", point.refusal, directions.size() * kernels.size());
      continue;
    }
    for (const Direction direction : directions) {
      for (const Kernel* one : kernels) {
        const AttentionProblem own =
            subjects.own_type ? problem.in_type_of({one}, point.problem) : point.problem;
        BenchmarkCase planned{one, own, direction, {}, threads};
        const auto attempt = [&] {
          planned.options = point.apply_to(kernel.tuned_options(*one, own, tiles));
          if (picks) require_supported(*one, own, direction, planned.options);
        };
        if (!plan.refusals.allow(kernel_and_direction(one->name, direction), describe(own), attempt))
          continue;
        if (picks || !one->refusal(own, direction, planned.options)) plan.cases.push_back(std::move(planned));
      }
    }
  }
  if (plan.cases.empty() && plan.refusals.any()) plan.refusals.throw_first();
  if (plan.cases.empty()) {
    const SweepPoint& point = subjects.points.front();
    require_supported(*kernels.front(), point.problem, directions.front(),
                      point.apply_to(kernel.program_options(*kernels.front(), point.problem)));
  }
  return plan;
}

}  // namespace tilescope::cli
