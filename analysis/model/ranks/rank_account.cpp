// SPDX-License-Identifier: Apache-2.0
#include "analysis/model/ranks/rank_account.hpp"

#include <algorithm>

#include "analysis/records/record_parts.hpp"
#include "analysis/records/run_record.hpp"

namespace tilescope {
namespace {

constexpr struct {
  const char *cause, *field;
  double TimeSplit::*seconds;
} kCauses[] = {
    {"uneven or cut tiles", "tiles_s", &TimeSplit::tiles},
    {"tails of launches", "tails_s", &TimeSplit::tails},
    {"merges and sums", "sums_s", &TimeSplit::sums},
    {"launching", "launches_s", &TimeSplit::launches},
    {"exposed bytes", "bytes_s", &TimeSplit::bytes},
    {"beginning of transfers", "latency_s", &TimeSplit::latency},
    {"waiting for other GPUs", "others_s", &TimeSplit::others},
};

RankTimeline timeline_of(const DistributedProgram& program, const RankModel& model) {
  const auto kernel = model.launched(program.problem, program.direction);
  return predict_timeline(program, model.rates, kernel ? &*kernel : nullptr);
}

Json lost_json(const TimeSplit& lost) {
  Json json;
  for (const auto& cause : kCauses) json[cause.field] = lost.*cause.seconds;
  return json;
}

Json rank_json(const ProgramAccount& account, std::size_t r) {
  const RankTime& time = account.timeline.ranks[r];
  const RankLoad& load = account.loads[r];
  return {{"link_sent_bytes", account.link[r].sent},
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
}

}  // namespace

ProgramAccount::ProgramAccount(const DistributedProgram& of, const RankModel& model)
    : program(of),
      rates(model.rates),
      link(link_traffic(of)),
      loads(rank_loads(of)),
      timeline(timeline_of(of, model)),
      even(balance(of)) {}

std::size_t ProgramAccount::busiest() const {
  const auto less = [](const LinkBytes& a, const LinkBytes& b) { return a.sent < b.sent; };
  return static_cast<std::size_t>(std::max_element(link.begin(), link.end(), less) - link.begin());
}

std::vector<LostShare> lost_shares(const RankTimeline& timeline) {
  std::vector<LostShare> shares;
  for (const auto& cause : kCauses)
    shares.push_back({cause.cause, timeline.lost.*cause.seconds / timeline.seconds});
  return shares;
}

Json distributed_json(const ProgramAccount& account) {
  const auto& [program, rates, link, loads, timeline, even] = account;
  Json ranks = Json::array();
  if (loads.size() > kMostListedRanks) {
    ranks.push_back(rank_json(account, account.busiest()));
  } else {
    for (std::size_t r = 0; r < loads.size(); ++r) ranks.push_back(rank_json(account, r));
  }
  Json json{{"name", to_string(program.direction)},
            {"steps", program.steps()},
            {"balance", even.overall},
            {"lock_step_balance", even.lock_step},
            {"predicted",
             {{"time_s", timeline.seconds},
              {"exposed_s", timeline.exposed_seconds},
              {"one_gpu_s", timeline.one_gpu_seconds},
              {"efficiency", timeline.efficiency},
              {"lost", lost_json(timeline.lost)}}}};
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

Json simulate_ranks(const std::vector<std::string>& argv, const AttentionProblem& problem,
                    const std::vector<Direction>& directions,
                    const std::vector<DistributedOptions>& schedules, const RankModel& model,
                    const std::function<void(const ProgramAccount&)>& visit,
                    const std::function<void(const DistributedOptions&, const BadInput&)>& refuse) {
  Json record = distributed_record(argv);
  record["machine"] = {{"name", model.machine},
                       {"flops_per_second", model.rates.flops_per_second},
                       {"link_bytes_per_second", model.rates.link_bytes_per_second},
                       {"link_latency_s", model.rates.link_latency_seconds},
                       {"launch_s", model.rates.launch_seconds}};
  for (const DistributedOptions& options : schedules) {
    try {
      Json run = distributed_run(problem, options);
      if (model.kernel != nullptr) run["kernel"] = model.kernel->name;
      run["passes"] = Json::array();
      for (const Direction direction : directions) {
        const DistributedProgram program = build_distributed(problem, direction, options);
        const ProgramAccount account(program, model);
        visit(account);
        run["passes"].push_back(distributed_json(account));
      }
      record["runs"].push_back(run);
    } catch (const BadInput& refusal) {
      if (schedules.size() == 1) throw;
      refuse(options, refusal);
    }
  }
  return record;
}

}  // namespace tilescope
