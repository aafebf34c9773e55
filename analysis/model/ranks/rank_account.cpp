// SPDX-License-Identifier: Apache-2.0
#include "analysis/model/ranks/rank_account.hpp"

#include <algorithm>

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

GpuRecord rank_record(const ProgramAccount& account, std::size_t r) {
  const RankTime& time = account.timeline.ranks[r];
  const RankLoad& load = account.loads[r];
  return {.link = {link_record(account.link[r])},
          .operand_bytes = load.operand_bytes,
          .received_buffer_bytes = load.received_bytes,
          .state_bytes = load.state_bytes,
          .launches = load.launches,
          .visible_pairs = load.visible_pairs,
          .attention_s = time.attention_seconds,
          .elementwise_s = time.elementwise_seconds,
          .link_s = time.link_seconds,
          .end_s = time.end_seconds};
}

DistributedPass predicted_pass(const ProgramAccount& account) {
  const auto& [program, rates, link, loads, timeline, even] = account;
  DistributedPass pass{
      .name = std::string(to_string(program.direction)),
      .steps = program.steps(),
      .balance = even.overall,
      .lock_step_balance = even.lock_step,
      .least_link_bytes = least_link_bytes(program.problem, program.direction, program.ranks),
      .predicted = PredictedTimes{.time_s = timeline.seconds,
                                  .efficiency = timeline.efficiency,
                                  .exposed_s = timeline.exposed_seconds,
                                  .one_gpu_s = timeline.one_gpu_seconds}};
  for (const auto& cause : kCauses) pass.predicted->lost_s[cause.field] = timeline.lost.*cause.seconds;
  if (loads.size() > kMostListedRanks) {
    pass.gpus.push_back(rank_record(account, account.busiest()));
  } else {
    for (std::size_t r = 0; r < loads.size(); ++r) pass.gpus.push_back(rank_record(account, r));
  }
  return pass;
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
  return static_cast<std::size_t>(std::ranges::max_element(link, less) - link.begin());
}

std::vector<LostShare> lost_shares(const RankTimeline& timeline) {
  std::vector<LostShare> shares;
  for (const auto& cause : kCauses)
    shares.push_back({cause.cause, timeline.lost.*cause.seconds / timeline.seconds});
  return shares;
}

LinkRecord link_record(const LinkBytes& bytes) {
  return {static_cast<double>(bytes.sent), static_cast<double>(bytes.received)};
}

DistributedRecord distributed_record(const std::vector<std::string>& argv) {
  return {.argv = argv, .when = start_record(argv).when};
}

DistributedRun distributed_run(const AttentionProblem& problem, const DistributedOptions& options) {
  const RankGrid grid = rank_grid(problem, options);
  return {.problem = problem,
          .schedule = std::string(to_string(options.schedule)),
          .gpus = options.ranks,
          .ulysses = grid.ulysses,
          .ring = grid.ring};
}

DistributedRecord simulate_ranks(
    const std::vector<std::string>& argv, const AttentionProblem& problem,
    const std::vector<Direction>& directions, const std::vector<DistributedOptions>& schedules,
    const RankModel& model, const std::function<void(const ProgramAccount&)>& visit,
    const std::function<void(const DistributedOptions&, const BadInput&)>& refuse) {
  DistributedRecord record = distributed_record(argv);
  record.machine = RankMachine{.name = model.machine,
                               .flops_per_second = model.rates.flops_per_second,
                               .link_bytes_per_second = model.rates.link_bytes_per_second,
                               .link_latency_s = model.rates.link_latency_seconds,
                               .launch_s = model.rates.launch_seconds};
  for (const DistributedOptions& options : schedules) {
    try {
      DistributedRun run = distributed_run(problem, options);
      if (model.kernel != nullptr) run.kernel = model.kernel->name;
      for (const Direction direction : directions) {
        const DistributedProgram program = build_distributed(problem, direction, options);
        const ProgramAccount account(program, model);
        visit(account);
        run.passes.push_back(predicted_pass(account));
      }
      record.runs.push_back(std::move(run));
    } catch (const BadInput& refusal) {
      if (schedules.size() == 1) throw;
      refuse(options, refusal);
    }
  }
  return record;
}

}  // namespace tilescope
