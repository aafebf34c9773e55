// SPDX-License-Identifier: Apache-2.0
#include "analysis/cli/profile/profile.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <sstream>

#include "analysis/cli/cell_parts.hpp"
#include "analysis/cli/text_table.hpp"
#include "analysis/model/counts/direction_total.hpp"
#include "analysis/model/counts/lower_bounds.hpp"
#include "common/number_format.hpp"

namespace tilescope::cli {
namespace {

using Bytes = std::optional<std::int64_t>;

/// One boundary in one direction, in every account of it.
struct Boundary {
  const char* title;
  Bytes closed_form, simulated, measured, compulsory, lower_bound;
};

std::vector<Boundary> boundaries(const PassRecord& pass) {
  const ClosedFormBytes closed = pass.closed_form.value_or(ClosedFormBytes{});
  const auto simulated = [&pass](std::int64_t SimulatedBytes::*member) -> Bytes {
    if (!pass.simulated) return std::nullopt;
    return (*pass.simulated).*member;
  };
  const MeasuredBytes measured = pass.measured.value_or(MeasuredBytes{});
  return {
      {"SM<-L2",
       closed.sm_l2_read_bytes,
       simulated(&SimulatedBytes::sm_l2_read_bytes),
       measured.sm_l2_read_bytes,
       closed.compulsory_read_bytes,
       {}},
      {"SM->L2",
       closed.sm_l2_write_bytes,
       simulated(&SimulatedBytes::sm_l2_write_bytes),
       measured.sm_l2_write_bytes,
       closed.compulsory_write_bytes,
       {}},
      {"L2<-DRAM",
       {},
       simulated(&SimulatedBytes::dram_read_bytes),
       measured.dram_read_bytes,
       closed.compulsory_read_bytes,
       {}},
      {"L2->DRAM",
       {},
       simulated(&SimulatedBytes::dram_write_bytes),
       measured.dram_write_bytes,
       closed.compulsory_write_bytes,
       {}},
  };
}

Cell bytes(const Bytes& count) { return count ? in_bytes(*count) : Cell("-"); }

/// "+0.012 %": near 1 a ratio would hide what is looked for.
Cell off_by(const Bytes& over, const Bytes& under) {
  if (!over || !under || (*under == 0 && *over != 0)) return "-";
  const double off = *under == 0 ? 0 : static_cast<double>(*over) / static_cast<double>(*under) - 1;
  return as_number(fmt::format("{:+.3f} %", 100 * off), off);
}

Cell ratio(const Bytes& over, const Bytes& under) {
  if (!over || !under) return "-";
  return as_ratio(static_cast<double>(*over), static_cast<double>(*under));
}

void add_rows(std::vector<Row>& rows, const std::string& title, const std::vector<Boundary>& all) {
  for (const Boundary& b : all) {
    rows.push_back({&b == &all.front() ? title : "", b.title, bytes(b.closed_form), bytes(b.simulated),
                    bytes(b.measured), off_by(b.measured, b.closed_form), off_by(b.measured, b.simulated),
                    ratio(b.measured, b.compulsory), ratio(b.measured, b.lower_bound)});
  }
}

std::string rate(std::int64_t flops, double seconds) {
  return flops == 0 ? "-" : format_flops(static_cast<double>(flops) / seconds) + "/s";
}

/// A direction's passes may be cut differently: some only convert what others have computed.
TileShape tile_of_most_work(const RunEntry& run, Direction direction) {
  const auto work = [direction](const PassRecord& pass) {
    return pass.direction == direction ? pass.executed_flops : -1;
  };
  return std::ranges::max_element(run.passes,
                                  [&work](const auto& a, const auto& b) { return work(a) < work(b); })
      ->tile;
}

std::vector<std::pair<std::string, Cell>> keys_of(const RunEntry& run, Direction direction) {
  return {{"kernel", run.kernel}, {"direction", to_string(direction)}, {"problem", as_problem(run.problem)}};
}

/// "gpu:flash2-mma forward 128x64 B1 H16 N1024 D64 fp16: 512.3 TFLOP/s", and each of these things.
Cell run_cell(const RunEntry& run, const PassRecord& total, TileShape tile) {
  const Cell problem = as_problem(run.problem);
  const std::string cut = fmt::format("{}x{}", tile.block_m, tile.block_n);
  const std::string_view direction = to_string(total.direction);
  Cell cell(fmt::format("{} {} {} {}", run.kernel, direction, cut, problem.text));
  cell.parts = {{"kernel", "kernel", run.kernel},
                {"direction", "direction", std::string(direction)},
                {"tile", "tile", cut}};
  cell.parts.insert(cell.parts.end(), problem.parts.begin(), problem.parts.end());
  if (!total.time) return cell;
  cell.parts.push_back({"rate", "rate", rate(total.flops, total.time->median_s)});
  cell.text += ": " + cell.parts.back().text;
  return cell;
}

}  // namespace

Table measured_table(const RunEntry& run, Direction direction, Algorithm algorithm, const Machine& machine) {
  std::vector<Row> rows = {{"pass", "boundary", "closed form", "simulated", "measured", "/ closed form",
                            "/ simulated", "x must", "x lower bound"}};
  const PassRecord total = direction_total(run, direction).value();
  std::vector<Boundary> whole = boundaries(total);
  whole[0].lower_bound = read_bound(run.problem, direction, algorithm, sm_memory(machine)).bytes();
  whole[2].lower_bound = read_bound(run.problem, direction, algorithm, chip_memory(machine)).bytes();
  for (const PassRecord& pass : run.passes) {
    const bool is_whole = pass.name == total.name;  // a row of its own would say the same again
    if (pass.direction == direction && !is_whole) add_rows(rows, pass.name, boundaries(pass));
  }
  add_rows(rows, std::string(to_string(direction)), whole);
  return {.rows = rows, .indent = "  ", .keys = keys_of(run, direction)};
}

Output counter_table(const RunEntry& run, Direction direction, const std::string& metrics) {
  std::vector<Row> rows = {{"pass", "counter", "counted"}};
  for (const PassRecord& pass : run.passes) {
    if (pass.direction != direction) continue;
    std::istringstream names(metrics);
    for (std::string name; std::getline(names, name, ',');) {
      const auto counter = pass.counters.find(name);
      if (counter == pass.counters.end()) continue;
      rows.push_back(
          {pass.name, name,
           std::visit([](auto value) { return as_number(fmt::format("{}", value), double(value)); },
                      counter->second)});
    }
  }
  if (rows.size() == 1) return {};
  return Table{.rows = rows, .indent = "  ", .keys = keys_of(run, direction)};
}

Table time_table(const RunEntry& run, Direction direction) {
  std::vector<Row> rows = {
      {"pass", "median", "noise", "samples", "rate", "SM clock", "CTAs", "threads", "registers", "shared"}};
  for (const PassRecord& pass : run.passes) {
    if (pass.direction != direction || !pass.time) continue;
    const TimeRecord& time = *pass.time;
    Row row = {
        pass.name,
        in_seconds(time.median_s),
        as_percent(time.noise),
        as_count(static_cast<std::int64_t>(time.samples_s.size())),
        pass.flops > 0 ? in_flops_per_second(static_cast<double>(pass.flops) / time.median_s) : Cell("-"),
        time.sm_clock_hz
            ? as_number(fmt::format("{:.0f} MHz", 1e-6 * *time.sm_clock_hz), *time.sm_clock_hz, "Hz")
            : Cell("-")};
    if (pass.launch) {
      const auto count = [](const std::array<std::int64_t, 3>& sides) {
        return as_count(sides[0] * sides[1] * sides[2]);
      };
      const auto known = [](const std::optional<std::int64_t>& value) {
        return value ? as_count(*value) : Cell("-");
      };
      row.insert(row.end(), {count(pass.launch->grid), count(pass.launch->block),
                             known(pass.launch->registers), known(pass.launch->shared_bytes)});
    }
    rows.push_back(std::move(row));
  }
  return {.rows = rows, .indent = "  ", .keys = keys_of(run, direction)};
}

Table sweep_table(const std::vector<RunEntry>& runs) {
  std::vector<Row> rows = {{"run", "SM<-L2", "/ closed", "SM->L2", "/ closed", "DRAM read", "/ simul.",
                            "x must", "DRAM write", "time"}};
  for (const RunEntry& run : runs) {
    for (const Direction direction : {Direction::forward, Direction::backward}) {
      const std::optional<PassRecord> total = direction_total(run, direction);
      if (!total) continue;
      const std::vector<Boundary> b = boundaries(*total);
      const TileShape tile = tile_of_most_work(run, direction);
      rows.push_back({run_cell(run, *total, tile), bytes(b[0].measured),
                      off_by(b[0].measured, b[0].closed_form), bytes(b[1].measured),
                      off_by(b[1].measured, b[1].closed_form), bytes(b[2].measured),
                      off_by(b[2].measured, b[2].simulated), ratio(b[2].measured, b[2].compulsory),
                      bytes(b[3].measured), total->time ? in_seconds(total->time->median_s) : Cell("-")});
    }
  }
  return {.rows = rows, .title = "", .layout = Table::Layout::below};
}

}  // namespace tilescope::cli
