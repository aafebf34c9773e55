// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "analysis/cli/distributed/distributed.hpp"
#include "analysis/cli/options/parse_text.hpp"
#include "analysis/cli/text_table.hpp"
#include "common/number_format.hpp"
#include "common/wrap_words.hpp"
#include "gpu/registry/kernel_registry.hpp"

namespace tilescope::cli {
namespace {

/// Rows that differ from the one before in their number alone join it: "0..7".
std::vector<Row> with_equals_joined(const std::vector<Row>& rows) {
  std::vector<Row> joined;
  for (auto first = rows.begin(); first != rows.end();) {
    const auto differs = [&first](const Row& row) {
      return !std::equal(row.begin() + 1, row.end(), first->begin() + 1, first->end(),
                         [](const Cell& a, const Cell& b) { return a.text == b.text; });
    };
    const auto end = std::find_if(first, rows.end(), differs);
    joined.push_back(*first);
    if (end - first > 1) joined.back().front() = Cell(first->front().text + ".." + (end - 1)->front().text);
    first = end;
  }
  return joined;
}

/// A sentence below a table, its further lines indented.
std::string told(const std::string& sentence) {
  std::string text;
  for (const std::string& line : wrap_words(sentence, text_width() - 4)) {
    text += (text.empty() ? "  " : "    ") + line + "\n";
  }
  return text;
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
  return told(fmt::format(
      "the link's bytes alone can be hidden from {:.0f} tokens a GPU on, here {:.0f}{}", *tokens, here,
      rates.link_latency_seconds > 0 && beginning > 0
          ? fmt::format("; to begin their transfers takes {} more", format_seconds(beginning))
          : ""));
}

/// All; of many the one that sends most, and the one that ends last.
std::vector<std::size_t> listed_ranks(const ProgramAccount& account) {
  const std::size_t ranks = account.loads.size();
  std::vector<std::size_t> listed = {account.busiest(), account.timeline.last_rank()};
  if (ranks <= kMostListedRanks) {
    listed.resize(ranks);
    std::iota(listed.begin(), listed.end(), std::size_t{0});
  }
  std::ranges::sort(listed);
  listed.erase(std::unique(listed.begin(), listed.end()), listed.end());
  return listed;
}

/// The causes that show in tenths of a percent, the largest first.
std::vector<LostShare> largest_losses(const RankTimeline& timeline) {
  constexpr double kShown = 0.0005;
  std::vector<LostShare> shares = lost_shares(timeline);
  std::erase_if(shares, [](const LostShare& lost) { return std::abs(lost.share) < kShown; });
  std::ranges::stable_sort(shares, std::ranges::greater{}, &LostShare::share);
  return shares;
}

/// Where the rest goes, of the GPU that ends last.
std::string lost_line(const RankTimeline& timeline) {
  std::string causes;
  for (const auto& [cause, share] : largest_losses(timeline))
    causes += fmt::format("{}{} {}", causes.empty() ? "" : ", ", cause, percent_text(share));
  if (causes.empty()) return "";
  return told(fmt::format("lost {}: {}", percent_text(1 - timeline.efficiency), causes));
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

GivenRates TypedRates::given() const {
  GivenRates rates;
  if (flop_rate) {
    constexpr double kMost = 1e9;
    const double teraflops = parse_number("flop-rate", *flop_rate);
    if (!(teraflops > 0 && teraflops <= kMost))
      throw BadInput("flop-rate", *flop_rate,
                     fmt::format("must be above 0 and at most {:g}, in TFLOP/s", kMost));
    rates.flops_per_second = 1e12 * teraflops;
  }
  if (link_rate) {
    constexpr std::int64_t kLeast = 1000000, kMost = std::int64_t{1} << 50;
    rates.link_bytes_per_second = static_cast<double>(parse_bytes_in("link-rate", *link_rate, kLeast, kMost));
  }
  return rates;
}

RankModel machine_ranks(const std::string& machine, const AttentionProblem& problem,
                        const std::vector<Direction>& directions, const GivenRates& given) {
  return rank_model(load_machine(machine), problem, directions, given, rank_kernels());
}

Output distributed_table(const ProgramAccount& account) {
  const auto& [program, rates, link, loads, timeline, even] = account;
  double mean = 0;
  for (const RankLoad& load : loads) mean += static_cast<double>(load.visible_pairs) / program.ranks;
  std::vector<Row> rows = {{"GPU", "link sent", "received", "operands", "buffers", "fp32 sums", "launches",
                            "of mean work", "compute time", "link busy", "ends at"}};
  for (const std::size_t r : listed_ranks(account)) {
    const RankLoad& load = loads[r];
    const RankTime& time = timeline.ranks[r];
    const double of_mean = static_cast<double>(load.visible_pairs) / mean;
    rows.push_back({std::to_string(r), in_bytes(link[r].sent), in_bytes(link[r].received),
                    in_bytes(load.operand_bytes), in_bytes(load.received_bytes), in_bytes(load.state_bytes),
                    as_count(load.launches), mean > 0 ? as_percent(of_mean) : Cell("-"),
                    in_seconds(time.attention_seconds + time.elementwise_seconds),
                    in_seconds(time.link_seconds), in_seconds(time.end_seconds)});
  }
  const Table table{.rows = with_equals_joined(rows),
                    .indent = "  ",
                    .title = fmt::format("\n{}", to_string(program.direction)),
                    .keys = {{"direction", to_string(program.direction)}}};
  std::string text =
      told(fmt::format("balance of the work {}; {} if all waited for the slowest in every step",
                       percent_text(even.overall), percent_text(even.lock_step))) +
      told(fmt::format(
          "predicted {}, {} of {} GPUs without links; exposed {}, in which the GPU that ends last "
          "has nothing to compute",
          format_seconds(timeline.seconds), percent_text(timeline.efficiency), program.ranks,
          format_seconds(timeline.exposed_seconds)));
  const std::size_t busiest = account.busiest();
  text += lost_line(timeline);
  text += hiding_line(program, rates, link[busiest], timeline.ranks[busiest]);
  if (const auto least = least_link_bytes(program.problem, program.direction, program.ranks)) {
    text += told(fmt::format("whatever the schedule, some GPU receives of Q, K, V and sends of O {} or more",
                             format_bytes(*least)));
  }
  return Output(table) + text;
}

Row comparison_heads() {
  return {"schedule",  "GPUs",      "pass",    "tokens a GPU",          "link sent",      "memory",
          "link busy", "predicted", "exposed", "of GPUs without links", "most is lost to"};
}

Row comparison_row(const ProgramAccount& account) {
  const auto& [program, rates, link, loads, timeline, even] = account;
  const std::size_t r = account.busiest();
  const std::vector<LostShare> losses = largest_losses(timeline);
  return {
      to_string(program.schedule),
      as_count(program.ranks),
      to_string(program.direction),
      as_count(program.problem.seqlen_k / program.ranks),
      in_bytes(link[r].sent),
      in_bytes(loads[r].operand_bytes + loads[r].received_bytes + loads[r].state_bytes),
      in_seconds(timeline.ranks[r].link_seconds),
      in_seconds(timeline.seconds),
      in_seconds(timeline.exposed_seconds),
      as_percent(timeline.efficiency),
      losses.empty() ? "-" : fmt::format("{} {}", losses.front().cause, percent_text(losses.front().share))};
}

}  // namespace tilescope::cli
