// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <cstdlib>
#include <numeric>
#include <optional>
#include <string_view>

#include "analysis/cli/options/parse_text.hpp"
#include "analysis/cli/options/sweep_axes.hpp"
#include "common/errors.hpp"
#include "distributed/processes/launcher.hpp"

namespace tilescope::cli {
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
  CLI::Option* const option =
      command
          .add_option(
              "--shard", text_,
              "only the part I (from 0) of N equal parts, for as many processes or hosts; auto: as the "
              "variables of Slurm, MPI or torchrun say, with --json part-{part}.json. record merge joins the "
              "parts' records")
          ->type_name("I/N|auto");
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
