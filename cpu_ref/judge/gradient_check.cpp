// SPDX-License-Identifier: Apache-2.0
#include "cpu_ref/judge/gradient_check.hpp"

#include <cmath>
#include <span>
#include <string>

#include "common/errors.hpp"
#include "cpu_ref/judge/exact_attention.hpp"
#include "cpu_ref/numeric/random_inputs.hpp"

namespace tilescope {
namespace {

using enum TensorName;

/// A step of this length along a direction of N(0, 1) moves scores by about as much: the fourth-order formula
/// then leaves h^4 / 30 of a fifth derivative, and fp32 about 1e-7 / h.
constexpr float kStep = 0x1p-5f;
/// Some ten times the largest that a right kernel of this library shows on the problems of the tests, where
/// an error of the fp32 sums, not of the formula, is what is left.
constexpr double kShare = 2e-4;

struct Pair {
  TensorName input, gradient;
};
constexpr Pair kPairs[] = {{q, dq}, {k, dk}, {v, dv}, {sink, dsink}};

TensorSet inputs_of(const AttentionProblem& problem) {
  TensorSet tensors(problem);
  fill_random_inputs(tensors, Direction::backward);
  return tensors;
}

/// Element `index` of a direction; each input and number has its own.
float along(const AttentionProblem& problem, TensorName input, int number, std::int64_t index) {
  return random_normal(problem.seed + 1 + static_cast<std::uint64_t>(number), input, index);
}

double loss(const Kernel& kernel, const ProgramOptions& options, TensorSet& tensors) {
  kernel.run(options, Direction::forward, tensors, nullptr);
  double sum = 0;
  for (std::int64_t i = 0; i < tensors[out].shape().elements(); ++i) {
    sum += static_cast<double>(tensors[out].get(i)) * static_cast<double>(tensors[dout].get(i));
  }
  return sum;
}

/// What one rounding of every element of `out` to fp32 makes of a difference of losses.
double rounding(const TensorSet& tensors, std::span<const double> exact_out) {
  double sum = 0;
  for (std::size_t i = 0; i < exact_out.size(); ++i) {
    sum += std::abs(exact_out[i] * static_cast<double>(tensors[dout].get(static_cast<std::int64_t>(i))));
  }
  return 0x1p-24 * sum / static_cast<double>(kStep);
}

double length(std::span<const double> values) {
  double squares = 0;
  for (const double value : values) squares += value * value;
  return std::sqrt(squares);
}

/// The inputs that are stepped along, and what they were.
class Line {
 public:
  Line(const AttentionProblem& problem, TensorName input, int number)
      : tensors_(inputs_of(problem)),
        input_(input),
        number_(number),
        start_(tensors_[input].as(kGradientCheckType)) {}

  double loss_at(const Kernel& kernel, const ProgramOptions& options, float step) {
    Tensor& moved = tensors_[input_];
    for (std::int64_t i = 0; i < moved.shape().elements(); ++i) {
      moved.set(i, start_.get(i) + step * along(tensors_.problem(), input_, number_, i));
    }
    return loss(kernel, options, tensors_);
  }

 private:
  TensorSet tensors_;
  TensorName input_;
  int number_;
  Tensor start_;
};

}  // namespace

bool GradientCheck::passed() const { return std::abs(difference()) <= bound; }

std::vector<GradientCheck> check_gradients(const Kernel& kernel, const AttentionProblem& problem,
                                           const ProgramOptions& options, int directions) {
  if (problem.dtype != kGradientCheckType) {
    throw BadInput("dtype", std::string(to_string(problem.dtype)),
                   "must be fp32: the rounding of other types drowns differences");
  }
  TensorSet tensors = inputs_of(problem);
  const ExactAttention exact = exact_attention(tensors, Direction::backward);
  kernel.run(options, Direction::forward, tensors, nullptr);
  kernel.run(options, Direction::backward, tensors, nullptr);

  const double floor = rounding(tensors, exact.out);
  std::vector<GradientCheck> checks;
  for (const auto& [input, gradient] : kPairs) {
    if (!tensors.has(input)) continue;
    for (int number = 0; number < directions; ++number) {
      GradientCheck check{.gradient = gradient, .bound = kShare * length(exact[gradient]) + floor};
      for (std::int64_t i = 0; i < tensors[gradient].shape().elements(); ++i) {
        check.by_gradient += static_cast<double>(tensors[gradient].get(i)) *
                             static_cast<double>(along(problem, input, number, i));
      }
      Line line(problem, input, number);
      const auto difference = [&](float step) {
        return line.loss_at(kernel, options, step) - line.loss_at(kernel, options, -step);
      };
      const double near = difference(kStep), far = difference(2 * kStep);
      check.by_difference = (8 * near - far) / (12 * static_cast<double>(kStep));
      checks.push_back(check);
    }
  }
  return checks;
}

}  // namespace tilescope
