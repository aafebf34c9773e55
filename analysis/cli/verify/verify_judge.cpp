// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <map>
#include <optional>
#include <set>

#include "analysis/cli/verify/verify.hpp"
#include "analysis/model/counts/what_ran.hpp"
#include "analysis/model/replay/simulate_run.hpp"
#include "cpu_ref/judge/equivalence.hpp"
#include "cpu_ref/judge/locate.hpp"

namespace tilescope::cli {
namespace {

/// Each lies a bound away from exact at most.
constexpr double kLargestShareBetweenKernels = 2.0;

std::map<std::string, TensorErrorRecord> error_records(const Verdict& verdict) {
  std::map<std::string, TensorErrorRecord> records;
  for (const TensorVerdict& tensor : verdict.tensors) {
    TensorErrorRecord& record = records[record_name(tensor.tensor)];
    record = {.max_abs = tensor.error.max_abs,
              .rmse = tensor.error.rmse,
              .max_ulp = static_cast<double>(tensor.error.max_ulp),
              .non_finite = tensor.error.non_finite,
              .bound = tensor.bound};
    record.rmse_bound = tensor.rmse_bound;
    if (tensor.rmse_bound) record.share = tensor.share;  // of a mirror
  }
  return records;
}

/// Judges what `reference` holds, that kernel's outputs, against those of its mirror on the same program.
Verdict judge_beside_mirror(const VerifyCase& verify_case, Reference& reference, const TensorSet& outputs,
                            const Kernel& kernel, const Kernel& mirror,
                            const ProgramOptions& program_options) {
  reference.run(mirror, program_options, verify_case.direction);
  return judge_mirror(reference, outputs, reference.tensors(), verify_case.direction, kernel.arithmetic);
}

/// The largest difference between two kernels' outputs, over the bound that each is held to.
double share_between(const Reference& reference, const TensorSet& one, const TensorSet& other,
                     Direction direction) {
  double largest = 0;
  for (Direction step : {Direction::forward, Direction::backward}) {
    if (step == Direction::backward && direction == Direction::forward) break;
    for (TensorName name : output_tensors(reference.problem(), step)) {
      const ErrorReport difference = compare(one[name], other[name]);
      if (difference.non_finite > 0) return std::numeric_limits<double>::infinity();
      if (difference.max_abs > 0) {
        largest = std::max(largest, difference.max_abs / reference.bound(name).bound());
      }
    }
  }
  return largest;
}

/// The outputs of the GPU kernel that a job ran before, to compare the next one's with.
struct Previous {
  const Kernel* kernel = nullptr;
  Direction direction = Direction::forward;
  std::optional<TensorSet> outputs;
};

/// The first divergent tile, in words. A kernel that cannot be observed at these options is no reason to
/// leave the other cases unjudged.
std::string first_divergence(const VerifyCase& verify_case, Reference& reference, const Kernel& kernel,
                             const ProgramOptions& options) {
  try {
    const auto divergence = locate(reference, kernel, options, verify_case.direction);
    return divergence ? describe(*divergence, reference.problem()) : "none, every tile is right";
  } catch (const BadInput& refusal) {
    return std::string("not looked for: ") + refusal.what();
  }
}

void judge_run(const VerifyCase& verify_case, Reference& reference, const Kernel& kernel,
               const ProgramOptions& program_options, bool always_locate, Previous& previous,
               VerifyOutcome& outcome) {
  const Verdict verdict = reference.judge(kernel, program_options, verify_case.direction);
  bool passed = verdict.passed();
  std::string details = failure_lines(verify_case.problem, verdict, "exact");
  RunEntry& entry =
      outcome.entries.emplace_back(verdict_entry(verify_case, kernel, program_options, verdict));
  if (const Kernel* mirror = mirror_of(kernel)) {
    TensorSet outputs = reference.take_outputs();
    if (previous.outputs) {
      const Direction both = std::min(previous.direction, verify_case.direction);
      const double share = share_between(reference, outputs, *previous.outputs, both);
      outcome.largest_share_between_kernels = std::max(outcome.largest_share_between_kernels, share);
      if (!(share <= kLargestShareBetweenKernels)) {
        passed = false;
        details +=
            fmt::format("       differs from {} by {:.2f} of the bound\n", previous.kernel->name, share);
      }
    }
    const Verdict beside =
        judge_beside_mirror(verify_case, reference, outputs, kernel, *mirror, program_options);
    details += failure_lines(verify_case.problem, beside, std::string(mirror->name));
    entry.mirror_error = error_records(beside);
    passed = passed && beside.passed();
    previous = {&kernel, verify_case.direction, std::move(outputs)};
  }
  outcome.text += case_line(verify_case, kernel, program_options, verdict, passed) + details;
  if (!passed || always_locate) {
    outcome.text += fmt::format("       first divergence: {}\n",
                                first_divergence(verify_case, reference, kernel, program_options));
  }
  ++(passed ? outcome.passed : outcome.failed);
}

}  // namespace

std::string case_line(const VerifyCase& verify_case, const Kernel& kernel, const ProgramOptions& options,
                      const Verdict& verdict, bool passed) {
  const std::string name = named_with_order(kernel, options, verify_case.direction);
  const TileShape tile = options[PassName::forward].tile;
  std::string line = fmt::format("{} {:<18} {}x{} {}, {}:", passed ? "ok  " : "FAIL", name, tile.block_m,
                                 tile.block_n, describe(verify_case.problem), to_string(verify_case.inputs));
  for (const TensorVerdict& tensor : verdict.tensors) {
    const std::string figure =
        tensor.share < 100 ? fmt::format("{:.2f}", tensor.share) : fmt::format("{:.0e}", tensor.share);
    line += fmt::format(" {} {}", record_name(tensor.tensor),
                        tensor.error.non_finite > 0 ? "non-finite" : figure);
  }
  return line + "\n";
}

std::string failure_lines(const AttentionProblem& problem, const Verdict& verdict,
                          const std::string& against) {
  std::string lines;
  for (const TensorVerdict& tensor : verdict.tensors) {
    if (tensor.passed) continue;
    const TensorExtent extent = tensor_extent(problem, tensor.tensor);
    const std::string where =
        describe_index({extent.batch, extent.heads, extent.rows, extent.cols}, tensor.error.worst_index);
    lines += fmt::format(
        "       {}: {} is {:.9g}, {} {:.9g}; max error {:.3g}, bound {:.3g}, largest share of a bound "
        "{:.3g}, rmse {:.3g}{}, {} ulp, {} of {} non-finite\n",
        record_name(tensor.tensor), where, tensor.error.worst_actual, against, tensor.error.worst_expected,
        tensor.error.max_abs, tensor.bound, tensor.share, tensor.error.rmse,
        tensor.rmse_bound ? fmt::format(" (bound {:.3g})", *tensor.rmse_bound) : "", tensor.error.max_ulp,
        tensor.error.non_finite, tensor.error.elements);
  }
  return lines;
}

std::string record_name(TensorName tensor) {
  return tensor == TensorName::out ? "o" : std::string(to_string(tensor));
}

std::string named_with_order(const Kernel& kernel, const ProgramOptions& options, Direction direction) {
  const std::string name(kernel.name);
  if (direction == Direction::forward || kernel.backward_orders.empty()) return name;
  return fmt::format("{} {}", name, to_string(options.backward));
}

RunEntry verdict_entry(const VerifyCase& verify_case, const Kernel& kernel, const ProgramOptions& options,
                       const Verdict& verdict) {
  RunEntry entry = entry_of(kernel, verify_case.problem);
  entry.order = options.order;
  entry.scan = options.scan;
  entry.inputs = verify_case.inputs;
  for (Direction direction : {Direction::forward, Direction::backward}) {
    if (direction == Direction::backward && verify_case.direction == Direction::forward) break;
    for (const TileProgram& program : kernel.programs(direction, verify_case.problem, options)) {
      entry.passes.push_back(counted_pass(direction, program));
    }
  }
  entry.error = error_records(verdict);
  return entry;
}

VerifyOutcome judge(const VerifyJob& job, bool always_locate) {
  const AttentionProblem& problem = job.verify_case.problem;
  VerifyOutcome outcome;
  const bool none_can = std::ranges::all_of(job.runs, [&](const auto& run) {
    return run.first->refusal(problem, Direction::forward, run.second).has_value();
  });
  if (none_can) {
    outcome.refused = static_cast<int>(job.runs.size());
    return outcome;
  }
  Reference reference(problem, job.verify_case.inputs, job.verify_case.direction);
  Previous previous;
  for (const auto& [kernel, program_options] : job.runs) {
    VerifyCase verify_case = job.verify_case;
    if (kernel->refusal(problem, Direction::forward, program_options)) {
      ++outcome.refused;
      continue;
    }
    if (kernel->refusal(problem, Direction::backward, program_options)) {
      verify_case.direction = Direction::forward;
    }
    judge_run(verify_case, reference, *kernel, program_options, always_locate, previous, outcome);
  }
  return outcome;
}

namespace {

/// The outputs that atomic adds on a GPU sum in any order. CPU kernels take turns.
std::set<TensorName> unordered_outputs(const Kernel& kernel, const AttentionProblem& problem,
                                       const ProgramOptions& options) {
  std::set<TensorName> names;
  if (!kernel.on_gpu()) return names;
  for (const TileProgram& program : kernel.programs(Direction::backward, problem, options)) {
    for (const auto& phase : program.phases) {
      for (const Operand& operand : phase) {
        if (operand.kind != AccessKind::reduce && operand.kind != AccessKind::store_then_reduce) continue;
        names.insert(operand.tensor == TensorName::dq_accum   ? TensorName::dq
                     : operand.tensor == TensorName::dk_accum ? TensorName::dk
                                                              : TensorName::dv);
      }
    }
  }
  return names;
}

bool same_bits(const Tensor& a, const Tensor& b) {
  return std::memcmp(a.data(), b.data(), static_cast<std::size_t>(a.bytes())) == 0;
}

std::string describe(const std::string& tensor, const RepeatRecord& record) {
  if (record.runs_that_differ == 0) return fmt::format(" {} same", tensor);
  return fmt::format(" {} differs in {} runs, by {:.3f} of its bound", tensor, record.runs_that_differ,
                     record.spread / record.bound);
}

}  // namespace

VerifyOutcome judge_repeats(const VerifyJob& job, int runs) {
  const AttentionProblem& problem = job.verify_case.problem;
  VerifyOutcome outcome;
  std::optional<Reference> reference;
  for (const auto& [kernel, options] : job.runs) {
    if (kernel->refusal(problem, Direction::backward, options)) {
      ++outcome.refused;
      continue;
    }
    if (!reference) reference.emplace(problem, job.verify_case.inputs, Direction::backward);
    const Verdict verdict = reference->judge(*kernel, options, Direction::backward);
    const std::set<TensorName> unordered = unordered_outputs(*kernel, problem, options);
    RunEntry& entry = outcome.entries.emplace_back(verdict_entry(job.verify_case, *kernel, options, verdict));
    for (const TensorVerdict& tensor : verdict.tensors) {
      entry.repeats[record_name(tensor.tensor)] = {
          .runs = runs, .bound = tensor.bound, .may_differ = unordered.contains(tensor.tensor)};
    }
    const TensorSet first = reference->take_outputs();
    for (int run = 1; run < runs; ++run) {
      reference->run(*kernel, options, Direction::backward);
      for (const TensorVerdict& tensor : verdict.tensors) {
        const Tensor &again = reference->tensors()[tensor.tensor], &before = first[tensor.tensor];
        if (same_bits(again, before)) continue;
        RepeatRecord& record = entry.repeats[record_name(tensor.tensor)];
        ++record.runs_that_differ;
        record.spread = std::max(record.spread, compare(again, before).max_abs);
      }
    }
    bool passed = verdict.passed();
    std::string tensors;
    for (const auto& [name, record] : entry.repeats) {
      passed = passed && (record.may_differ || record.runs_that_differ == 0);
      tensors += describe(name, record);
    }
    outcome.text += fmt::format("{} {} {}, {} runs:{}\n", passed ? "ok  " : "FAIL",
                                named_with_order(*kernel, options, Direction::backward),
                                tilescope::describe(problem), runs, tensors);
    ++(passed ? outcome.passed : outcome.failed);
  }
  return outcome;
}

}  // namespace tilescope::cli
