// SPDX-License-Identifier: Apache-2.0
#include "analysis/cli/distributed/distributed_commands.hpp"

#include <fmt/format.h>

#include "analysis/cli/distributed/distributed_output.hpp"
#include "analysis/cli/verify/verify_judge.hpp"

namespace tilescope::cli {
namespace {

/// Of one pass: "link bytes as counted: 12.58 MB", or where they differ.
std::string exchanged_line(Direction direction, const std::vector<LinkBytes>& seen,
                           const std::vector<LinkBytes>& formula) {
  std::int64_t sent = 0;
  for (std::size_t r = 0; r < seen.size(); ++r) {
    sent += seen[r].sent;
    if (seen[r] == formula[r]) continue;
    return fmt::format("       {}: GPU {} sent {} B and received {} B, by the closed form {} B and {} B\n",
                       to_string(direction), r, seen[r].sent, seen[r].received, formula[r].sent,
                       formula[r].received);
  }
  return fmt::format("       {}: {} B exchanged by all, each GPU's as its closed form says\n",
                     to_string(direction), sent);
}

Json exchanged_json(Direction direction, const std::vector<LinkBytes>& seen,
                    const std::vector<LinkBytes>& formula) {
  Json gpus = Json::array();
  for (std::size_t r = 0; r < seen.size(); ++r) {
    gpus.push_back(
        {{"link_sent_bytes", seen[r].sent},
         {"link_received_bytes", seen[r].received},
         {"closed_form", {{"sent_bytes", formula[r].sent}, {"received_bytes", formula[r].received}}}});
  }
  return {{"name", to_string(direction)}, {"gpus", gpus}};
}

}  // namespace

int simulate_distributed(const CommandContext& context, const AttentionProblem& problem,
                         const std::vector<Direction>& directions, const DistributedOptions& options,
                         const std::string& machine_name, const std::optional<std::string>& link_rate) {
  const std::string schedule = schedule_line(problem, options);
  const LinkMachine machine = link_machine(load_machine(machine_name), problem.dtype, link_rate);
  context.print(fmt::format("{}\n{}\n{}", describe(problem), schedule, machine.line));
  Json record = distributed_record(context.argv, problem, options);
  record["machine"] = {{"name", machine_name},
                       {"flops_per_second", machine.rates.flops_per_second},
                       {"link_bytes_per_second", machine.rates.link_bytes_per_second},
                       {"link_latency_s", machine.rates.link_latency_seconds}};
  record["passes"] = Json::array();
  for (const Direction direction : directions) {
    const DistributedProgram program = build_distributed(problem, direction, options);
    context.print(distributed_table(program, options, machine.rates));
    record["passes"].push_back(distributed_json(program, machine.rates));
  }
  context.write_json(record.dump(1) + "\n");
  return kFine;
}

int verify_distributed(const CommandContext& context, const AttentionProblem& problem, Direction direction,
                       InputKind inputs, const DistributedOptions& options, const RankOptions& ranks) {
  const std::string schedule = schedule_line(problem, options);
  Json record = distributed_record(context.argv, problem, options);
  Reference reference(problem, inputs, direction);
  std::string text;
  bool passed = false;
  try {
    const RankVerdict result = judge_on_ranks(reference, direction, options, ranks);
    passed = result.verdict.passed();
    for (const TensorVerdict& tensor : result.verdict.tensors) {
      text += fmt::format(" {} {:.2f}", record_name(tensor.tensor), tensor.share);
      record["error"][record_name(tensor.tensor)] = {
          {"max_abs", tensor.error.max_abs}, {"rmse", tensor.error.rmse}, {"bound", tensor.bound}};
    }
    text += "\n" + failure_lines(problem, result.verdict, "exact");
    for (const Direction step : {Direction::forward, Direction::backward}) {
      if (step > direction) break;
      const auto& seen = step == Direction::forward ? result.forward : result.backward;
      const auto formula = link_closed_form(problem, step, options);
      passed = passed && seen == formula;
      text += exchanged_line(step, seen, formula);
      record["passes"].push_back(exchanged_json(step, seen, formula));
    }
  } catch (const RankFailure& failure) {
    text = fmt::format("\n       {}\n", failure.what());
    record["failure"] = failure.what();
  }
  context.print(fmt::format("{} {} {}, {}:{}", passed ? "ok  " : "FAIL", schedule, describe(problem),
                            to_string(inputs), text));
  record["passed"] = passed;
  context.write_json(record.dump(1) + "\n");
  return passed ? kFine : kCheckFailed;
}

}  // namespace tilescope::cli
