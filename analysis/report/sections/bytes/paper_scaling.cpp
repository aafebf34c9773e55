// SPDX-License-Identifier: Apache-2.0
#include "analysis/report/sections/bytes/paper_scaling.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "analysis/report/sections/report_sections.hpp"
#include "analysis/report/sweep.hpp"
#include "common/number_format.hpp"

namespace tilescope {
namespace {

/// CTAs of the direction's pass that computes most.
std::int64_t ctas_of(const RunSummary& run) {
  ProgramOptions options = ProgramOptions::with_tile(run.tile);
  options.backward = BackwardOrder::fused;
  const std::vector<TileProgram> programs =
      build_programs(*run.algorithm, run.direction, run.problem(), options);
  return std::ranges::max_element(programs, {},
                                  [](const TileProgram& program) { return executed_flops(program); })
      ->num_ctas();
}

std::string visited_text(double share) { return fmt::format("{:.1f} %", 100 * share); }

}  // namespace

std::vector<SparsityPoint> sparsity_points(const std::vector<RunSummary>& study) {
  std::vector<SparsityPoint> points;
  for (const Direction direction : {Direction::forward, Direction::backward}) {
    std::vector<const RunSummary*> runs;
    for (const RunSummary& run : study) {
      if (run.direction == direction && run.closed_form) runs.push_back(&run);
    }
    std::ranges::sort(runs, {}, &RunSummary::executed_flops);
    for (const RunSummary* run : runs) {
      const AttentionProblem& p = run->problem();
      const double n = static_cast<double>(p.seqlen_q), d = static_cast<double>(p.head_dim);
      const double fast = 4 * d * run->tile.block_n;  // M, by the rule that made the tile
      const double share =
          static_cast<double>(run->executed_flops) / static_cast<double>(runs.back()->executed_flops);
      const double elements = static_cast<double>(run->closed_form->total()) / element_bytes(p.dtype);
      points.push_back({run, share, elements / (n * d + share * n * n * d * d / fast)});
    }
  }
  return points;
}

std::vector<ParallelismPoint> parallelism_points(const std::vector<RunSummary>& study) {
  std::vector<ParallelismPoint> points;
  for (const RunSummary& run : study) {
    const std::optional<Machine> machine = machine_of(run);
    if (!run.algorithm || !machine) continue;
    const std::int64_t sms = machine->sm_count.value, ctas = ctas_of(run);
    const std::int64_t waves = (ctas + sms - 1) / sms;
    points.push_back({&run, run.problem().batch * run.problem().heads, ctas,
                      static_cast<double>(ctas) / static_cast<double>(waves * sms)});
  }
  return points;
}

const ParallelismPoint* find_point(const std::vector<ParallelismPoint>& points, Algorithm algorithm,
                                   Direction direction, std::int64_t heads) {
  const auto found = std::ranges::find_if(points, [&](const ParallelismPoint& point) {
    return point.run->algorithm == algorithm && point.run->direction == direction && point.heads == heads;
  });
  return found == points.end() ? nullptr : &*found;
}

std::optional<Section> sparsity_section(const std::vector<RunSummary>& study) {
  const std::vector<SparsityPoint> points = sparsity_points(study);
  if (points.empty()) return std::nullopt;
  const RunSummary& last = *points.back().run;
  Table table{
      fmt::format("{} at tiles of {}, by window: the share s of tiles that are visited, bytes at "
                  "SM<->L2 by closed form, and elements over N d + s N² d² / M, which Proposition 4 "
                  "says is bounded.",
                  last.run->kernel, to_string(last.tile)),
      {{"pass"}, {"problem"}, {"s", true}, {"SM<->L2", true}, {"of the dense", true}, {"constant", true}},
      {}};
  for (const SparsityPoint& point : points) {
    const auto dense = std::ranges::find_if(points, [&point](const SparsityPoint& other) {
      return other.run->direction == point.run->direction && other.share == 1;
    });
    const double bytes = static_cast<double>(point.run->closed_form->total());
    table.rows.push_back({std::string(to_string(point.run->direction)), problem_text(*point.run),
                          visited_text(point.share), format_bytes(bytes),
                          visited_text(bytes / static_cast<double>(dense->run->closed_form->total())),
                          format_number(point.accesses)});
  }
  return Section{"sparsity",
                 "Bytes against the share of tiles that a mask leaves",
                 {std::move(table), CommandLines{reproduction({command_text(last.record->argv)})}}};
}

std::optional<Section> parallelism_section(const std::vector<RunSummary>& study) {
  const std::vector<ParallelismPoint> points = parallelism_points(study);
  if (points.empty()) return std::nullopt;
  const RunSummary& first = *points.front().run;
  Table table{
      fmt::format("N{} D{}, {}: FlashAttention with a CTA a head, as its paper launches it, beside "
                  "FlashAttention-2 with one for each tile of Q (backward of K and V). Busy: the share "
                  "of the SMs' time that CTAs of equal work, one an SM, can fill.",
                  first.problem().seqlen_q, first.problem().head_dim, machine_text(first)),
      {{"pass"},
       {"B x H", true},
       {"CTAs, flash1", true},
       {"flash2", true},
       {"busy, flash1", true},
       {"flash2", true},
       {"DRAM, flash1", true},
       {"flash2", true}},
      {}};
  for (const Direction direction : {Direction::forward, Direction::backward}) {
    std::set<std::int64_t> counts;
    for (const ParallelismPoint& point : points) counts.insert(point.heads);
    for (const std::int64_t heads : counts) {
      const ParallelismPoint* a = find_point(points, Algorithm::flash1, direction, heads);
      const ParallelismPoint* b = find_point(points, Algorithm::flash2, direction, heads);
      if (!a || !b) continue;
      const auto dram = [](const ParallelismPoint& point) {
        const auto& bytes = point.run->simulated_dram;
        return bytes ? format_bytes(static_cast<double>(bytes->total())) : std::string("-");
      };
      table.rows.push_back({std::string(to_string(direction)), std::to_string(heads), std::to_string(a->ctas),
                            std::to_string(b->ctas), visited_text(a->busy), visited_text(b->busy), dram(*a),
                            dram(*b)});
    }
  }
  return Section{"parallelism",
                 with_machines("CTAs over heads alone, and over the sequence", {&first}),
                 {std::move(table), CommandLines{reproduction({command_text(first.record->argv)})}}};
}

}  // namespace tilescope
