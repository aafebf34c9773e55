// SPDX-License-Identifier: Apache-2.0
#include "analysis/report/sweep.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <numeric>
#include <set>
#include <tuple>

#include "analysis/report/document/report_document.hpp"

namespace tilescope {
namespace {

constexpr std::size_t kLeastPoints = 3;

/// Order of series in figures and of keys in maps: the papers' order of invention, then the name.
std::pair<int, std::string> series_rank(const RunSummary& run) {
  return {run.algorithm ? static_cast<int>(*run.algorithm) : 3, run.label};
}

/// Groups runs by `sweep_key` and, inside, by `series_key`; sorts by `value`; keeps series with enough
/// values.
template <typename SweepKey, typename SeriesKey, typename Value>
std::vector<Sweep> find_sweeps(const std::vector<RunSummary>& runs, SweepKey sweep_key, SeriesKey series_key,
                               Value value) {
  // Keyed by text, so that the order is that of the values and not of the records.
  std::map<std::string, std::map<std::tuple<int, std::string, std::string>, std::vector<const RunSummary*>>>
      groups;
  for (const RunSummary& run : runs) {
    if (value(run) == 0 || (!run.closed_form && !run.measured_sm_l2)) continue;  // nothing but a time
    const auto [rank, label] = series_rank(run);
    groups[sweep_key(run)][{rank, label, series_key(run)}].push_back(&run);
  }
  std::vector<Sweep> sweeps;
  for (auto& [key, members] : groups) {
    Sweep sweep;
    for (auto& [series, points] : members) {
      std::ranges::stable_sort(
          points, [&value](const RunSummary* a, const RunSummary* b) { return value(*a) < value(*b); });
      const auto same = [&value](const RunSummary* a, const RunSummary* b) { return value(*a) == value(*b); };
      points.erase(std::unique(points.begin(), points.end(), same), points.end());
      if (points.size() < kLeastPoints) continue;
      sweep.series.push_back({points.front()->label, points.front()->tile, points});
    }
    if (sweep.series.empty()) continue;
    const RunSummary& last = *sweep.series.front().points.back();
    sweep.problem = last.problem();
    sweep.direction = last.direction;
    sweep.machine_model = last.machine_model;
    sweeps.push_back(std::move(sweep));
  }
  return sweeps;
}

std::string problem_key(AttentionProblem problem, const RunSummary& run, bool with_seqlen) {
  problem.seed = 0;  // no byte depends on it
  if (!with_seqlen) problem.seqlen_q = problem.seqlen_k = 1;
  return describe(problem) + (run.direction == Direction::forward ? " 0" : " 1") + run.machine_model;
}

/// Two records may hold the same run.
std::vector<const RunSummary*> without_repeats(const std::vector<const RunSummary*>& runs) {
  std::vector<const RunSummary*> unique;
  std::set<std::tuple<std::string, std::string, std::string>> seen;
  for (const RunSummary* run : runs) {
    if (seen.insert({problem_key(run->problem(), *run, true), run->label, to_string(run->tile)}).second) {
      unique.push_back(run);
    }
  }
  return unique;
}

/// Runs of equal keys together, in the order in which the keys first appear.
template <class KeyOf>
std::vector<std::vector<const RunSummary*>> grouped(const std::vector<const RunSummary*>& runs, KeyOf key) {
  std::vector<std::vector<const RunSummary*>> groups;
  std::map<decltype(key(*runs.front())), std::size_t> places;
  for (const RunSummary* run : runs) {
    const auto [place, added] = places.try_emplace(key(*run), groups.size());
    if (added) groups.emplace_back();
    groups[place->second].push_back(run);
  }
  return groups;
}

}  // namespace

int swept_block(const RunSummary& run) {
  const bool owns_q_tile = run.algorithm == Algorithm::flash2 && run.direction == Direction::forward;
  return owns_q_tile ? run.tile.block_m : run.tile.block_n;
}

std::vector<Sweep> seqlen_sweeps(const std::vector<RunSummary>& runs) {
  return find_sweeps(
      runs, [](const RunSummary& run) { return problem_key(run.problem(), run, false); },
      [](const RunSummary& run) { return to_string(run.tile); },
      [](const RunSummary& run) {
        const AttentionProblem& p = run.problem();
        return p.seqlen_q == p.seqlen_k ? p.seqlen_q : 0;
      });
}

std::vector<std::vector<const RunSummary*>> token_sweeps(const std::vector<RunSummary>& runs) {
  std::map<std::string, std::vector<const RunSummary*>> groups;
  for (const RunSummary& run : runs) {
    AttentionProblem fixed = run.problem();
    if (fixed.seqlen_q != fixed.seqlen_k || (!run.closed_form && !run.measured_sm_l2)) continue;
    fixed.batch *= fixed.seqlen_q;
    const char* account = run.measured_sm_l2 ? " measured " : " ";
    groups[run.label + " " + to_string(run.tile) + account + problem_key(fixed, run, false)].push_back(&run);
  }
  std::vector<std::vector<const RunSummary*>> sweeps;
  for (auto& [key, points] : groups) {
    const auto shorter = [](const RunSummary* a, const RunSummary* b) {
      return a->problem().seqlen_q < b->problem().seqlen_q;
    };
    std::ranges::stable_sort(points, shorter);
    std::set<std::int64_t> lengths;
    for (const RunSummary* point : points) lengths.insert(point->problem().seqlen_q);
    if (lengths.size() >= kLeastPoints) sweeps.push_back(std::move(points));
  }
  return sweeps;
}

std::vector<Sweep> head_dim_sweeps(const std::vector<RunSummary>& runs) {
  return find_sweeps(
      runs,
      [](const RunSummary& run) {
        AttentionProblem problem = run.problem();
        problem.head_dim = 1;
        return problem_key(problem, run, true);
      },
      [](const RunSummary& run) { return std::to_string(swept_block(run)); },
      [](const RunSummary& run) { return run.measured_sm_l2 ? run.problem().head_dim : 0; });
}

std::vector<Sweep> tile_sweeps(const std::vector<RunSummary>& runs) {
  return find_sweeps(
      runs, [](const RunSummary& run) { return problem_key(run.problem(), run, true); },
      [](const RunSummary&) { return std::string(); },
      [](const RunSummary& run) { return static_cast<std::int64_t>(swept_block(run)); });
}

std::vector<const RunSummary*> headline_runs(const std::vector<RunSummary>& runs) {
  std::set<const RunSummary*> swept, last;
  for (const auto& sweeps : {seqlen_sweeps(runs), tile_sweeps(runs)}) {
    for (const Sweep& sweep : sweeps) {
      const auto length_of = [](const RunSummary* run) { return run->problem().seqlen_q; };
      std::set<std::int64_t> lengths;  // at which a series ends: those that go on are shown there too
      for (const SweepSeries& series : sweep.series) lengths.insert(length_of(series.points.back()));
      for (const SweepSeries& series : sweep.series) {
        swept.insert(series.points.begin(), series.points.end());
        const RunSummary* const end = series.points.back();
        last.insert(end);
        std::ranges::copy_if(series.points, std::inserter(last, last.end()), [&](const RunSummary* point) {
          return length_of(point) != length_of(end) && lengths.contains(length_of(point));
        });
      }
    }
  }
  for (const auto& points : token_sweeps(runs)) swept.insert(points.begin(), points.end());
  std::set<const RunEntry*> unswept;
  for (const RunSummary& run : runs) {
    if (!swept.contains(&run)) unswept.insert(run.run);
  }
  std::vector<const RunSummary*> singles, ends;
  for (const RunSummary& run : runs) {
    if (!run.closed_form && !run.measured_sm_l2) continue;
    if (unswept.contains(run.run)) singles.push_back(&run);
    if (last.contains(&run)) ends.push_back(&run);
  }
  return without_repeats(singles.empty() ? ends : singles);
}

std::vector<const RunSummary*> tabled_runs(const std::vector<RunSummary>& runs) {
  std::vector<const RunSummary*> tabled = headline_runs(runs);  // first: few read a long table to its end
  for (const RunSummary& run : runs) {
    if (run.closed_form || run.measured_sm_l2) tabled.push_back(&run);
  }
  return without_repeats(tabled);
}

std::vector<std::vector<const RunSummary*>> most_representative(
    const std::vector<std::vector<const RunSummary*>>& problems, std::size_t most) {
  std::vector<std::size_t> ranked(problems.size());
  std::iota(ranked.begin(), ranked.end(), std::size_t{0});
  const auto rank = [&problems](std::size_t index) {
    std::set<std::optional<Algorithm>> algorithms;
    std::int64_t flops = 0;
    for (const RunSummary* run : problems[index]) {
      algorithms.insert(run->algorithm);
      flops = std::max(flops, run->useful_flops);
    }
    return std::tuple(algorithms.size(), problems[index].size(), flops);
  };
  std::ranges::stable_sort(ranked, [&rank](std::size_t a, std::size_t b) { return rank(a) > rank(b); });
  ranked.resize(std::min(most, ranked.size()));
  std::ranges::sort(ranked);
  std::vector<std::vector<const RunSummary*>> chosen;
  for (const std::size_t index : ranked) chosen.push_back(problems[index]);
  return chosen;
}

std::string describe_fixed(const Sweep& sweep, bool with_seqlen) {
  const std::string text = problem_text(*sweep.series.front().points.back(), with_seqlen);
  return sweep.machine_model.empty() ? text : text + ", " + sweep.machine_model + " model";
}

std::vector<std::vector<const RunSummary*>> group_by_problem(const std::vector<const RunSummary*>& runs) {
  return grouped(runs, [](const RunSummary& run) {
    return std::tuple(problem_text(run), run.machine_model, run.measured_sm_l2.has_value());
  });
}

std::vector<std::vector<const RunSummary*>> group_by_record(const std::vector<const RunSummary*>& runs) {
  return grouped(runs, [](const RunSummary& run) { return run.record; });
}

std::string title_in(const std::vector<const RunSummary*>& runs, const RunSummary& run) {
  const auto same_label = [&run](const RunSummary* other) {
    return other->direction == run.direction && other->label == run.label;
  };
  if (std::ranges::count_if(runs, same_label) < 2) return run.label;
  return run.label + " " + to_string(run.tile);
}

std::string machine_text(const RunSummary& run) {
  const MachineInfo& machine = run.record->machine;
  if (!run.measured_sm_l2 && !run.machine_model.empty()) return run.machine_model + " model";
  return machine.name.value_or(machine.cpu.value_or("an unknown machine"));
}

static std::optional<double> times_compulsory(const std::optional<ReadWriteBytes>& bytes,
                                              const RunSummary& run) {
  if (!bytes || run.compulsory.total() == 0) return std::nullopt;
  return static_cast<double>(bytes->total()) / static_cast<double>(run.compulsory.total());
}
std::optional<double> dram_ratio(const RunSummary& run) {
  return times_compulsory(run.measured_dram ? run.measured_dram : run.simulated_dram, run);
}
std::optional<double> sm_l2_ratio(const RunSummary& run) {
  return times_compulsory(run.measured_sm_l2 ? run.measured_sm_l2 : run.closed_form, run);
}

std::string with_machines(const std::string& title, const std::vector<std::string>& machines) {
  constexpr std::size_t kMostNamed = 3;
  if (machines.empty()) return title;
  if (machines.size() > kMostNamed) return fmt::format("{} ({} machines)", title, machines.size());
  const bool have_commas = std::ranges::any_of(
      machines, [](const std::string& machine) { return machine.find(',') != std::string::npos; });
  return fmt::format("{} ({})", title, fmt::join(machines, have_commas ? "; " : ", "));
}

std::vector<const RunSummary*> measured_runs(const std::vector<RunSummary>& runs) {
  std::vector<const RunSummary*> measured;
  for (const RunSummary& run : runs) {
    if (run.measured_sm_l2) measured.push_back(&run);
  }
  return measured;
}

std::string with_machines(const std::string& title, const std::vector<const RunSummary*>& runs) {
  std::vector<std::string> machines;
  for (const RunSummary* run : runs) add_new(machines, machine_text(*run));
  return with_machines(title, machines);
}

void add_command(std::vector<std::string>& commands, const RunRecord& record) {
  add_new(commands, command_text(record.argv));
}

void add_command(Figure& figure, const RunSummary& run) { add_command(figure.commands, *run.record); }

void add_to_figure(Section& section, Figure figure) {
  for (Panel& panel : figure.panels) panel.commands = figure.commands;
  for (Block& block : section.blocks) {
    Figure* known = std::get_if<Figure>(&block);
    if (known == nullptr || known->name != figure.name) continue;
    for (Panel& panel : figure.panels) known->panels.push_back(std::move(panel));
    for (const std::string& command : figure.commands) add_new(known->commands, command);
    return;
  }
  section.blocks.push_back(std::move(figure));
}

void add_commands(Figure& figure, const Sweep& sweep) {
  for (const SweepSeries& series : sweep.series) {
    for (const RunSummary* point : series.points) add_command(figure, *point);
  }
}

}  // namespace tilescope
