// SPDX-License-Identifier: Apache-2.0
#include "analysis/cli/options/sweep_axes.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <sstream>

#include "analysis/cli/options/parse_text.hpp"
#include "common/nearest_names.hpp"

namespace tilescope::cli {
namespace {

/// A point under way: what is derived from other axes is derived at the end, whatever their order.
struct Draft {
  SweepPoint point;
  std::optional<std::int64_t> tokens, hidden, group;
};

struct Axis {
  const char* name;
  void (*set)(Draft& draft, const std::string& field, const std::string& value);
};

template <std::int64_t AttentionProblem::*member>
void set_problem(Draft& draft, const std::string& field, const std::string& value) {
  draft.point.problem.*member = parse_integer(field, value);
}

template <std::optional<std::int64_t> Draft::*member>
void set_derived(Draft& draft, const std::string& field, const std::string& value) {
  const std::int64_t number = parse_integer(field, value);
  if (number < 1) throw BadInput(field, value, "must be at least 1");
  draft.*member = number;
}

constexpr Axis kAxes[] = {
    {"seqlen",
     [](Draft& draft, const std::string& field, const std::string& value) {
       draft.point.problem.seqlen_q = draft.point.problem.seqlen_k = parse_integer(field, value);
     }},
    {"seqlen_q", set_problem<&AttentionProblem::seqlen_q>},
    {"seqlen_k", set_problem<&AttentionProblem::seqlen_k>},
    {"batch", set_problem<&AttentionProblem::batch>},
    {"head_dim", set_problem<&AttentionProblem::head_dim>},
    {"heads",
     [](Draft& draft, const std::string& field, const std::string& value) {
       draft.point.problem.heads = draft.point.problem.heads_kv = parse_integer(field, value);
     }},
    {"heads_kv", set_problem<&AttentionProblem::heads_kv>},
    {"group", set_derived<&Draft::group>},
    {"tokens", set_derived<&Draft::tokens>},
    {"hidden", set_derived<&Draft::hidden>},
    {"causal",
     [](Draft& draft, const std::string& field, const std::string& value) {
       if (value != "yes" && value != "no") throw BadInput(field, value, "must be yes or no");
       draft.point.problem.causal = value == "yes";
     }},
    {"dtype", [](Draft& draft, const std::string&,
                 const std::string& value) { draft.point.problem.dtype = parse_dtype(value); }},
    {"tile", [](Draft& draft, const std::string& field,
                const std::string& value) { draft.point.tile = parse_tile(field, value); }},
    {"backward", [](Draft& draft, const std::string&,
                    const std::string& value) { draft.point.backward = parse_backward_order(value); }},
    {"order", [](Draft& draft, const std::string&,
                 const std::string& value) { draft.point.order = parse_tile_order(value); }},
    {"scan", [](Draft& draft, const std::string&,
                const std::string& value) { draft.point.scan = parse_scan(value); }},
    {"fp8_sums", [](Draft& draft, const std::string&,
                    const std::string& value) { draft.point.fp8_sums = parse_fp8_sums(value); }},
    {"diagonal_slices",
     [](Draft& draft, const std::string& field, const std::string& value) {
       draft.point.diagonal_slices = parse_slices(field, value);
     }},
};

const Axis& find_axis(const std::string& name) {
  std::vector<std::string> names;
  for (const Axis& axis : kAxes) {
    if (axis.name == name) return axis;
    names.emplace_back(axis.name);
  }
  throw unknown_name("sweep", name, names);
}

/// "64,128" -> 64, 128; "512..4096" -> 512, 1024, 2048, 4096.
std::vector<std::string> values_of(const std::string& field, const std::string& text) {
  std::vector<std::string> values;
  std::istringstream list(text);
  for (std::string value; std::getline(list, value, ',');) {
    const std::size_t dots = value.find("..");
    if (dots == std::string::npos) {
      values.push_back(value);
      continue;
    }
    if (dots == 0 || dots + 2 == value.size())
      throw BadInput(field, "'" + value + "'", "must be FIRST..LAST with both ends, as in 512..16k");
    const std::int64_t last = parse_integer(field, value.substr(dots + 2));
    const std::int64_t first = parse_integer(field, value.substr(0, dots));
    if (first < 1 || last < first || last > kMaxSeqlen) {
      throw BadInput(field, value, fmt::format("must run upwards within 1 ... {}", kMaxSeqlen));
    }
    for (std::int64_t number = first; number <= last; number *= 2) values.push_back(std::to_string(number));
  }
  if (values.empty()) throw BadInput(field, "'" + text + "'", "must be values with commas, or FIRST..LAST");
  return values;
}

SweepPoint finish(const Draft& draft) {
  AttentionProblem problem = draft.point.problem;
  if (draft.tokens)
    problem.batch = std::max<std::int64_t>(1, *draft.tokens / std::max<std::int64_t>(1, problem.seqlen_q));
  if (draft.hidden) {
    problem.heads = problem.heads_kv =
        std::max<std::int64_t>(1, *draft.hidden / std::max<std::int64_t>(1, problem.head_dim));
  }
  if (draft.group) {
    if (problem.heads % *draft.group != 0) {
      throw BadInput("sweep group", std::to_string(*draft.group),
                     fmt::format("must divide the {} heads", problem.heads));
    }
    problem.heads_kv = problem.heads / *draft.group;
  }
  validate(problem);
  SweepPoint point = draft.point;
  point.problem = problem;
  return point;
}

}  // namespace

ProgramOptions SweepPoint::apply_to(ProgramOptions options) const {
  if (tile) options.set_tile(*tile);
  if (backward) options.backward = *backward;
  if (order) options.order = *order;
  if (scan) options.scan = *scan;
  if (diagonal_slices) options.diagonal_slices = *diagonal_slices;
  if (fp8_sums) options.fp8_sums = *fp8_sums;
  return options;
}

std::string SweepAxes::axis_names() {
  std::string names;
  for (const Axis& axis : kAxes) names += (names.empty() ? "" : ", ") + std::string(axis.name);
  return names;
}

void SweepAxes::add_to(CLI::App& command) {
  command
      .add_option("--sweep", texts_,
                  "several problems: values with commas, or FIRST..LAST by doubling, of " + axis_names() +
                      "; may be repeated")
      ->type_name("AXIS=VALUES")
      ->expected(1, CLI::detail::expected_max_vector_size)
      ->allow_extra_args(false)
      ->group("Problem");
}

bool SweepAxes::sets(std::string_view axis) const {
  return std::any_of(texts_.begin(), texts_.end(),
                     [axis](const std::string& text) { return text.substr(0, text.find('=')) == axis; });
}

std::vector<SweepPoint> SweepAxes::points(const AttentionProblem& base) const {
  std::vector<Draft> drafts(1);
  drafts.front().point.problem = base;
  for (const std::string& text : texts_) {
    const std::size_t equals = text.find('=');
    if (equals == std::string::npos)
      throw BadInput("sweep", text, "must be AXIS=VALUES, as in seqlen=512..4096");
    const Axis& axis = find_axis(text.substr(0, equals));
    const std::string field = std::string("sweep ") + axis.name;
    std::vector<Draft> longer;
    for (const Draft& draft : drafts) {
      for (const std::string& value : values_of(field, text.substr(equals + 1))) {
        longer.push_back(draft);
        axis.set(longer.back(), field, value);
      }
    }
    drafts = std::move(longer);
  }
  std::vector<SweepPoint> points;
  for (const Draft& draft : drafts) points.push_back(finish(draft));
  return points;
}

}  // namespace tilescope::cli
