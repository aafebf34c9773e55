// SPDX-License-Identifier: Apache-2.0
// Formula and simulation held against what counters measured, pass by pass.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "analysis/model/validation/measured_pass.hpp"
#include "analysis/report/sections/model/agreement.hpp"
#include "analysis/report/sections/report_sections.hpp"
#include "analysis/report/sweep.hpp"
#include "common/number_format.hpp"

namespace tilescope {
namespace {

std::string range_of(const std::vector<double>& values) {
  const auto [low, high] = std::minmax_element(values.begin(), values.end());
  return percent_range(*low, *high);
}

std::string lengths(const std::vector<MeasuredPass>& passes) {
  std::int64_t low = passes.front().run->problem().seqlen_q, high = low;
  for (const MeasuredPass& pass : passes) {
    low = std::min(low, pass.run->problem().seqlen_q);
    high = std::max(high, pass.run->problem().seqlen_q);
  }
  return low == high ? format_length(low) : fmt::format("{} ... {}", format_length(low), format_length(high));
}

using PassKey = std::tuple<std::string, std::string, std::int64_t>;  // kernel, pass, head_dim

/// @param by_pages  whether those with pages at random places are groups of their own, by the kernel's name
std::map<PassKey, std::vector<MeasuredPass>> by_pass(const std::vector<MeasuredPass>& passes, bool by_pages) {
  std::map<PassKey, std::vector<MeasuredPass>> groups;
  for (const MeasuredPass& pass : passes) {
    const char* pages = by_pages && pass.random_pages() ? ", random pages" : "";
    groups[{pass.kernel() + pages, pass.pass->name, pass.run->problem().head_dim}].push_back(pass);
  }
  return groups;
}

Table sm_l2_table(const std::vector<MeasuredPass>& passes) {
  Table table{
      "Measured SM<->L2 bytes against the closed form: the smallest and the largest difference of any case. "
      "The "
      "last column is what a thread writes beyond the formula; one and the same figure in every case of a "
      "kernel is what a spilled register looks like.",
      {{"kernel"},
       {"pass"},
       {"d", true},
       {"cases", true},
       {"N"},
       {"read, from the closed form", true},
       {"written, from the closed form", true},
       {"more written, B/thread", true}},
      {}};
  const auto groups = by_pass(passes, false);
  for (const auto& [key, members] : groups) {
    std::vector<double> reads, writes, excess;
    for (const MeasuredPass& pass : members) {
      reads.push_back(pass.read_error());
      writes.push_back(pass.write_error());
      if (const auto bytes = pass.excess_per_thread()) excess.push_back(*bytes);
    }
    const auto [low, high] = std::minmax_element(excess.begin(), excess.end());
    const std::string read = range_of(reads), written = range_of(writes);
    if (nothing_off(read) && nothing_off(written)) continue;
    table.rows.push_back({std::get<0>(key), std::get<1>(key), std::to_string(std::get<2>(key)),
                          std::to_string(members.size()), lengths(members), read, written,
                          excess.empty()  ? "-"
                          : *low == *high ? fmt::format("{:.1f}", *low)
                                          : fmt::format("{:.1f} ... {:.1f}", *low, *high)});
  }
  if (const std::size_t silent = groups.size() - table.rows.size(); silent > 0)
    table.caption += " " + left_out_text(silent, groups.size());
  return table;
}

/// Passes of some group: all, those within their tolerance, those that are by their medians alone, those
/// counted in several launches, and those of the latter whose launches are further apart than the tolerance.
struct Count {
  std::int64_t all = 0, within = 0, by_median = 0, repeated = 0, differing = 0;

  void add(const Count& other) {
    all += other.all;
    within += other.within;
    by_median += other.by_median;
    repeated += other.repeated;
    differing += other.differing;
  }
  std::string launches_text() const {
    return repeated == 0 ? "-" : fmt::format("{} of {}", differing, repeated);
  }
};

/// Whether any pass of the table was counted in several launches.
bool any_repeated(const std::vector<MeasuredPass>& passes) {
  return std::ranges::any_of(
      passes, [](const MeasuredPass& pass) { return pass.has_dram() && pass.launch_spread(); });
}

/// Tolerances of simulated DRAM reads, where the model says that they fit the L2 and where not.
double dram_tolerance(const MeasuredPass& pass) { return pass.fits() ? 0.05 : 0.15; }

Count count(const std::vector<MeasuredPass>& members, const std::vector<NoiseFloor>& noise_floor) {
  Count count;
  for (const MeasuredPass& pass : members) {
    const double tolerance = dram_tolerance(pass);
    ++count.all;
    count.within += pass.dram_within(tolerance, noise_floor);
    count.by_median += std::abs(pass.dram_error()) <= tolerance;
    const auto spread = pass.launch_spread();
    count.repeated += spread.has_value();
    count.differing += spread && *spread > tolerance;
  }
  return count;
}

/// A row for the members; its cell on launches only if the table has that column.
void add_dram_row(Table& table, const PassKey& key, const char* regime, const Count& count, bool launches,
                  const std::vector<MeasuredPass>& members) {
  if (members.empty()) return;
  std::vector<double> errors;
  for (const MeasuredPass& pass : members) errors.push_back(std::abs(pass.dram_error()));
  std::ranges::sort(errors);
  const MeasuredPass& worst =
      *std::ranges::max_element(members, [](const MeasuredPass& a, const MeasuredPass& b) {
        return std::abs(a.dram_error()) < std::abs(b.dram_error());
      });
  std::vector<std::string> row = {std::get<0>(key),
                                  std::get<1>(key),
                                  std::to_string(std::get<2>(key)),
                                  regime,
                                  std::to_string(members.size()),
                                  fmt::format("{:.1f} %", 100 * errors[errors.size() / 2]),
                                  fmt::format("{} of {}", count.by_median, count.all),
                                  fmt::format("{} of {}", count.within, count.all)};
  if (launches) row.push_back(count.launches_text());
  row.insert(row.end(), {fmt::format("{:+.1f} %", 100 * worst.dram_error()), problem_text(*worst.run)});
  table.rows.push_back(std::move(row));
}

/// What the caption says of measurements that not every record has; nothing where none has them.
std::string more_on_within(const std::vector<MeasuredPass>& passes, bool launches,
                           const std::vector<NoiseFloor>& noise_floor) {
  const bool code = std::ranges::any_of(passes, [](const MeasuredPass& pass) {
    return pass.has_dram() && pass.pass->measured->instruction_fetch_bytes;
  });
  if (!launches && !code && noise_floor.empty()) return "";
  std::string text =
      " Where they were measured, the code and constants that the L2 fetched are added to the simulated "
      "reads";
  if (!noise_floor.empty()) {
    text +=
        "; for the column \"within\" the noise floor is added, too: what the device reads by itself in the "
        "time of the pass";
    if (noise_floor_loads(noise_floor).size() > 1) text += ", under the load that makes it read most";
  }
  text += ".";
  if (launches) {
    text +=
        " A pass also counts as within where its simulated reads lie between the smallest and the largest "
        "reads "
        "of its launches; \"within by its median\" is without this rule. \"Launches differ\" counts the "
        "cases whose launches lie further apart than the tolerance, relative to their median.";
  }
  return text;
}

/// What the caption says of random pages; nothing where none was measured.
std::string more_on_random_pages(const std::vector<MeasuredPass>& passes) {
  const bool any = std::ranges::any_of(
      passes, [](const MeasuredPass& pass) { return pass.has_dram() && pass.random_pages(); });
  if (!any) return "";
  return " Random pages: every page of the tensors lay at a random place, another in each launch, and was "
         "simulated so; medians over such placements are compared.";
}

/// The newest record's case where several records hold it.
std::vector<MeasuredPass> newest(const std::vector<MeasuredPass>& passes) {
  const auto key = [](const MeasuredPass& pass) {
    const RunEntry& run = *pass.run->run;
    return fmt::format("{} {} {} {} {} {} {}", pass.kernel(), pass.pass->name, to_string(pass.pass->tile),
                       problem_text(*pass.run), to_string(run.order.value_or(TileOrder::row_major)),
                       to_string(run.scan.value_or(Scan::ascending)), to_string(run.pages));
  };
  std::map<std::string, const RunRecord*> records;
  for (const MeasuredPass& pass : passes) {
    if (!pass.has_dram()) continue;
    const RunRecord*& record = records[key(pass)];
    if (record == nullptr || record->when < pass.run->record->when) record = pass.run->record;
  }
  std::vector<MeasuredPass> kept;
  std::copy_if(passes.begin(), passes.end(), std::back_inserter(kept), [&](const MeasuredPass& pass) {
    return pass.has_dram() && records[key(pass)] == pass.run->record;
  });
  return kept;
}

/// Both sides of every pass against the closed form, causes or not.
std::vector<Deviation> sm_l2_deviations(const std::vector<MeasuredPass>& passes) {
  constexpr double kNear = 1e-3;
  std::vector<Deviation> deviations;
  for (const MeasuredPass& pass : passes) {
    const std::string problem =
        fmt::format("d = {}, {}", pass.run->problem().head_dim, to_string(pass.run->problem().dtype));
    for (const auto& [side, off] : {std::pair("read", pass.read_error()), {"written", pass.write_error()}}) {
      deviations.push_back({pass.kernel(), pass.pass->name, problem, side, off, std::abs(off) <= kNear});
    }
  }
  return deviations;
}

Table dram_table(const std::vector<MeasuredPass>& passes, const std::vector<NoiseFloor>& noise_floor) {
  const bool launches = any_repeated(passes);
  Table table{
      "Simulated against measured DRAM reads. A pass fits when the model gives at most 1.05 times the "
      "reads that it must; within: at most 5 % off where it fits, 15 % where it does not. Passes that read "
      "every byte once are left out: any model is right about them. A case in several records counts once." +
          more_on_within(passes, launches, noise_floor) + more_on_random_pages(passes),
      {{"kernel"},
       {"pass"},
       {"d", true},
       {"L2"},
       {"cases", true},
       {"median difference", true},
       {"within by its median", true},
       {"within", true}},
      {}};
  if (launches) table.columns.push_back({"launches differ", true});
  table.columns.insert(table.columns.end(), {{"largest", true}, {"in"}});
  Count sum;
  for (const auto& [key, members] : by_pass(passes, true)) {
    std::vector<MeasuredPass> fitting, past;
    for (const MeasuredPass& pass : members) {
      if (pass.has_dram() && !pass.reads_once()) (pass.fits() ? fitting : past).push_back(pass);
    }
    const Count of_fitting = count(fitting, noise_floor), of_past = count(past, noise_floor);
    add_dram_row(table, key, "fits", of_fitting, launches, fitting);
    add_dram_row(table, key, "does not", of_past, launches, past);
    sum.add(of_fitting);
    sum.add(of_past);
  }
  if (sum.all > 0) {
    std::vector<std::string> row = {"all",
                                    "",
                                    "",
                                    "",
                                    std::to_string(sum.all),
                                    "",
                                    fmt::format("**{} of {}**", sum.by_median, sum.all),
                                    fmt::format("**{} of {}**", sum.within, sum.all)};
    if (launches) row.push_back(sum.launches_text());
    row.insert(row.end(), {"", ""});
    table.rows.push_back(std::move(row));
  }
  return table;
}

}  // namespace

DramAgreement dram_agreement(const std::vector<RunSummary>& runs,
                             const std::vector<NoiseFloor>& noise_floor) {
  DramAgreement agreement;
  for (const MeasuredPass& pass : newest(measured_passes(runs))) {
    if (pass.reads_once()) continue;
    const double tolerance = dram_tolerance(pass);
    ++agreement.all;
    agreement.by_median += std::abs(pass.dram_error()) <= tolerance;
    if (pass.dram_within(tolerance, noise_floor)) {
      ++agreement.within;
    } else {
      ++agreement.exceptions[pass.kernel()];
    }
  }
  return agreement;
}

std::optional<Section> measured_section(const std::vector<RunSummary>& runs,
                                        const std::vector<NoiseFloor>& noise_floor) {
  const std::vector<MeasuredPass> passes = measured_passes(runs);
  if (passes.empty()) return std::nullopt;
  std::vector<const RunSummary*> measured;
  for (const MeasuredPass& pass : passes) measured.push_back(pass.run);
  Section section{"measured", with_machines("Model against measurement", measured), {}};
  section.blocks.push_back(
      Paragraph{"Every pass was measured by itself with a cold L2; times come from other runs than counters. "
                "SM<->L2 bytes are those of the papers' model, and the closed form gives them; DRAM bytes "
                "are the L2's doing, and the simulation gives them."});
  add_agreement(section, sm_l2_deviations(passes), "within 0.1 %",
                "Measured SM<->L2 bytes against the closed form alone; the section on every byte names the "
                "causes of the rest.");
  section.blocks.push_back(sm_l2_table(passes));
  const Table dram = dram_table(newest(passes), noise_floor);
  if (!dram.rows.empty()) section.blocks.push_back(dram);
  std::set<std::string> commands;
  for (const MeasuredPass& pass : passes) commands.insert(command_text(pass.run->record->argv));
  section.blocks.push_back(CommandLines{reproduction({commands.begin(), commands.end()})});
  add_dram_sweeps(section, runs);
  return section;
}

}  // namespace tilescope
