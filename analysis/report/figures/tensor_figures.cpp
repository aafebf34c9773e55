// SPDX-License-Identifier: Apache-2.0
// Which tensors the bytes at SM<->L2 belong to. Records hold sums; the tile program that a pass names is
// built again and asked.
#include <fmt/format.h>

#include <algorithm>

#include "analysis/report/figures/chart_looks.hpp"
#include "analysis/report/sections/report_sections.hpp"
#include "analysis/report/sweep.hpp"

namespace tilescope {
namespace {

struct TensorGroup {
  BarPart look;
  std::vector<TensorName> tensors;
};

const std::vector<TensorGroup>& tensor_groups() {
  using enum TensorName;
  static const std::vector<TensorGroup> groups = {
      {{"K, V", Color::blue}, {k, v}},
      {{"Q, O, dO", Color::sky}, {q, out, dout}},
      {{"dQ, dK, dV", Color::green}, {dq, dk, dv}},
      {{"fp32 sums of O, dQ, dK, dV", Color::vermilion}, {out_accum, dq_accum, dk_accum, dv_accum}},
      {{"S, P, dP, dS", Color::grey}, {scores, probs, dprobs, dscores}},
      {{"LSE, delta, m, l", Color::ink}, {lse, delta, row_max, row_sum}},
  };
  return groups;
}

/// The programs of a run's passes, or none when the record's passes are not those of its algorithm.
std::vector<TileProgram> programs_of(const RunSummary& run) {
  if (!run.algorithm) return {};
  ProgramOptions options = ProgramOptions::with_tile(run.passes.front()->tile);
  for (const PassRecord* pass : run.passes) {
    if (pass->name == "dq") options[PassName::dq].tile = pass->tile;
    if (pass->name == "dkdvdq") options.backward = BackwardOrder::fused;
    if (pass->name == "dqdkdv") options.backward = BackwardOrder::rows;
  }
  std::vector<TileProgram> programs = build_programs(*run.algorithm, run.direction, run.problem(), options);
  const bool same = std::equal(programs.begin(), programs.end(), run.passes.begin(), run.passes.end(),
                               [](const TileProgram& program, const PassRecord* pass) {
                                 return to_string(program.name) == pass->name && program.tile == pass->tile &&
                                        pass->closed_form && closed_form_bytes(program) == *pass->closed_form;
                               });
  return same ? programs : std::vector<TileProgram>{};
}

/// Bytes at SM<->L2 of each group, or nothing.
std::vector<double> bytes_by_group(const RunSummary& run) {
  const std::vector<TileProgram> programs = programs_of(run);
  if (programs.empty()) return {};
  std::vector<double> bytes(tensor_groups().size());
  for (const TileProgram& program : programs) {
    for (const TensorTraffic& traffic : tensor_traffic(program)) {
      for (std::size_t group = 0; group < bytes.size(); ++group) {
        const auto& tensors = tensor_groups()[group].tensors;
        if (std::find(tensors.begin(), tensors.end(), traffic.tensor) == tensors.end()) continue;
        bytes[group] += static_cast<double>(traffic.load_bytes + traffic.store_bytes + traffic.reduce_bytes);
      }
    }
  }
  return bytes;
}

Figure tensor_figure(const std::vector<const RunSummary*>& runs) {
  StackedChart chart;
  chart.x_label = "Bytes read and written at SM<->L2";
  chart.format_tick = format_bytes;
  for (const TensorGroup& group : tensor_groups()) chart.parts.push_back(group.look);
  Figure figure;
  for (const Direction direction : {Direction::forward, Direction::backward}) {
    bool first = true;
    for (const RunSummary* run : runs) {
      if (run->direction != direction) continue;
      const std::vector<double> bytes = bytes_by_group(*run);
      if (bytes.empty()) continue;
      if (first) chart.group_starts.push_back(chart.bars.size());
      first = false;
      double total = 0;
      for (const double part : bytes) total += part;
      chart.bars.push_back({fmt::format("{}, {} {}", to_string(direction), run->label, to_string(run->tile)),
                            format_bytes(total), bytes});
      add_command(figure, *run);
    }
  }
  if (chart.bars.size() < 2) return {};
  figure.name = "bytes-by-tensor";
  figure.title = "Bytes at SM<->L2 by tensor.";
  figure.caption =
      "Closed form, all passes of a direction together. `standard` moves the N x N matrices; the flash "
      "kernels move K and V again for each tile of Q, or Q, dO and the sums again for each tile of K and V.";
  figure.panels = {{problem_text(*runs.front()), draw(chart)}};
  figure.legend = draw_legend(chart.parts);
  return figure;
}

}  // namespace

std::optional<Section> tensor_section(const std::vector<RunSummary>& runs) {
  Section section{"tensors", "Which tensors move", {}};
  constexpr std::size_t kMostDrawn = 4;
  for (const auto& members : most_telling(group_by_problem(headline_runs(runs)), kMostDrawn)) {
    Figure figure = tensor_figure(members);
    if (!figure.panels.empty()) add_to_figure(section, std::move(figure));
  }
  if (section.blocks.empty()) return std::nullopt;
  return section;
}

}  // namespace tilescope
