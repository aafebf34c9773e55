// SPDX-License-Identifier: Apache-2.0
#include "analysis/cli/distributed/distributed_output.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "analysis/cli/options/parse_text.hpp"
#include "analysis/cli/tables/text_table.hpp"
#include "analysis/records/json/problem_json.hpp"
#include "analysis/records/run_record.hpp"
#include "common/number_format.hpp"
#include "distributed/counts/rank_load.hpp"

namespace tilescope::cli {
namespace {

std::string bytes(std::int64_t count) { return format_bytes(static_cast<double>(count)); }

std::size_t busiest_rank(const std::vector<LinkBytes>& link) {
  const auto less = [](const LinkBytes& a, const LinkBytes& b) { return a.sent < b.sent; };
  return static_cast<std::size_t>(std::max_element(link.begin(), link.end(), less) - link.begin());
}

/// Neighbours of which all but the number is the same as one row: "0..7".
std::vector<std::vector<std::string>> with_equals_joined(const std::vector<std::vector<std::string>>& rows) {
  std::vector<std::vector<std::string>> joined;
  for (auto first = rows.begin(); first != rows.end();) {
    const auto differs = [&first](const std::vector<std::string>& row) {
      return !std::equal(row.begin() + 1, row.end(), first->begin() + 1, first->end());
    };
    const auto end = std::find_if(first, rows.end(), differs);
    joined.push_back(*first);
    if (end - first > 1) joined.back().front() += ".." + (end - 1)->front();
    first = end;
  }
  return joined;
}

/// From which length on computing takes as long as the link's bytes, and what it takes to begin their
/// transfers.
std::string hiding_line(const DistributedProgram& program, const RankRates& rates, const LinkBytes& link,
                        const RankTime& time) {
  const auto tokens = least_hidden_tokens(program, rates.flops_per_second, rates.link_bytes_per_second);
  if (!tokens) return "";
  const double beginning = time.link_seconds - static_cast<double>(std::max(link.sent, link.received)) /
                                                   rates.link_bytes_per_second;
  const double here = static_cast<double>(program.problem.seqlen_k) / program.ranks;
  return fmt::format("  the link's bytes alone can be hidden from {:.0f} tokens a GPU on, here {:.0f}{}\n",
                     *tokens, here,
                     rates.link_latency_seconds > 0 && beginning > 0
                         ? fmt::format("; to begin their transfers takes {} more", format_seconds(beginning))
                         : "");
}

}  // namespace

std::string percent_text(double share) { return fmt::format("{:.1f} %", 100 * share); }

std::string schedule_line(const AttentionProblem& problem, const DistributedOptions& options) {
  const RankGrid grid = rank_grid(problem, options);
  const std::string sharing = options.schedule == LinkSchedule::ulysses_ring
                                  ? fmt::format(", {} share heads, {} tokens", grid.ulysses, grid.ring)
                                  : "";
  return fmt::format("{} on {} GPU{}{}", to_string(options.schedule), options.ranks,
                     options.ranks == 1 ? "" : "s", sharing);
}

LinkMachine link_machine(const Machine& stated, ElementType dtype, const TypedRates& typed) {
  const Machine machine = with_measured_ceilings(stated);
  LinkMachine result;
  const auto peak = machine.peak_flops_per_second.find(std::string(to_string(dtype)));
  if (peak == machine.peak_flops_per_second.end()) {
    throw BadInput("dtype", std::string(to_string(dtype)),
                   "must be one that " + machine.name + " has a rate of");
  }
  result.rates.flops_per_second = peak->second.value;
  std::string flops_kind = peak->second.kind;
  if (typed.flop_rate) {
    flops_kind = "given";
    result.rates.flops_per_second = 1e12 * parse_number("flop-rate", *typed.flop_rate);
    if (!(result.rates.flops_per_second > 0)) {
      throw BadInput("flop-rate", *typed.flop_rate, "must be above 0, in TFLOP/s");
    }
  }
  result.rates.memory_bytes_per_second = machine.dram_bytes_per_second.value;
  std::string link_kind = "given";
  if (typed.link_rate) {
    constexpr std::int64_t kLeast = 1000000, kMost = std::int64_t{1} << 50;
    result.rates.link_bytes_per_second =
        static_cast<double>(parse_bytes_in("link-rate", *typed.link_rate, kLeast, kMost));
  } else if (machine.link_bytes_per_second) {
    result.rates.link_bytes_per_second = machine.link_bytes_per_second->value;
    link_kind = machine.link_bytes_per_second->kind;
  } else {
    throw BadInput("machine", machine.name,
                   "must be one whose file has link_bytes_per_second (h200 has), or --link-rate must say it");
  }
  if (machine.link_latency_seconds) result.rates.link_latency_seconds = machine.link_latency_seconds->value;
  result.line = fmt::format(
      "on {}: {} {:.4g} TFLOP/s ({}), link {}/s one way ({}), {} a transfer{}\n", machine.title,
      to_string(dtype), result.rates.flops_per_second / 1e12, flops_kind,
      format_bytes(result.rates.link_bytes_per_second), link_kind,
      format_seconds(result.rates.link_latency_seconds),
      machine.link_latency_seconds ? fmt::format(" ({})", machine.link_latency_seconds->kind) : "");
  return result;
}

ProgramAccount::ProgramAccount(const DistributedProgram& of, const RankRates& on)
    : program(of),
      rates(on),
      link(link_traffic(of)),
      loads(rank_loads(of)),
      timeline(predict_timeline(of, on)),
      even(balance(of)) {}

std::string distributed_table(const ProgramAccount& account) {
  const auto& [program, rates, link, loads, timeline, even] = account;
  double mean = 0;
  for (const RankLoad& load : loads) mean += static_cast<double>(load.visible_pairs) / program.ranks;
  std::vector<std::vector<std::string>> rows = {{"GPU", "link sent", "received", "operands", "buffers",
                                                 "fp32 sums", "launches", "work", "computes", "link busy",
                                                 "ends"}};
  for (std::size_t r = 0; r < loads.size(); ++r) {
    const RankLoad& load = loads[r];
    const RankTime& time = timeline.ranks[r];
    rows.push_back({std::to_string(r), bytes(link[r].sent), bytes(link[r].received),
                    bytes(load.operand_bytes), bytes(load.received_bytes), bytes(load.state_bytes),
                    std::to_string(load.launches),
                    mean > 0 ? percent_text(static_cast<double>(load.visible_pairs) / mean) : "-",
                    format_seconds(time.attention_seconds + time.elementwise_seconds),
                    format_seconds(time.link_seconds), format_seconds(time.end_seconds)});
  }
  std::string text =
      fmt::format("\n{}\n", to_string(program.direction)) +
      fold_columns(with_equals_joined(rows), "  ", true) +
      fmt::format("  balance {}, where all wait for the slowest in every step {}\n",
                  percent_text(even.overall), percent_text(even.lock_step)) +
      fmt::format("  predicted {}, of which {} are not computing; {} of {} GPUs without links\n",
                  format_seconds(timeline.seconds), format_seconds(timeline.exposed_seconds),
                  percent_text(timeline.efficiency), program.ranks);
  const std::size_t busiest = busiest_rank(link);
  text += hiding_line(program, rates, link[busiest], timeline.ranks[busiest]);
  if (const auto least = least_link_bytes(program.problem, program.direction, program.ranks)) {
    text += fmt::format("  whatever the schedule, some GPU receives of Q, K, V and sends of O {} or more\n",
                        format_bytes(*least));
  }
  return text;
}

std::vector<std::string> comparison_heads() {
  return {"schedule", "GPUs",      "pass",      "tokens a GPU", "link sent",
          "memory",   "link busy", "predicted", "exposed",      "of GPUs without links"};
}

std::vector<std::string> comparison_row(const ProgramAccount& account) {
  const auto& [program, rates, link, loads, timeline, even] = account;
  const std::size_t r = busiest_rank(link);
  return {std::string(to_string(program.schedule)),
          std::to_string(program.ranks),
          std::string(to_string(program.direction)),
          fmt::format("{:.0f}", static_cast<double>(program.problem.seqlen_k) / program.ranks),
          bytes(link[r].sent),
          bytes(loads[r].operand_bytes + loads[r].received_bytes + loads[r].state_bytes),
          format_seconds(timeline.ranks[r].link_seconds),
          format_seconds(timeline.seconds),
          format_seconds(timeline.exposed_seconds),
          percent_text(timeline.efficiency)};
}

Json distributed_json(const ProgramAccount& account) {
  const auto& [program, rates, link, loads, timeline, even] = account;
  const auto rank_json = [&](std::size_t r) {
    const RankTime& time = account.timeline.ranks[r];
    const RankLoad& load = account.loads[r];
    return Json{{"link_sent_bytes", account.link[r].sent},
                {"link_received_bytes", account.link[r].received},
                {"operand_bytes", load.operand_bytes},
                {"received_buffer_bytes", load.received_bytes},
                {"state_bytes", load.state_bytes},
                {"launches", load.launches},
                {"visible_pairs", load.visible_pairs},
                {"attention_s", time.attention_seconds},
                {"elementwise_s", time.elementwise_seconds},
                {"link_s", time.link_seconds},
                {"end_s", time.end_seconds}};
  };
  constexpr std::size_t kMostListed = 16;
  Json ranks = Json::array();
  if (loads.size() > kMostListed) {
    ranks.push_back(rank_json(busiest_rank(link)));
  } else {
    for (std::size_t r = 0; r < loads.size(); ++r) ranks.push_back(rank_json(r));
  }
  Json json{{"name", to_string(program.direction)},
            {"steps", program.steps()},
            {"balance", even.overall},
            {"lock_step_balance", even.lock_step},
            {"predicted",
             {{"time_s", timeline.seconds},
              {"exposed_s", timeline.exposed_seconds},
              {"efficiency", timeline.efficiency}}}};
  if (const auto least = least_link_bytes(program.problem, program.direction, program.ranks))
    json["least_link_bytes"] = *least;
  json["gpus"] = ranks;
  return json;
}

Json distributed_record(const std::vector<std::string>& argv) {
  const RunRecord started = start_record(argv);
  return {
      {"schema", "tilescope.distributed/1"}, {"argv", argv}, {"when", started.when}, {"runs", Json::array()}};
}

Json distributed_run(const AttentionProblem& problem, const DistributedOptions& options) {
  const RankGrid grid = rank_grid(problem, options);
  return {{"problem", problem_json(problem)},
          {"schedule", to_string(options.schedule)},
          {"gpus", options.ranks},
          {"ulysses", grid.ulysses},
          {"ring", grid.ring}};
}

}  // namespace tilescope::cli
