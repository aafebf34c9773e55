// SPDX-License-Identifier: Apache-2.0
// The options that name a problem, the same for every command.
#pragma once

#include <CLI/App.hpp>
#include <optional>
#include <string>
#include <vector>

#include "analysis/studies/model_shapes.hpp"
#include "cpu_ref/kernels/kernel.hpp"
#include "cpu_ref/schedule/problem.hpp"

namespace tilescope::cli {

/// --v-transposed, which `run` has for a file, where tensors are made as kernels take them: refused with who
/// takes it.
void refuse_v_transposed(CLI::App& command);

/// --preset or --model, the shapes, element type, mask, scale, dropout, seed and --pass. Must outlive the
/// parsing.
class ProblemOptions {
 public:
  void add_to(CLI::App& command);

  /// Whether any option named a problem, or part of one.
  bool given() const;
  /// Whether --preset, --model or an option of the shape did.
  bool shape_given() const;
  /// The preset (without one: B1 H8 N1024 D64 fp32) with the given options in place of its fields. heads_kv
  /// follows --heads and seqlen_k follows --seqlen-q unless given. @throws BadInput, from validate()
  AttentionProblem problem() const;
  /// `shapes` with the given mask, scale, dropout, seed and element type, for a command that takes the shapes
  /// from its input files. @throws BadInput if an option names a shape, or from validate()
  AttentionProblem problem_of(AttentionProblem shapes) const;
  /// What --pass asks for; forward without it. @throws BadInput
  std::vector<Direction> directions() const;
  /// The model that --model named, of which the problem is one layer on one device; null without it.
  const ModelShape* model() const;
  bool pass_given() const { return pass_.has_value(); }
  bool dtype_given() const { return dtype_.has_value(); }
  /// Whether --dtype, --preset or --model chose an element type.
  bool type_given() const { return dtype_ || preset_ || model_; }
  /// `problem` in an element type that all of `kernels` have, unless --dtype or --preset chose one, or there
  /// is none.
  AttentionProblem in_type_of(const std::vector<const Kernel*>& kernels, AttentionProblem problem) const;

 private:
  void set_features(AttentionProblem& problem) const;

  AttentionProblem base() const;

  std::optional<std::string> preset_, model_, dtype_, pass_;
  std::optional<std::int64_t> tensor_parallel_;
  std::optional<std::int64_t> batch_, heads_, heads_kv_, seqlen_, seqlen_q_, seqlen_k_, head_dim_;
  std::optional<std::pair<std::int64_t, std::int64_t>> window_;
  std::optional<double> scale_, dropout_;
  std::optional<std::uint64_t> seed_;
  std::optional<std::vector<std::int64_t>> key_lengths_;
  std::optional<Descale> descale_q_, descale_k_, descale_v_;
  std::optional<TileShape> descale_block_;
  bool causal_ = false, decode_ = false;
};

}  // namespace tilescope::cli
