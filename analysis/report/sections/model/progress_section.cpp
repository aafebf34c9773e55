// SPDX-License-Identifier: Apache-2.0
// How unevenly SMs share themselves between their CTAs, and how far their clocks lie apart.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "analysis/report/document/add_new.hpp"
#include "analysis/report/sections/report_sections.hpp"
#include "analysis/report/sweep.hpp"
#include "common/number_format.hpp"

namespace tilescope {
namespace {

/// From run to run of the same pass, which differ in length, mask or heads.
struct Range {
  double least = 0, largest = 0;
  void add(double value) {
    least = least == 0 ? value : std::min(least, value);
    largest = std::max(largest, value);
  }
  std::string text(int digits) const {
    if (largest == 0) return "";
    const std::string from = fmt::format("{:.{}f}", least, digits),
                      to = fmt::format("{:.{}f}", largest, digits);
    return from == to ? from : fmt::format("{} ... {}", from, to);
  }
};

struct ProgressRanges {
  int runs = 0, ctas_per_sm = 0;
  Range step_cycles, younger_rate, alone_rate, step_cv, tpc_cv, clock_cv;
};

}  // namespace

std::optional<Section> progress_section(const std::vector<RunRecord>& records) {
  using Key = std::tuple<std::string, std::string, std::string, std::int64_t, std::string>;
  std::map<Key, ProgressRanges> by_pass;
  std::vector<std::string> commands, machines;
  for (const RunRecord& record : records) {
    for (const RunEntry& run : record.runs) {
      for (const PassRecord& pass : run.passes) {
        if (!pass.progress) continue;
        ProgressRanges& ranges = by_pass[{run.kernel, pass.name, std::string(to_string(run.problem.dtype)),
                                          run.problem.head_dim, to_string(pass.tile)}];
        ++ranges.runs;
        ranges.ctas_per_sm = pass.progress->ctas_per_sm;
        // 0: nobody looked; 1: no CTA was ever younger, or alone.
        const bool steps_noted = pass.progress->step_cycles > 0;
        if (steps_noted) ranges.step_cycles.add(pass.progress->step_cycles);
        if (steps_noted && pass.progress->ctas_per_sm > 1)
          ranges.younger_rate.add(pass.progress->rates.younger_rate);
        if (pass.progress->rates.alone_rate != 1) ranges.alone_rate.add(pass.progress->rates.alone_rate);
        if (pass.progress->rates.step_cv > 0) ranges.step_cv.add(100 * pass.progress->rates.step_cv);
        if (pass.progress->rates.tpc_cv > 0) ranges.tpc_cv.add(100 * pass.progress->rates.tpc_cv);
        if (pass.progress->rates.clock_cv > 0) ranges.clock_cv.add(100 * pass.progress->rates.clock_cv);
        add_command(commands, record);
        add_new(machines, record.machine.name.value_or("an unknown device"));
      }
    }
  }
  if (by_pass.empty()) return std::nullopt;
  Table table{
      "Progress rates under oldest-first arbitration: steps that a CTA makes while the oldest CTA of a full "
      "SM makes one; and the time of that one; the least and the largest of several lengths and masks. An SM "
      "favours its oldest CTA, and gives much more to one that is alone. The last columns are coefficients "
      "of variation: of the time of a step, each by itself; of what TPCs of two SMs take for the same work, "
      "in kernels that note no steps; and of the SMs' clocks over a pass: each GPC has a clock of its own, "
      "and where power keeps them below the highest, none is quite like another. So CTAs that began together "
      "drift apart, and those that run ahead fetch what may have left the L2 when the others come to it. "
      "Rates and steps are of a build with -D TILESCOPE_STEP_CLOCK=ON, TPCs of one without.",
      {{"kernel"},
       {"pass"},
       {"type"},
       {"d", true},
       {"tile"},
       {"runs", true},
       {"step, cycles", true},
       {"CTAs an SM", true},
       {"younger's rate", true},
       {"rate alone", true},
       {"steps, CV %", true},
       {"TPCs, CV %", true},
       {"clocks, CV %", true}},
      {}};
  for (const auto& [key, ranges] : by_pass) {
    const auto& [kernel, pass, type, head_dim, tile] = key;
    table.rows.push_back({kernel, pass, type, std::to_string(head_dim), tile, std::to_string(ranges.runs),
                          ranges.step_cycles.text(0), std::to_string(ranges.ctas_per_sm),
                          ranges.younger_rate.text(3), ranges.alone_rate.text(2), ranges.step_cv.text(1),
                          ranges.tpc_cv.text(3), ranges.clock_cv.text(3)});
  }
  return Section{"progress",
                 with_machines("How unevenly CTAs proceed", machines),
                 {std::move(table), CommandLines{reproduction(commands)}}};
}

}  // namespace tilescope
