// SPDX-License-Identifier: Apache-2.0
#include "analysis/cli/options/sweep_axes.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <numeric>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string_view>

#include "analysis/cli/options/parse_text.hpp"
#include "analysis/cli/options/problem_options.hpp"
#include "common/errors.hpp"
#include "common/nearest_names.hpp"
#include "distributed/processes/launcher.hpp"

namespace tilescope::cli {
namespace {

/// A point under way: what is derived from other axes is derived at the end, whatever their order.
struct Draft {
  SweepPoint point;
  std::optional<std::int64_t> tokens, hidden, group;
};

struct Axis {
  std::string name;
  std::function<void(Draft& draft, const std::string& field, const std::string& value)> set;
};

template <std::optional<std::int64_t> Draft::*member>
void set_derived(Draft& draft, const std::string& field, const std::string& value) {
  draft.*member = parse_integer_in(field, value, 1, kAnyCount);
}

/// What --NAME of a problem sets.
Axis problem_axis(std::string_view name) {
  for (const ProblemOption& option : problem_options()) {
    if (option.name != name) continue;
    return {option.name, [&option](Draft& draft, const std::string& field, const std::string& value) {
              option.set(draft.point.problem, field, value);
            }};
  }
  throw std::logic_error("no such option of a problem");
}

/// That of a kernel's choice: diagonal_slices for --diagonal-slices.
Axis choice_axis(const KernelChoiceOption& choice) {
  std::string name = choice.name;
  std::replace(name.begin(), name.end(), '-', '_');
  return {name, [&choice](Draft& draft, const std::string& field, const std::string& value) {
            choice.set(draft.point.choices, field, value);
          }};
}

std::vector<Axis> make_axes() {
  std::vector<Axis> axes = {
      problem_axis("seqlen"),
      {"seqlen_q",  // which --seqlen-q sets of the keys, too
       [](Draft& draft, const std::string& field, const std::string& value) {
         draft.point.problem.seqlen_q = parse_integer(field, value);
       }},
      problem_axis("seqlen_k"),
      problem_axis("batch"),
      problem_axis("head_dim"),
      problem_axis("page_size"),
      problem_axis("heads"),
      problem_axis("heads_kv"),
      {"group", set_derived<&Draft::group>},
      {"tokens", set_derived<&Draft::tokens>},
      {"hidden", set_derived<&Draft::hidden>},
      {"causal", [](Draft& draft, const std::string& field,
                    const std::string& value) { draft.point.problem.causal = parse_yes(field, value); }},
      problem_axis("dtype"),
      problem_axis("kv_dtype")};
  for (const KernelChoiceOption& choice : kernel_choice_options()) axes.push_back(choice_axis(choice));
  return axes;
}

const std::vector<Axis>& all_axes() {
  static const std::vector<Axis> axes = make_axes();
  return axes;
}

const Axis& find_axis(const std::string& name) { return find_named(all_axes(), "sweep", name); }

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

std::string SweepAxes::axis_names() {
  std::string names;
  for (const Axis& axis : all_axes()) names += (names.empty() ? "" : ", ") + axis.name;
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
  return std::ranges::any_of(
      texts_, [axis](const std::string& text) { return text.substr(0, text.find('=')) == axis; });
}

std::vector<SweepPoint> SweepAxes::points(const AttentionProblem& base) const {
  std::vector<Draft> drafts(1);
  drafts.front().point.problem = base;
  for (const std::string& text : texts_) {
    const std::size_t equals = text.find('=');
    if (equals == std::string::npos)
      throw BadInput("sweep", text, "must be AXIS=VALUES, as in seqlen=512..4096");
    const Axis& axis = find_axis(text.substr(0, equals));
    const std::string field = "sweep " + axis.name;
    const std::vector<std::string> values = values_of(field, text.substr(equals + 1));
    if (drafts.size() * values.size() > kMostPoints) {
      throw BadInput("sweep", fmt::format("{} problems", drafts.size() * values.size()),
                     fmt::format("must be at most {}: choose fewer values", kMostPoints));
    }
    std::vector<Draft> longer;
    for (const Draft& draft : drafts) {
      for (const std::string& value : values) {
        longer.push_back(draft);
        axis.set(longer.back(), field, value);
      }
    }
    drafts = std::move(longer);
  }
  std::vector<SweepPoint> points;
  for (const Draft& draft : drafts) {
    try {
      points.push_back(finish(draft));
    } catch (const BadInput&) {
      points.push_back(draft.point);
      points.back().refusal = std::current_exception();
    }
  }
  const auto refused = [](const SweepPoint& point) { return point.refusal != nullptr; };
  if (std::ranges::all_of(points, refused)) std::rethrow_exception(points.front().refusal);
  return points;
}

namespace {

constexpr std::int64_t kMostParts = 1'000'000;
constexpr std::string_view kPart = "{part}";  // in the name of a record

/// "I/N" by two variables, where both are set. @param least  of the least index, or null: 0
std::optional<std::string> place_by(const char* index, const char* count, const char* least = nullptr) {
  const char* const own = std::getenv(index);
  const char* const all = std::getenv(count);
  if (!own || !all) return std::nullopt;
  const char* const from = least ? std::getenv(least) : nullptr;
  const std::int64_t first = from ? parse_integer_in(least, from, 0, kMostParts) : 0;
  return fmt::format("{}/{}", parse_integer_in(index, own, first, first + kMostParts) - first, all);
}

std::string place_by_environment() {
  // The tasks of one job come after the job's place in its array.
  if (const auto place = place_by("SLURM_ARRAY_TASK_ID", "SLURM_ARRAY_TASK_COUNT", "SLURM_ARRAY_TASK_MIN"))
    return *place;
  for (const LauncherVariables& variables : launcher_variables()) {
    if (const auto place = place_by(variables.rank, variables.ranks)) return *place;
  }
  throw BadInput("--shard", "auto",
                 "found no variables of Slurm, MPI or torchrun that say which part this is; say I/N");
}

}  // namespace

void Shard::add_to(CLI::App& command, const std::vector<std::string>& others, std::string& json) {
  CLI::Option* const option = add_value(
      command, "--shard", text_, "I/N|auto",
      "only the part I (from 0) of N equal parts, for as many processes or hosts; auto: as the "
      "variables of Slurm, MPI or torchrun say, with --json part-{part}.json. record merge joins the "
      "parts' records");
  for (const std::string& other : others) option->excludes(command.get_option(other));
  command.parse_complete_callback([this, &json] {
    const std::size_t place = json.find(kPart);
    if (place != std::string::npos && given())
      json.replace(place, kPart.size(), std::to_string(part().index));
  });
}

Shard::Part Shard::part() const {
  if (!text_) return {};
  const std::string text = *text_ == "auto" ? place_by_environment() : *text_;
  const std::size_t slash = text.find('/');
  if (slash == std::string::npos) throw BadInput("--shard", *text_, "must be I/N, as in 0/4, or auto");
  const std::int64_t parts = parse_integer_in("--shard's N", text.substr(slash + 1), 1, kMostParts);
  return {parse_integer_in("--shard's I", text.substr(0, slash), 0, parts - 1), parts};
}

std::optional<std::string> Shard::name() const {
  if (!text_) return std::nullopt;
  const Part own = part();
  return fmt::format("{}/{}", own.index, own.parts);
}

// A task belongs to the part in which the middle of its cost falls.
std::pair<std::ptrdiff_t, std::ptrdiff_t> Shard::range(const std::vector<double>& costs) const {
  const Part own = part();
  const double all = std::accumulate(costs.begin(), costs.end(), 0.0);
  double before = 0;
  std::ptrdiff_t first = 0, last = 0;
  for (const double cost : costs) {
    const double middle = (before + cost / 2) * static_cast<double>(own.parts);
    first += middle < static_cast<double>(own.index) * all;
    last += middle < static_cast<double>(own.index + 1) * all;
    before += cost;
  }
  return {first, own.index + 1 == own.parts ? static_cast<std::ptrdiff_t>(costs.size()) : last};
}

}  // namespace tilescope::cli
