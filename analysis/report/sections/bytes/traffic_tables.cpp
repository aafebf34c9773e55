// SPDX-License-Identifier: Apache-2.0
// Bytes by run, by pass and by tensor, and the list of records.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "analysis/report/figures/charts.hpp"
#include "analysis/report/sections/report_sections.hpp"
#include "analysis/report/sweep.hpp"
#include "common/number_format.hpp"

namespace tilescope {
namespace {

constexpr const char* kUnknown = "-";

std::string total_or_dash(const std::optional<ReadWriteBytes>& bytes) {
  return bytes ? format_bytes(static_cast<double>(bytes->total())) : kUnknown;
}

std::string ratio_or_dash(const std::optional<ReadWriteBytes>& bytes, const ReadWriteBytes& floor) {
  if (!bytes) return kUnknown;
  return format_ratio(static_cast<double>(bytes->total()) / static_cast<double>(floor.total()));
}

/// (counter - closed form) / closed form in per cent.
std::string residual(const std::optional<ReadWriteBytes>& measured,
                     const std::optional<ReadWriteBytes>& expected) {
  if (!measured || !expected || expected->total() == 0) return kUnknown;
  return fmt::format("{:+.3f} %", 100.0 * static_cast<double>(measured->total() - expected->total()) /
                                      static_cast<double>(expected->total()));
}

std::vector<std::string> pass_row(const PassRecord& pass) {
  const auto text = [](bool known, std::int64_t bytes) {
    return known ? format_bytes(static_cast<double>(bytes)) : std::string(kUnknown);
  };
  const ClosedFormBytes closed = pass.closed_form.value_or(ClosedFormBytes{});
  const SimulatedBytes simulated = pass.simulated.value_or(SimulatedBytes{});
  const bool counted = pass.closed_form.has_value(), replayed = pass.simulated.has_value();
  return {pass.name,
          to_string(pass.tile),
          format_flops(static_cast<double>(pass.flops)),
          text(counted, closed.sm_l2_read_bytes),
          text(counted, closed.sm_l2_write_bytes),
          text(counted, closed.compulsory_read_bytes),
          text(counted, closed.compulsory_write_bytes),
          text(replayed, simulated.dram_read_bytes),
          text(replayed, simulated.dram_write_bytes),
          replayed ? fmt::format("{:.1f} %", 100 * simulated.hit_rate) : kUnknown};
}

}  // namespace

std::optional<Section> summary_section(const std::vector<RunSummary>& runs) {
  const std::vector<const RunSummary*> rows = tabled_runs(runs);
  if (rows.empty()) return std::nullopt;
  const auto any = [&rows](auto member) {
    return std::ranges::any_of(rows, [member](const RunSummary* run) { return (run->*member).has_value(); });
  };
  const bool simulated = any(&RunSummary::simulated_dram), measured = any(&RunSummary::measured_sm_l2),
             timed = any(&RunSummary::median_seconds);
  Table table{"Bytes read plus bytes written, by boundary, and as a multiple of what must move.",
              {{"pass"}, {"kernel"}, {"tile"}, {"must move", true}, {"SM<->L2", true}, {"x must", true}},
              {}};
  if (measured) table.columns.insert(table.columns.end(), {{"SM<->L2 measured", true}, {"off by", true}});
  if (simulated) table.columns.insert(table.columns.end(), {{"DRAM simulated", true}, {"x must", true}});
  if (measured) table.columns.push_back({"DRAM measured", true});
  if (timed) table.columns.push_back({"time", true});
  for (const auto& members : group_by_problem(rows)) {
    table.rows.push_back(
        {fmt::format("{}, {}", problem_text(*members.front()), machine_text(*members.front()))});
    for (const Direction direction : {Direction::forward, Direction::backward}) {
      for (const RunSummary* run : members) {
        if (run->direction != direction) continue;
        std::vector<std::string> row = {std::string(to_string(direction)),
                                        run->label,
                                        to_string(run->tile),
                                        format_bytes(static_cast<double>(run->compulsory.total())),
                                        total_or_dash(run->closed_form),
                                        ratio_or_dash(run->closed_form, run->compulsory)};
        if (measured) {
          row.push_back(total_or_dash(run->measured_sm_l2));
          row.push_back(residual(run->measured_sm_l2, run->closed_form));
        }
        if (simulated) {
          row.push_back(total_or_dash(run->simulated_dram));
          row.push_back(ratio_or_dash(run->simulated_dram, run->compulsory));
        }
        if (measured) row.push_back(total_or_dash(run->measured_dram));
        if (timed) row.push_back(run->median_seconds ? format_seconds(*run->median_seconds) : kUnknown);
        table.rows.push_back(std::move(row));
      }
    }
  }
  table.group_header = "problem and machine";
  return Section{"summary", with_machines("Every kernel, problem by problem", rows), {table}};
}

namespace {

std::size_t passes_of(const std::vector<const RunSummary*>& runs) {
  std::size_t passes = 0;
  for (const RunSummary* run : runs) passes += run->passes.size();
  return passes;
}

}  // namespace

std::optional<Section> pass_section(const std::vector<RunSummary>& runs) {
  constexpr std::size_t kVeryLong = 1000;
  std::vector<const RunSummary*> shown = tabled_runs(runs);
  const std::size_t all = passes_of(shown);
  if (all > kVeryLong) shown = headline_runs(runs);
  Section section{"passes", with_machines("Every pass", shown), {}};
  section.blocks.push_back(
      Paragraph{"One kernel launch a row. A reduction (atomic add) counts as written at SM<->L2. DRAM bytes "
                "and the hit rate, the share of the bytes that were found in L2, are simulated."});
  Table table{"",
              {{"kernel"},
               {"pass"},
               {"tile"},
               {"useful", true},
               {"SM<->L2 read", true},
               {"SM<->L2 written", true},
               {"must read", true},
               {"must write", true},
               {"DRAM read", true},
               {"DRAM written", true},
               {"hit rate", true}},
              {},
              "problem and machine"};
  for (const auto& members : group_by_problem(shown)) {
    table.rows.push_back(
        {fmt::format("{}, {}", problem_text(*members.front()), machine_text(*members.front()))});
    for (const RunSummary* run : members) {
      for (const PassRecord* pass : run->passes) {
        table.rows.push_back({run->label});
        for (std::string& cell : pass_row(*pass)) table.rows.back().push_back(std::move(cell));
      }
    }
  }
  if (table.rows.empty()) return std::nullopt;
  if (const std::size_t left_out = all - passes_of(shown); left_out > 0) {
    table.caption = fmt::format(
        "{} of {} passes are left out: they are points of sweeps, whose sums by direction stand with every "
        "kernel.",
        left_out, all);
  }
  section.blocks.push_back(std::move(table));
  return section;
}

namespace {

/// How many lines the records have in a field, and the commands that wrote them, each with what `say` makes
/// of its lines.
template <typename Say>
std::pair<std::size_t, std::string> told_of(const std::vector<RunRecord>& records,
                                            std::vector<std::string> RunRecord::*field, Say&& say) {
  std::size_t count = 0;
  std::string commands;
  for (const RunRecord& record : records) {
    const std::vector<std::string>& lines = record.*field;
    if (lines.empty()) continue;
    count += lines.size();
    commands +=
        fmt::format("{}`{}`, {}", commands.empty() ? "" : "; ", command_text(record.argv), say(lines));
  }
  return {count, commands};
}

}  // namespace

std::optional<Finding> missing_verdict(const std::vector<RunRecord>& records) {
  const auto [missing, commands] =
      told_of(records, &RunRecord::missing, [](const auto& lines) { return "before " + lines.front(); });
  if (missing == 0) return std::nullopt;
  return Finding{"Are the records whole?",
                 {{{{fmt::format("{}", missing), "measurements missing", Outcome::bad}}}},
                 fmt::format("**No.** Interrupted: {}.", commands),
                 Outcome::bad,
                 "records"};
}

std::optional<Finding> refused_verdict(const std::vector<RunRecord>& records) {
  const auto [refused, commands] = told_of(records, &RunRecord::refused, [](const auto& lines) {
    const std::string others = lines.size() == 1 ? "" : fmt::format(" (1 of {})", lines.size());
    return "as " + lines.front() + others;
  });
  if (refused == 0) return std::nullopt;
  return Finding{"Did every run of the sweeps take place?",
                 {{{{fmt::format("{}", refused), "refused", Outcome::mixed}}}},
                 fmt::format("**Not all.** Refused: {}.", commands),
                 Outcome::mixed,
                 "records"};
}

std::optional<Section> record_section(const std::vector<RunRecord>& records) {
  if (records.empty()) return std::nullopt;
  Table table{"", {{"command"}, {"commit"}, {"when"}, {"machine"}, {"runs", true}}, {}};
  for (const RunRecord& record : records) {
    std::string commit = record.git.sha.substr(0, 12);
    if (record.git.dirty.value_or(false)) commit += " + changes";
    const MachineInfo& machine = record.machine;
    std::string where = machine.name.value_or(machine.cpu.value_or("unknown"));
    if (!machine.name && machine.threads) where += fmt::format(", {} threads", *machine.threads);
    table.rows.push_back({fmt::format("`{}`", command_text(record.argv)), commit, record.when, where,
                          std::to_string(record.runs.size())});
  }
  return Section{
      "records",
      "Where the numbers come from",
      {Paragraph{"Every figure and table above is a function of these records. A record is JSON; the "
                 "commands write it with `--json FILE`."},
       table}};
}

namespace {

struct TensorGroup {
  BarPart look;
  std::vector<TensorName> tensors;
};

const std::vector<TensorGroup>& tensor_groups() {
  using enum TensorName;
  static const std::vector<TensorGroup> groups = {
      {{"K, V", Color::teal}, {k, v}},
      {{"Q, O, dO", Color::amber}, {q, out, dout}},
      {{"dQ, dK, dV", Color::olive}, {dq, dk, dv}},
      {{"fp32 sums of O, dQ, dK, dV", Color::brown}, {out_accum, dq_accum, dk_accum, dv_accum}},
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
    if (pass->name == to_string(PassName::dq)) options[PassName::dq].tile = pass->tile;
    if (pass->choices.backward) options.backward = *pass->choices.backward;
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
        if (std::ranges::find(tensors, traffic.tensor) == tensors.end()) continue;
        bytes[group] += static_cast<double>(traffic.load_bytes + traffic.filled_bytes + traffic.store_bytes +
                                            traffic.reduce_bytes);
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
  for (const auto& members : most_representative(group_by_problem(headline_runs(runs)), kMostDrawn)) {
    Figure figure = tensor_figure(members);
    if (!figure.panels.empty()) add_to_figure(section, std::move(figure));
  }
  if (section.blocks.empty()) return std::nullopt;
  return section;
}

}  // namespace tilescope
