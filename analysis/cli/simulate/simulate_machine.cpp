// SPDX-License-Identifier: Apache-2.0
// What a simulation says of its machine: what is replayed, its ceilings, the lower bounds that follow from
// its memory, what DRAM bytes rest on, and what they are with other L2s.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "analysis/cli/cell_parts.hpp"
#include "analysis/cli/simulate/simulate.hpp"
#include "analysis/cli/text_table.hpp"
#include "analysis/model/counts/direction_total.hpp"
#include "analysis/model/counts/lower_bounds.hpp"
#include "common/number_format.hpp"
#include "common/wrap_words.hpp"

namespace tilescope::cli {
namespace {

/// " (unverified)", of what no document states.
std::string mark_of(const Fact<std::int64_t>& fact) {
  return is_documented(fact.kind) ? "" : fmt::format(" ({})", fact.kind);
}

/// "h200: CTAs row-major, tiles ascending; an L2 in two partitions, calibrated by counters"
std::string basis_text(const RunEntry& run, const Machine& machine, std::optional<std::int64_t> lru_bytes) {
  const std::string orders = fmt::format("{}: CTAs {}, tiles {}; ", machine.name,
                                         to_string(run.order.value_or(TileOrder::row_major)),
                                         to_string(run.scan.value_or(Scan::ascending)));
  const std::optional<SplitL2Shape> split = machine.split_l2();
  std::string model;
  if (lru_bytes) {
    model = fmt::format("an LRU cache of {}, as asked", format_capacity(*lru_bytes));
  } else if (!split) {
    model = fmt::format("an LRU cache of {} ({}), calibrated by no counters",
                        format_capacity(machine.l2_effective_bytes.value), machine.l2_effective_bytes.kind);
  } else {
    model = "an L2 in two partitions, calibrated by counters";
    model += machine.knows_progress_on(run.math_unit) ? "; CTAs drift apart at the rates of the machine file"
                                                      : "; CTAs are assumed to advance together";
  }
  return orders + model;
}

}  // namespace

std::string machine_line(const Machine& machine, const SimulationOptions& how) {
  const std::string parts = fmt::format("on {}: {} SMs{}, L2 {}{}", machine.title, machine.sm_count.value,
                                        mark_of(machine.sm_count), format_capacity(machine.l2_bytes.value),
                                        mark_of(machine.l2_bytes));
  const auto& given_l2_bytes = how.l2_bytes;
  if (!given_l2_bytes && machine.split_l2()) {
    const bool random = how.pages == PagePlacement::random;
    return wrapped(
        fmt::format("{} in two partitions{}", parts,
                    random ? "; pages at random places, DRAM bytes are medians over layouts" : ""));
  }
  const std::int64_t l2_bytes = given_l2_bytes.value_or(machine.l2_effective_bytes.value);
  const double share = static_cast<double>(l2_bytes) / static_cast<double>(machine.l2_bytes.value);
  return wrapped(fmt::format("{}, of which {} ({:.0f} %, {}) simulated", parts, format_capacity(l2_bytes),
                             100 * share, given_l2_bytes ? "as asked" : machine.l2_effective_bytes.kind));
}

std::string ceiling_line(const Machine& machine, ElementType dtype) {
  std::string text = machine.name + ": ";
  const auto found = machine.peak_flops_per_second.find(std::string(to_string(dtype)));
  if (found == machine.peak_flops_per_second.end()) {
    text += fmt::format("no {} products", to_string(dtype));
  } else {
    text +=
        fmt::format("{} {}/s ({})", to_string(dtype), format_flops(found->second.value), found->second.kind);
  }
  if (machine.l2_bytes_per_second) {
    text += fmt::format(", SM<->L2 {}/s ({})", format_bytes(machine.l2_bytes_per_second->value),
                        machine.l2_bytes_per_second->kind);
  } else {
    text += ", SM<->L2 unknown, so that it bounds no time";
  }
  text += fmt::format(", DRAM {}/s ({})", format_bytes(machine.dram_bytes_per_second.value),
                      machine.dram_bytes_per_second.kind);
  return wrapped(text);
}

std::string dram_basis(const std::vector<RunEntry>& runs, const std::vector<const Machine*>& machines,
                       std::optional<std::int64_t> lru_bytes) {
  std::vector<std::pair<std::string, std::vector<std::string>>> told;  // and the kernels of which it is true
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const std::string basis = basis_text(runs[i], *machines[i], lru_bytes);
    auto place = std::ranges::find_if(told, [&](const auto& one) { return one.first == basis; });
    if (place == told.end()) place = told.insert(told.end(), {basis, {}});
    if (std::ranges::find(place->second, runs[i].kernel) == place->second.end()) {
      place->second.push_back(runs[i].kernel);
    }
  }
  std::string text;
  for (const auto& [basis, kernels] : told) {
    const std::string sentence = fmt::format("DRAM bytes of {} on {}", fmt::join(kernels, ", "), basis);
    const char* indent = "  ";
    for (const std::string& line : wrap_words(sentence, text_width() - 4)) {
      text += indent + line + "\n";
      indent = "    ";
    }
  }
  return text;
}

std::string bound_lines(const RunEntry& run, Direction direction, Algorithm algorithm,
                        const Machine& machine) {
  const PassRecord total = direction_total(run, direction).value();
  std::string text;
  const auto add = [&](const char* boundary, const std::string& where, std::int64_t read_bytes,
                       const FastMemory& memory) {
    const ReadBound bound = read_bound(run.problem, direction, algorithm, memory);
    const std::string on_chip = format_capacity(memory.processors * memory.bytes_per_processor);
    const std::string of = bound.score_bound_vacuous()
                               ? "every input once"
                               : fmt::format("what forming the scores takes; every input once is {}",
                                             in_bytes(bound.compulsory_bytes).text);
    const double over = static_cast<double>(read_bytes), under = static_cast<double>(bound.bytes());
    text +=
        "  " + wrapped(fmt::format("{} reads: {} the lower bound of {} with {} on chip ({}): {}", boundary,
                                   as_ratio(over, under).text, in_bytes(under).text, on_chip, where, of),
                       "    ");
  };
  const Fact<std::int64_t>& of_sm = machine.on_chip_bytes_per_sm;
  const std::string mark = is_documented(of_sm.kind) ? "" : "; " + of_sm.kind;
  add("SM<->L2", "all SMs" + mark, total.closed_form->sm_l2_read_bytes, sm_memory(machine));
  if (total.simulated)
    add("DRAM", "all SMs and the L2" + mark, total.simulated->dram_read_bytes, chip_memory(machine));
  return text;
}

Table curve_table(const RunEntry& run, Direction direction, const Machine& machine) {
  Table table{.rows = {{"LRU from", "DRAM read", "DRAM written"}},
              .indent = "  ",
              .keys = {{"kernel", run.kernel},
                       {"direction", to_string(direction)},
                       {"machine", machine.name},
                       {"problem", as_problem(run.problem)}}};
  ReadWriteBytes last;
  for (const auto& [l2_bytes, dram] : total_l2_curve(run, direction)) {
    if (std::exchange(last, dram) == dram) continue;
    table.rows.push_back({as_number(format_capacity(l2_bytes), static_cast<double>(l2_bytes), "B"),
                          in_bytes(dram.read_bytes), in_bytes(dram.write_bytes)});
  }
  return table;
}

}  // namespace tilescope::cli
