// SPDX-License-Identifier: Apache-2.0
// What a report opens with: whether kernels move more than they must, as a picture of each between SMs, L2
// and DRAM, and as a verdict.
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <iterator>
#include <set>
#include <tuple>

#include "analysis/report/figures/charts.hpp"
#include "analysis/report/sections/bytes/multiples.hpp"
#include "analysis/report/sections/report_sections.hpp"
#include "analysis/report/sweep.hpp"

namespace tilescope {
namespace {

/// How the bytes of a run are known.
const char* provenance(const RunSummary& run) {
  return run.measured_sm_l2 ? "measured" : run.simulated_dram ? "simulated" : "by closed form";
}

using Runs = std::vector<const RunSummary*>;

bool knows_both(const RunSummary& run) { return dram_ratio(run) && sm_l2_ratio(run); }

/// The run of an algorithm that moves least at DRAM, or null.
const RunSummary* leanest(const Runs& runs, std::optional<Algorithm> algorithm, Direction direction) {
  const RunSummary* found = nullptr;
  for (const RunSummary* run : runs) {
    if (run->algorithm != algorithm || run->direction != direction || !knows_both(*run)) continue;
    if (found == nullptr || *dram_ratio(*run) < *dram_ratio(*found)) found = run;
  }
  return found;
}

/// Runs of one problem: the last algorithm in the papers' order, forward where that is known, its backward
/// pass beside the forward one, and the run of another algorithm that moves most. Each may be null.
struct Compared {
  const RunSummary *last = nullptr, *backward = nullptr, *worst = nullptr;
  Runs members = {};
};

Compared compared(const Runs& members) {
  for (const Direction direction : {Direction::forward, Direction::backward}) {
    std::set<std::optional<Algorithm>> algorithms;
    for (const RunSummary* run : members) {
      if (leanest({run}, run->algorithm, direction) != nullptr) algorithms.insert(run->algorithm);
    }
    if (algorithms.size() > 1) algorithms.erase(std::nullopt);
    if (algorithms.empty()) continue;
    const auto last = *algorithms.rbegin();
    algorithms.erase(last);
    const RunSummary* worst = nullptr;
    for (const auto algorithm : algorithms) {
      const RunSummary* run = leanest(members, algorithm, direction);
      if (worst == nullptr || *dram_ratio(*run) > *dram_ratio(*worst)) worst = run;
    }
    return {leanest(members, last, direction),
            direction == Direction::forward ? leanest(members, last, Direction::backward) : nullptr, worst,
            members};
  }
  return {};
}

/// The most representative problem in one record, if possible with two algorithms and measured.
Compared representative_comparison(const std::vector<RunSummary>& runs) {
  std::vector<Runs> problems;  // of one record each
  const auto keep = [&problems](auto wanted) {
    if (std::ranges::any_of(problems, wanted)) std::erase_if(problems, std::not_fn(wanted));
  };
  for (const Runs& shown : {headline_runs(runs), tabled_runs(runs)}) {
    for (const Runs& problem : group_by_problem(shown)) {
      std::ranges::copy_if(group_by_record(problem), std::back_inserter(problems),
                           [](const Runs& members) { return compared(members).last != nullptr; });
    }
    keep([](const Runs& members) { return compared(members).worst != nullptr; });
    if (!problems.empty() && compared(problems.front()).worst != nullptr) break;
  }
  if (problems.empty()) return {};
  keep([](const Runs& members) { return members.front()->measured_dram.has_value(); });
  return compared(most_representative(problems, 1).front());
}

/// The pass of the same algorithm and direction that moves most at DRAM against what it must, counted as
/// `run` is.
const RunSummary& most(const std::vector<RunSummary>& runs, const RunSummary& run) {
  const RunSummary* found = &run;
  for (const RunSummary& other : runs) {
    if (other.algorithm != run.algorithm || other.direction != run.direction || !dram_ratio(other) ||
        other.measured_dram.has_value() != run.measured_dram.has_value()) {
      continue;
    }
    if (*dram_ratio(other) > *dram_ratio(*found)) found = &other;
  }
  return *found;
}

std::string must_text(const RunSummary& run) {
  return format_bytes(static_cast<double>(run.compulsory.total()));
}

constexpr const char* kBytesQuestion = "Do they move more than they must?";

/// The first run that knows its bytes at SM<->L2, or null.
const RunSummary* known_at_sm_l2(const std::vector<RunSummary>& runs) {
  const Runs known = tabled_runs(runs);
  const auto run =
      std::ranges::find_if(known, [](const RunSummary* each) { return sm_l2_ratio(*each).has_value(); });
  return run == known.end() ? nullptr : *run;
}

FindingLine run_line(const RunSummary& run) {
  FindingLine line{{}, fmt::format("`{}` {}", run.run->kernel, to_string(run.direction))};
  if (const auto ratio = dram_ratio(run)) line.amounts.push_back(multiple_amount("DRAM", *ratio));
  if (const auto ratio = sm_l2_ratio(run)) line.amounts.push_back(multiple_amount("SM<->L2", *ratio));
  return line;
}

}  // namespace

std::optional<Finding> bytes_verdict(const std::vector<RunSummary>& runs) {
  const Compared found = representative_comparison(runs);
  const RunSummary* const last = found.last ? found.last : known_at_sm_l2(runs);
  if (last == nullptr) return std::nullopt;
  Finding finding{kBytesQuestion, {}, "", Outcome::informational, "summary"};
  for (const RunSummary* run : {last, found.backward, found.worst}) {
    if (run != nullptr) finding.lines.push_back(run_line(*run));
  }
  finding.sentence =
      fmt::format("{} on {}, {}: `{}`'s {} pass must move {}.", problem_text(*last), machine_text(*last),
                  provenance(*last), last->run->kernel, to_string(last->direction), must_text(*last));
  if (!found.last) {
    finding.sentence += " No record has DRAM bytes.";
    return finding;
  }
  std::vector<std::string> others;  // each direction's most, forward and backward being unlike
  for (const RunSummary* run : {last, found.backward}) {
    if (run == nullptr || !dram_ratio(*run)) continue;
    const RunSummary& worst = most(runs, *run);
    const std::string at_most = format_ratio(*dram_ratio(worst));
    if (at_most == format_ratio(*dram_ratio(*run))) continue;
    others.push_back(fmt::format("{} up to {} (`{}`, {})", to_string(run->direction), at_most, worst.label,
                                 problem_text(worst)));
  }
  if (!others.empty()) {
    finding.sentence += fmt::format(" On other problems kernels of this algorithm move more at DRAM: {}.",
                                    fmt::join(others, "; "));
  }
  const RunSummary& worst = most(runs, *last);
  finding.outcome = outcome_of_multiple(*dram_ratio(*last));
  const bool any_bad = std::ranges::any_of(finding.lines, [](const FindingLine& line) {
    return std::ranges::find(line.amounts, Outcome::bad, &Amount::outcome) != line.amounts.end();
  });
  if (finding.outcome == Outcome::good && (any_bad || *dram_ratio(worst) >= kBadMultiple)) {
    finding.outcome = Outcome::mixed;
  }
  return finding;
}

namespace {

/// Of kernels that were told otherwise than they would be, only those beside which none was not.
Runs pictured(Runs members) {
  std::erase_if(members, [](const RunSummary* run) { return !sm_l2_ratio(*run); });
  const auto key = [](const RunSummary* run) {
    return std::tuple(run->direction, run->algorithm.value_or(Algorithm::flash2), run->run->kernel);
  };
  std::ranges::stable_sort(members, [&key](const RunSummary* a, const RunSummary* b) {
    return std::tuple(key(a), a->label.size()) < std::tuple(key(b), b->label.size());
  });
  const auto same = [&key](const RunSummary* a, const RunSummary* b) { return key(a) == key(b); };
  members.erase(std::unique(members.begin(), members.end(), same), members.end());
  constexpr std::size_t kMost = 8;  // beyond, a reader chooses no longer
  members.resize(std::min(members.size(), kMost));
  return members;
}

FlowBytes flow_of(const ReadWriteBytes& bytes, const RunSummary& run, double multiple) {
  return {static_cast<double>(bytes.read_bytes),
          static_cast<double>(bytes.write_bytes),
          static_cast<double>(run.compulsory.read_bytes),
          static_cast<double>(run.compulsory.write_bytes),
          format_ratio(multiple),
          outcome_of_multiple(multiple)};
}

FlowChart flow_chart(const RunSummary& run) {
  FlowChart chart;
  const auto& sm_l2 = run.measured_sm_l2 ? run.measured_sm_l2 : run.closed_form;
  const auto& dram = run.measured_dram ? run.measured_dram : run.simulated_dram;
  if (sm_l2) chart.sm_l2 = flow_of(*sm_l2, run, *sm_l2_ratio(run));
  if (dram && dram_ratio(run)) chart.dram = flow_of(*dram, run, *dram_ratio(run));
  chart.color = look_of(run.label, run.algorithm).color;
  return chart;
}

/// Whether DRAM bytes, where both know them, or else SM<->L2 bytes are more above what must move.
bool worse(const RunSummary* a, const RunSummary* b) {
  return dram_ratio(*a) && dram_ratio(*b) ? *dram_ratio(*a) > *dram_ratio(*b)
                                          : *sm_l2_ratio(*a) > *sm_l2_ratio(*b);
}

std::string must_of_directions(const Runs& runs) {
  std::string text;
  std::set<Direction> seen;
  for (const RunSummary* run : runs) {
    if (!seen.insert(run->direction).second) continue;
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", must_text(*run), to_string(run->direction));
  }
  return text;
}

}  // namespace

std::optional<Figure> bytes_picture(const std::vector<RunSummary>& runs) {
  const RunSummary* const only = known_at_sm_l2(runs);
  if (only == nullptr) return std::nullopt;
  const Compared found = representative_comparison(runs);
  Runs shown = pictured(found.last ? found.members : Runs{only});
  if (shown.empty()) return std::nullopt;
  std::iter_swap(shown.begin(), std::ranges::min_element(shown, worse));
  std::vector<FlowChart> charts;
  for (const RunSummary* run : shown) charts.push_back(flow_chart(*run));
  share_width(charts);
  const RunSummary& first = *shown.front();
  Figure figure{"bytes-flow", "What moves between SMs, L2 and DRAM"};
  figure.caption = fmt::format(
      "{} on {}, {}. Arrows are as wide as bytes are many; the line within is what must move, every input "
      "read once and every output written once: {}. Red is {:g}x and more, when half of the bytes are the "
      "schedule's doing and not the problem's; green is up to {:g}x.",
      problem_text(first), machine_text(first), provenance(first), must_of_directions(shown), kBadMultiple,
      kGoodMultiple);
  for (std::size_t i = 0; i < shown.size(); ++i) {
    figure.panels.push_back(
        {fmt::format("{}, {}", shown[i]->label, to_string(shown[i]->direction)), draw(charts[i])});
    add_command(figure, *shown[i]);
  }
  return figure;
}

}  // namespace tilescope
