// SPDX-License-Identifier: Apache-2.0
#include "analysis/cli/verify/verify_repeats.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <set>

#include "cpu_ref/judge/equivalence.hpp"

namespace tilescope::cli {
namespace {

/// The outputs that atomic adds on a GPU sum in any order. CPU kernels take turns.
std::set<TensorName> unordered_outputs(const Kernel& kernel, const AttentionProblem& problem,
                                       const ProgramOptions& options) {
  std::set<TensorName> names;
  if (kernel.name.starts_with("cpu:")) return names;
  for (const TileProgram& program : kernel.programs(Direction::backward, problem, options)) {
    for (const auto& phase : program.phases) {
      for (const Operand& operand : phase) {
        if (operand.kind != AccessKind::reduce && operand.kind != AccessKind::sum) continue;
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
