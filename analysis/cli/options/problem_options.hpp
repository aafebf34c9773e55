// SPDX-License-Identifier: Apache-2.0
// The options that name a problem, the same for every command.
#pragma once

#include <CLI/App.hpp>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "analysis/studies/model_shapes.hpp"
#include "cpu_ref/kernels/kernel.hpp"
#include "cpu_ref/schedule/problem.hpp"

namespace tilescope::cli {

/// --v-transposed, which `run` has for a file, where tensors are made as kernels take them: refused with who
/// takes it.
void refuse_v_transposed(CLI::App& command);

/// One of the options below, and what it sets; axes of sweeps set the same.
struct ProblemOption {
  enum class Names {
    base,
    shape,
    feature
  };                        // a whole problem to begin with; its tensors; how it is computed
  const char *name, *type;  // of the field: "head_dim"; no type: a flag
  Names names;
  /// @throws BadInput that names `field`
  void (*set)(AttentionProblem& problem, const std::string& field, const std::string& value);
  const char* help;
};
/// In the order in which they are applied.
std::span<const ProblemOption> problem_options();

/// --preset or --model, the shapes, element type, mask, scale, dropout, seed and --pass. Must outlive the
/// parsing.
class ProblemOptions {
 public:
  void add_to(CLI::App& command);

  /// Whether any option named a problem, or part of one.
  bool given() const { return !given_.empty(); }
  bool given_beside_seed() const { return given_.size() > given_.count("seed"); }
  /// Whether --preset, --model or an option of the shape did.
  bool shape_given() const;
  /// The preset (without one: B1 H8 N1024 D64 fp32) with the given options in place of its fields. heads_kv
  /// follows --heads, in the preset's groups where these divide it, and seqlen_k follows --seqlen-q unless
  /// given. @throws BadInput, from validate()
  AttentionProblem problem() const;
  /// `shapes` with the given mask, scale, dropout, seed and element type, for a command that takes the shapes
  /// from its input files. @throws BadInput if an option names a shape, or from validate()
  AttentionProblem problem_of(AttentionProblem shapes) const;
  /// What --pass asks for; forward without it. @throws BadInput
  std::vector<Direction> directions() const;
  /// The model that --model named, of which the problem is one layer on one device; null without it.
  const ModelShape* model() const;
  bool pass_given() const { return pass_.has_value(); }
  bool dtype_given() const { return text("dtype") != nullptr; }
  /// Whether --dtype, --preset or --model chose an element type.
  bool type_given() const { return text("dtype") || text("preset") || text("model"); }
  /// `problem` in an element type that all of `kernels` have, unless --dtype or --preset chose one, or there
  /// is none.
  AttentionProblem in_type_of(const std::vector<const Kernel*>& kernels, AttentionProblem problem) const;

 private:
  /// As typed; "" for a flag. Null where it was not given.
  const std::string* text(std::string_view name) const;
  AttentionProblem base() const;
  bool has_length() const;

  std::map<std::string, std::string, std::less<>> given_;  // by the names of problem_options(), as typed
  std::optional<std::string> pass_;
};

}  // namespace tilescope::cli
