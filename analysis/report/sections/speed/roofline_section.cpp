// SPDX-License-Identifier: Apache-2.0
// The roofline section of a report: charts of the most representative problems, and for all of them the share
// of each ceiling that a kernel reaches.
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <set>

#include "analysis/report/document/report_document.hpp"
#include "analysis/report/sections/report_sections.hpp"
#include "analysis/report/sections/speed/roofline_figures.hpp"
#include "analysis/report/sweep.hpp"
#include "common/number_format.hpp"

namespace tilescope {
namespace {

/// Problems with charts; a sweep's many others stand in a table alone.
constexpr std::size_t kMostDrawn = 3;

std::string percent(const std::optional<double>& share) {
  return share ? fmt::format("{:.1f} %", 100 * *share) : std::string("-");
}

/// What the shares are of, and whether rates were measured.
std::string limit_caption(const Subjects& subjects, const std::vector<Ceiling>& ceilings) {
  std::string text = "Shares are of";
  for (const Ceiling& ceiling : ceilings) {
    const bool bytes = ceiling.kind == CeilingKind::sm_l2 || ceiling.kind == CeilingKind::dram;
    text += fmt::format("{} {}, {}{}", &ceiling == &ceilings.front() ? "" : ";", ceiling.name,
                        bytes                               ? format_bytes(ceiling.per_second)
                        : ceiling.kind == CeilingKind::peak ? format_flops(ceiling.per_second)
                                                            : format_count(ceiling.per_second),
                        ceiling.measured     ? "/s measured"
                        : ceiling.documented ? "/s stated"
                                             : "/s **unverified**");
  }
  const bool any_timed = std::ranges::any_of(subjects, [](const auto& s) { return s.timed; });
  return text + (any_timed ? "." : ". Rates are those that the ceilings allow.");
}

const char* column_name(CeilingKind kind) {
  constexpr const char* names[] = {"of peak", "of SM<->L2", "of DRAM", "of exponentials"};
  return names[static_cast<std::size_t>(kind)];
}

/// The runs of one problem on one machine.
struct Group {
  RunCeilings ceilings;
  Subjects forward, backward;

  Subjects all() const {
    Subjects both = forward;
    both.insert(both.end(), backward.begin(), backward.end());
    return both;
  }
};

/// What single-problem figures show, and of the sweeps with measured bytes and times the longest points: they
/// have rooflines of their own beside simulated ones.
std::vector<const RunSummary*> drawn_runs(const std::vector<RunSummary>& runs) {
  std::vector<const RunSummary*> drawn = headline_runs(runs);
  for (const auto& points : token_sweeps(runs)) {
    const RunSummary* longest = points.back();
    const bool known = std::ranges::find(drawn, longest) != drawn.end();
    if (longest->measured_sm_l2 && longest->median_seconds && !known) drawn.push_back(longest);
  }
  return drawn;
}

std::vector<Group> groups_of(const std::vector<std::vector<const RunSummary*>>& problems) {
  std::vector<Group> groups;
  for (const auto& members : problems) {
    // Those of tensor cores where some kernel computes on them: a chart has the highest roof.
    const auto tensor = std::ranges::find_if_not(
        members, [](const RunSummary* run) { return run->on_cuda_cores.value_or(false); });
    const std::optional<RunCeilings> ceilings =
        run_ceilings(tensor == members.end() ? *members.front() : **tensor);
    if (!ceilings || !find(ceilings->stated, CeilingKind::peak)) continue;
    Group group{*ceilings, {}, {}};
    for (const RunSummary* run : members) {
      if (!run->closed_form && !run->measured_sm_l2) continue;
      const auto subject = roofline_subject(*run, run_ceilings(*run).value_or(*ceilings));
      if (!subject) continue;
      (run->direction == Direction::forward ? group.forward : group.backward).push_back(*subject);
    }
    if (!group.forward.empty() || !group.backward.empty()) groups.push_back(std::move(group));
  }
  return groups;
}

Table empty_limit_table(const std::vector<Ceiling>& ceilings) {
  Table table{
      "",
      {{"pass"}, {"kernel"}, {"FLOP/B SM<->L2", true}, {"DRAM", true}, {"must move", true}, {"rate", true}},
      {}};
  for (const Ceiling& ceiling : ceilings) table.columns.push_back({column_name(ceiling.kind), true});
  table.columns.push_back({"nearest ceiling"});
  return table;
}

/// "DRAM bandwidth, at 19 %": the ceiling that it comes nearest to, which need not be what holds it back; and
/// whether no document and no measurement stands behind it.
std::string nearest_text(const RooflineSubject& subject, const std::vector<Ceiling>& ceilings) {
  const auto found = std::ranges::find(ceilings, subject.limit, &Ceiling::name);
  if (found == ceilings.end()) return subject.limit;
  const auto share = share_of(*found, subject.work, subject.seconds);
  return fmt::format("{}{}{}", subject.limit, found->measured || found->documented ? "" : " (unverified)",
                     share ? fmt::format(", at {:.0f} %", 100 * *share) : "");
}

void add_rows(Table& table, const Subjects& subjects, const std::vector<Ceiling>& ceilings) {
  const bool any_timed = std::ranges::any_of(subjects, [](const auto& s) { return s.timed; });
  const auto number = [](const std::optional<double>& value) {
    return value ? format_number(*value) : std::string("-");
  };
  std::vector<const RunSummary*> together;
  for (const RooflineSubject& subject : subjects) together.push_back(subject.run);
  for (const RooflineSubject& subject : subjects) {
    const double flops = static_cast<double>(subject.work.flops);
    std::vector<std::string> row = {
        std::string(to_string(subject.run->direction)),
        title_in(together, *subject.run),
        number(subject.intensity(flops, CeilingKind::sm_l2)),
        number(subject.intensity(flops, CeilingKind::dram)),
        format_number(flops / static_cast<double>(subject.run->compulsory.total())),
        flops_rate(subject.flops_per_second()) + (any_timed && !subject.timed ? ", allowed" : "")};
    for (const Ceiling& ceiling : ceilings) {
      row.push_back(percent(share_of(ceiling, subject.work, subject.seconds)));
    }
    row.push_back(nearest_text(subject, ceilings));
    table.rows.push_back(std::move(row));
  }
}

/// Those of the record in which most algorithms meet: a chart compares kernels that were run alike.
Subjects run_alike(const Subjects& subjects) {
  std::vector<const RunSummary*> runs;
  for (const RooflineSubject& subject : subjects) runs.push_back(subject.run);
  const auto algorithms = [](const std::vector<const RunSummary*>& of_record) {
    std::set<std::optional<Algorithm>> found;
    for (const RunSummary* run : of_record) found.insert(run->algorithm);
    return found.size();
  };
  const auto records = group_by_record(runs);
  const RunRecord* const most = std::ranges::max_element(records, {}, algorithms)->front()->record;
  Subjects alike;
  std::copy_if(subjects.begin(), subjects.end(), std::back_inserter(alike),
               [most](const RooflineSubject& subject) { return subject.run->record == most; });
  return alike;
}

void add_figures(Section& section, const Group& group) {
  for (const Subjects* side : {&group.forward, &group.backward}) {
    if (side->empty()) continue;
    const Subjects subjects = run_alike(*side);
    add_to_figure(section, roofline_figure(subjects, group.ceilings));
    if (auto figure = instruction_figure(subjects, group.ceilings)) {
      add_to_figure(section, std::move(*figure));
    }
  }
}

/// Whether nobody can say whose peak is its roof.
bool lacks_unit(const RunSummary& run) {
  const bool counted = run.closed_form || run.measured_sm_l2;
  return counted && run.run->runs_on == "gpu" && !run.on_cuda_cores;
}

/// One table for each set of ceilings: kernels on CUDA cores have their own.
void add_tables(Section& section, const std::vector<Group>& groups) {
  std::vector<std::pair<std::string, Table>> tables;  // by machine and peak
  for (const Group& group : groups) {
    for (const bool cuda_cores : {false, true}) {
      Subjects subjects = group.all();
      std::erase_if(subjects, [cuda_cores](const RooflineSubject& subject) {
        return subject.run->on_cuda_cores.value_or(false) != cuda_cores;
      });
      if (subjects.empty()) continue;
      const RunCeilings own = run_ceilings(*subjects.front().run).value_or(group.ceilings);
      const std::vector<Ceiling> ceilings = best_documented(own.stated, own.measured);
      const std::string key = own.machine_title + ceilings.front().name;
      auto place = std::ranges::find_if(tables, [&key](const auto& entry) { return entry.first == key; });
      if (place == tables.end()) {
        tables.emplace_back(key, empty_limit_table(ceilings));
        place = tables.end() - 1;
        place->second.caption =
            fmt::format("**{}.** {}", own.machine_title, limit_caption(subjects, ceilings));
      }
      place->second.rows.push_back({problem_text(*subjects.front().run)});
      add_rows(place->second, subjects, ceilings);
    }
  }
  for (auto& [key, table] : tables) section.blocks.push_back(std::move(table));
}

}  // namespace

std::optional<Section> roofline_section(const std::vector<RunSummary>& all_runs) {
  const std::ptrdiff_t unknown =
      std::ranges::count_if(tabled_runs(all_runs), [](const RunSummary* run) { return lacks_unit(*run); });
  std::vector<RunSummary> runs = all_runs;
  std::erase_if(runs, lacks_unit);
  Section section{"roofline", "Roofline", {}};
  section.blocks.push_back(Paragraph{
      "Useful FLOP are 2 products forward and 5 backward over the visible (query, key) pairs, "
      "however many a kernel executes; exponentials are one for each visible pair and pass that "
      "computes P from the scores. A kernel is a horizontal bar: filled marker, its intensity "
      "at SM<->L2; open marker, at DRAM; cross, at what must move. The gap "
      "between the first two is reuse in the L2. A bar stands at the measured rate or, where no "
      "time was measured, at the rate that the ceilings allow: the ceiling that it touches is its "
      "limit. Kernels that multiply on CUDA cores stand under these cores' peak, whatever their element "
      "type. Arrows lead from standard to flash2 at both boundaries. Dashed ceilings come from "
      "datasheets and the literature, solid ones were measured. The tables name the ceiling that "
      "a kernel comes nearest to, and the share of each that it reaches: far below, something else "
      "holds it back."});
  for (const Group& group : groups_of(most_representative(group_by_problem(drawn_runs(runs)), kMostDrawn)))
    add_figures(section, group);
  const std::vector<Group> groups = groups_of(group_by_problem(tabled_runs(runs)));
  add_tables(section, groups);
  std::vector<std::string> machines;
  for (const Group& group : groups) add_new(machines, group.ceilings.machine_title);
  section.title = with_machines(section.title, machines);
  if (section.blocks.size() == 1) return std::nullopt;
  if (unknown > 0) {
    section.blocks.push_back(Paragraph{
        fmt::format("{} left out: what multiplies stands in no record as old as theirs, and a count of "
                    "instructions, which would tell, neither.",
                    unknown == 1 ? "One run is" : fmt::format("{} runs are", unknown))});
  }
  return section;
}

}  // namespace tilescope
