// SPDX-License-Identifier: Apache-2.0
// Attention on several GPUs: what each schedule moves over the links, what moved, what the times were
// beside the predictions and other libraries, and how much of the link's time was hidden.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>

#include "analysis/report/sections/ranks/rank_tables.hpp"
#include "analysis/report/sections/report_sections.hpp"
#include "common/number_format.hpp"

namespace tilescope {
namespace {

std::string time_text(const std::optional<double>& time) { return time ? format_seconds(*time) : "-"; }

/// Of the GPU that sends most, by closed form or as counted with protocol or without; "-" where none says it.
template <typename Sent>
std::string most_sent(const DistributedPass& pass, Sent&& sent) {
  std::optional<double> most;
  for (const GpuRecord& gpu : pass.gpus) most = std::max<std::optional<double>>(most, sent(gpu));
  return most ? format_bytes(*most) : "-";
}

/// The largest difference of any GPU, sent or received. [share of what the schedule sends]
double link_difference(const DistributedPass& pass) {
  double worst = 0;
  const auto consider = [&worst](double seen, double formula) {
    const double difference = formula > 0 ? (seen - formula) / formula : 0;
    if (std::abs(difference) > std::abs(worst)) worst = difference;
  };
  for (const GpuRecord& gpu : pass.gpus) {
    if (!gpu.closed_form) continue;
    consider(gpu.link.data.sent_bytes, gpu.closed_form->sent_bytes);
    consider(gpu.link.data.received_bytes, gpu.closed_form->received_bytes);
  }
  return worst;
}

Table link_table(const std::vector<DistributedRecord>& records) {
  Table table{
      "Bytes that a GPU sends in one pass: by the closed form, and as counted. The difference is the "
      "largest of all GPUs, sent and received; protocol is what links carry beside the data.",
      {{"schedule"},
       {"pass"},
       {"carried by"},
       {"its schedule sends", true},
       {"sent", true},
       {"difference", true},
       {"with protocol", true}},
      {}};
  std::string problem;
  for_each_ranked_pass(records, [&](const auto& record, const auto& run, const auto& pass) {
    if (pass.gpus.empty() || !pass.gpus.front().closed_form) return;
    const std::string title = fmt::format("{} GPUs, {}, {} tokens a GPU", run.gpus, ranked_shape(run.problem),
                                          run.problem.seqlen_k / run.gpus);
    if (title != problem) table.rows.push_back({problem = title});
    table.rows.push_back(
        {run.schedule, pass.name, record.transport,
         most_sent(pass, [](const GpuRecord& gpu) { return gpu.closed_form->sent_bytes; }),
         most_sent(pass, [](const GpuRecord& gpu) { return gpu.link.data.sent_bytes; }),
         fmt::format("{:+.4f} %", 100 * link_difference(pass)),
         most_sent(pass, [](const GpuRecord& gpu) { return gpu.link.sent_with_protocol_bytes; })});
  });
  return table;
}

/// How far the times of one GPU lie apart that were taken with each schedule of one problem and pass.
std::string one_gpu_spread(const std::vector<DistributedRecord>& records) {
  std::map<std::tuple<const DistributedRecord*, std::string, std::int64_t, std::string>,
           std::pair<double, double>>
      ranges;
  for_each_ranked_pass(records, [&](const auto& record, const auto& run, const auto& pass) {
    if (!pass.one_gpu_s) return;
    const double time = *pass.one_gpu_s;
    auto& [least, most] =
        ranges.try_emplace({&record, ranked_shape(run.problem), run.problem.seqlen_k, pass.name}, time, time)
            .first->second;
    least = std::min(least, time);
    most = std::max(most, time);
  });
  double spread = 0;
  for (const auto& [key, range] : ranges) spread = std::max(spread, range.second / range.first - 1);
  return spread == 0 ? ""
                     : fmt::format(
                           " The time of one GPU was measured in turn with each schedule and varies by up to "
                           "{} with its power limit: smaller differences of efficiency mean nothing.",
                           share_text(spread));
}

/// Shares of the time; with the efficiency they add up to 1.
std::optional<double> lost_in_launches(const DistributedRun& run, const DistributedPass& pass) {
  if (!pass.launches_s || !pass.one_gpu_s) return std::nullopt;
  return (*pass.launches_s - *pass.one_gpu_s / static_cast<double>(run.gpus)) / *pass.time_s;
}
std::optional<double> shown_link(const DistributedPass& pass) {
  if (!pass.launches_s) return std::nullopt;
  return (*pass.time_s - *pass.launches_s) / *pass.time_s;
}

Table rank_time_table(const std::vector<DistributedRecord>& records) {
  // The earliest of several predictions, which is older than the measurement.
  std::map<RankedPassKey, std::pair<std::string, double>> predicted;
  for_each_ranked_pass(records, [&](const auto& record, const auto& run, const auto& pass) {
    if (!pass.predicted) return;
    const std::pair<std::string, double> found{record.when, pass.predicted->efficiency};
    auto& earliest = predicted.try_emplace(ranked_key(run, pass), found).first->second;
    if (found.first < earliest.first) earliest = found;
  });
  Table table{
      "Times of one pass. Efficiency: the time of one GPU with the whole problem over the summed time of all "
      "GPUs; the prediction is older than the measurement. Two losses fill the rest. Launches lose: they "
      "take longer than one GPU's share of the same work, because of tails of tiles, merges and sums. The "
      "link shows: the time beyond that of the launches alone. Hidden: the share of the link's time in which "
      "launches ran, from the three times alone." +
          one_gpu_spread(records),
      {{"schedule"},
       {"pass"},
       {"carried by"},
       {"tokens a GPU", true},
       {"time", true},
       {"TFLOP/s a GPU", true},
       {"efficiency", true},
       {"predicted", true},
       {"launches lose", true},
       {"link shows", true},
       {"link alone", true},
       {"hidden", true}},
      {}};
  std::string problem;
  for_each_ranked_pass(records, [&](const auto& record, const auto& run, const auto& pass) {
    if (!pass.time_s) return;
    const std::string title = fmt::format("{} GPUs, {}, {}", run.gpus, ranked_shape(run.problem), run.kernel);
    if (title != problem) table.rows.push_back({problem = title});
    const auto before = predicted.find(ranked_key(run, pass));
    table.rows.push_back(
        {run.schedule, pass.name, record.transport, std::to_string(run.problem.seqlen_k / run.gpus),
         time_text(pass.time_s), fmt::format("{:.0f}", pass.flops_per_second_a_gpu.value_or(0) / 1e12),
         share_text(pass.efficiency), before == predicted.end() ? "-" : share_text(before->second.second),
         share_text(lost_in_launches(run, pass)), share_text(shown_link(pass)), time_text(pass.link_s),
         share_text(pass.hidden_share)});
  });
  return table;
}

/// The schedule with the highest efficiency by the copy engine, for each problem and pass.
Table best_schedule_table(const std::vector<DistributedRecord>& records) {
  using Key = std::tuple<std::int64_t, std::string, std::int64_t, std::string>;
  std::vector<Key> order;
  std::map<Key, std::pair<const DistributedRun*, const DistributedPass*>> best;
  for_each_ranked_pass(records, [&](const auto& record, const auto& run, const auto& pass) {
    if (!pass.efficiency || record.transport != "copy-engine" || run.gpus == 1) return;
    const Key key{run.gpus, ranked_shape(run.problem), run.problem.seqlen_k / run.gpus, pass.name};
    const auto [found, is_new] = best.try_emplace(key, &run, &pass);
    if (is_new) order.push_back(key);
    if (*pass.efficiency > *found->second.second->efficiency) found->second = {&run, &pass};
  });
  Table table{
      "The schedule with the highest efficiency for each problem and pass. Efficiency and the two losses add "
      "up to 100 %.",
      {{"tokens a GPU", true},
       {"pass"},
       {"schedule"},
       {"time", true},
       {"TFLOP/s a GPU", true},
       {"efficiency", true},
       {"launches lose", true},
       {"link shows", true}},
      {}};
  std::string problem;
  for (const Key& key : order) {
    const auto& [run, pass] = best.at(key);
    const std::string title = fmt::format("{} GPUs, {}", run->gpus, ranked_shape(run->problem));
    if (title != problem) table.rows.push_back({problem = title});
    table.rows.push_back(
        {std::to_string(std::get<2>(key)), pass->name, run->schedule, time_text(pass->time_s),
         fmt::format("{:.0f}", pass->flops_per_second_a_gpu.value_or(0) / 1e12), share_text(pass->efficiency),
         share_text(lost_in_launches(*run, *pass)), share_text(shown_link(*pass))});
  }
  return table;
}

/// Ours on the same problem, by the fastest schedule that the copy engine carries.
struct OurPass {
  std::string schedule;
  double time_s = 0;
};
std::optional<OurPass> our_pass(const std::vector<DistributedRecord>& records, const DistributedPeers& peers,
                                std::int64_t tokens, const std::string& name) {
  std::optional<OurPass> found;
  for_each_ranked_pass(records, [&](const auto& record, const auto& run, const auto& pass) {
    const bool same = run.gpus == peers.gpus && run.problem.heads == peers.heads &&
                      run.problem.heads_kv == peers.heads_kv && run.problem.head_dim == peers.head_dim &&
                      run.problem.seqlen_k == tokens * peers.gpus;
    if (same && pass.time_s && pass.name == name && record.transport == "copy-engine" &&
        (!found || *pass.time_s < found->time_s))
      found = {run.schedule, *pass.time_s};
  });
  return found;
}

Table rank_peer_table(const std::vector<DistributedRecord>& records,
                      const std::vector<DistributedPeers>& all) {
  Table table{
      "Others on the same GPUs, beside the fastest of our schedules by the copy engine: the time of a pass, "
      "and the efficiency against the same library's kernel on one GPU.",
      {{"library"},
       {"tokens a GPU", true},
       {"forward", true},
       {"efficiency", true},
       {"ours", true},
       {"ours is faster", true},
       {"backward", true},
       {"efficiency", true},
       {"ours", true},
       {"ours is faster", true}},
      {}};
  for (const DistributedPeers& peers : all) {
    table.rows.push_back({fmt::format("{} GPUs, H{}/{} D{} bf16 causal, PyTorch {}", peers.gpus, peers.heads,
                                      peers.heads_kv, peers.head_dim, peers.torch)});
    for (const DistributedPeerRun& run : peers.runs) {
      if (!run.forward_s) continue;
      std::vector<std::string> row = {run.peer, std::to_string(run.tokens_a_gpu)};
      const auto add = [&](const std::string& name, const std::optional<double>& time,
                           const std::optional<double>& efficiency) {
        const auto own = our_pass(records, peers, run.tokens_a_gpu, name);
        row.push_back(time_text(time));
        row.push_back(share_text(efficiency));
        row.push_back(own ? fmt::format("{}, {}", format_seconds(own->time_s), own->schedule) : "-");
        row.push_back(own && time ? format_ratio(*time / own->time_s) : "-");
      };
      add("forward", run.forward_s, run.forward_efficiency);
      add("backward", run.backward_s, run.backward_efficiency);
      table.rows.push_back(row);
    }
  }
  return table;
}

std::string ranks_judged(const std::vector<DistributedRecord>& records) {
  int judged = 0, passed = 0;
  double share = 0;
  for (const DistributedRecord& record : records) {
    for (const DistributedRun& run : record.runs) {
      if (!run.passed) continue;
      ++judged;
      passed += *run.passed;
      share = std::max(share, run.largest_error_share());
    }
  }
  return judged == 0 ? ""
                     : fmt::format(
                           " {} of {} runs on GPUs passed the judge of all kernels; the largest error is {} "
                           "of its bound.",
                           passed, judged, share_text(share));
}

void add_table(Section& section, Table table) {
  if (!table.rows.empty()) section.blocks.push_back(std::move(table));
}

void add_figure(Section& section, std::optional<Figure> figure) {
  if (figure) section.blocks.push_back(std::move(*figure));
}

}  // namespace

std::string share_text(const std::optional<double>& share) {
  return share ? fmt::format("{:.1f} %", 100 * *share) : "-";
}

std::string ranked_shape(const AttentionProblem& problem) {
  return fmt::format("H{}/{} D{} {}{}", problem.heads, problem.heads_kv, problem.head_dim,
                     to_string(problem.dtype), problem.causal ? " causal" : "");
}

std::optional<Section> several_gpus_section(const std::vector<DistributedRecord>& records,
                                            const std::vector<DistributedPeers>& peers,
                                            const std::vector<CeilingsRecord>& ceilings) {
  if (records.empty()) return std::nullopt;
  Section section{"several-gpus", "Several GPUs", {}};
  section.blocks.push_back(
      Paragraph{"The link between GPUs is a third boundary. A schedule (`tilescope list schedules`) says "
                "which blocks cross it; its closed form, its execution and its prediction come from the same "
                "object." +
                ranks_judged(records)});
  add_table(section, link_table(records));
  add_table(section, best_schedule_table(records));
  add_table(section, rank_time_table(records));
  add_table(section, predicted_schedules_table(records));
  add_table(section, lost_time_table(records));
  add_table(section, rank_peer_table(records, peers));
  add_figure(section, link_roofline_figure(records));
  add_table(section, link_roofline_table(records));
  add_table(section, link_ceiling_table(ceilings));
  add_figure(section, scaling_figure(records));
  add_table(section, scaling_table(records));
  std::vector<std::string> commands;
  for (const DistributedRecord& record : records) commands.push_back(command_text(record.argv));
  section.blocks.push_back(CommandLines{commands});
  return section;
}

}  // namespace tilescope
