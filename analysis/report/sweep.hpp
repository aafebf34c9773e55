// SPDX-License-Identifier: Apache-2.0
// Finds the sweeps among runs: those that differ in one thing only, at three or more of its values.
#pragma once

#include <string>
#include <vector>

#include "analysis/model/counts/run_summary.hpp"
#include "analysis/report/document/report_document.hpp"

namespace tilescope {

/// The points of one kernel, by ascending value of what varies, each value once.
struct SweepSeries {
  std::string label;
  TileShape tile;  // of the first point
  std::vector<const RunSummary*> points;
};

struct Sweep {
  AttentionProblem problem;  // of the last point of the first series
  Direction direction = Direction::forward;
  std::string machine_model;
  std::vector<SweepSeries> series;  // standard, flash1, flash2, then others; by label within
};

/// seqlen_q = seqlen_k varies; kernel, tile and the rest of the problem stay.
std::vector<Sweep> seqlen_sweeps(const std::vector<RunSummary>& runs);

/// seqlen varies with batch * seqlen fixed, so that what must be read stays the same; the kernel, its choices
/// and the rest of the problem stay. Runs with bytes alone, by ascending seqlen, three or more.
std::vector<std::vector<const RunSummary*>> token_sweeps(const std::vector<RunSummary>& runs);

/// head_dim varies; kernel, swept_block() and the rest of the problem stay. Measured runs alone.
std::vector<Sweep> head_dim_sweeps(const std::vector<RunSummary>& runs);

/// The tile varies; kernel and problem stay. Points are ordered by swept_block().
std::vector<Sweep> tile_sweeps(const std::vector<RunSummary>& runs);

/// The side of the tile that sets how often the other axis is streamed: rows of Q where a CTA owns a q tile
/// (flash2 forward), rows of K/V where it owns a kv tile. [rows]
int swept_block(const RunSummary& run);

/// The runs that single-problem figures show: those with bytes that have a direction in no sweep. Without any
/// such run: the last point of each series, and what longer series have at its length.
std::vector<const RunSummary*> headline_runs(const std::vector<RunSummary>& runs);

/// Every run with bytes; what several records hold, once.
std::vector<const RunSummary*> tabled_runs(const std::vector<RunSummary>& runs);

/// Runs of one problem together, on one machine model or measured, in the order in which the problems first
/// appear.
std::vector<std::vector<const RunSummary*>> group_by_problem(const std::vector<const RunSummary*>& runs);

/// Runs of one record together, in the order in which the records first appear: what one record holds was run
/// alike.
std::vector<std::vector<const RunSummary*>> group_by_record(const std::vector<const RunSummary*>& runs);

/// The runs of the `most` problems that have most algorithms, then most runs, then the largest problems; in
/// their order.
std::vector<std::vector<const RunSummary*>> most_representative(
    const std::vector<std::vector<const RunSummary*>>& problems, std::size_t most);

/// The run's label, with its tile where another of `runs` in its direction has the same.
std::string title_in(const std::vector<const RunSummary*>& runs, const RunSummary& run);

/// The machine that its bytes or times are of: "NVIDIA H200", "h200 model", or a CPU's name.
std::string machine_text(const RunSummary& run);
/// Bytes over those that must move, counted or else of the model, at DRAM and at SM<->L2; or nothing.
std::optional<double> dram_ratio(const RunSummary& run);
std::optional<double> sm_l2_ratio(const RunSummary& run);
/// "Roofline (NVIDIA H200)": a heading that depends on machines names them; of many, how many.
std::string with_machines(const std::string& title, const std::vector<std::string>& machines);
/// Those with counters.
std::vector<const RunSummary*> measured_runs(const std::vector<RunSummary>& runs);
/// The same for a section of these runs.
std::string with_machines(const std::string& title, const std::vector<const RunSummary*>& runs);

/// Notes how to make `record` again, once however often it is noted.
void add_command(std::vector<std::string>& commands, const RunRecord& record);
/// Notes how to make the record of `run` again, once for each record.
void add_command(Figure& figure, const RunSummary& run);

/// Adds the panels and commands of `figure` to the figure of its name in the section; adds it where there is
/// none.
void add_to_figure(Section& section, Figure figure);

/// What stays fixed in a sweep, in words: "B1 H16 D128 fp16 causal, h200 model".
std::string describe_fixed(const Sweep& sweep, bool with_seqlen);

/// Notes how to make the records of all points.
void add_commands(Figure& figure, const Sweep& sweep);

}  // namespace tilescope
