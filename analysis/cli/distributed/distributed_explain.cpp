// SPDX-License-Identifier: Apache-2.0
// explain, of several GPUs: the schedule behind the bytes on somebody's links.
#include <fmt/format.h>

#include "analysis/cli/distributed/distributed_commands.hpp"
#include "analysis/records/distributed_record.hpp"
#include "common/number_format.hpp"
#include "distributed/counts/schedule_fit.hpp"

namespace tilescope::cli {
namespace {

std::string names_of(const std::vector<LinkSchedule>& schedules) {
  std::string names;
  for (const LinkSchedule schedule : schedules)
    names += (names.empty() ? "" : " or ") + std::string(to_string(schedule));
  return names;
}

std::string fits_text(const std::vector<ScheduleFit>& fits) {
  std::string text;
  for (const ScheduleFit& fit : fits) {
    text +=
        fmt::format("    {}{}{}: {}, seen {:+.2f} %\n", names_of(fit.schedules), fit.how.empty() ? "" : "; ",
                    fit.how, format_bytes(fit.sent_bytes), 100 * fit.difference);
  }
  return text.empty() ? "    no schedule moves that\n" : text;
}

}  // namespace

int explain_link_bytes(const CommandContext& context, const AttentionProblem& problem, Direction direction,
                       int gpus, double sent_bytes) {
  context.print(fmt::format("{}, {} GPUs, {}: {} sent by the GPU that sends most\n{}", describe(problem),
                            gpus, to_string(direction), format_bytes(sent_bytes),
                            fits_text(fit_schedules(problem, direction, gpus, sent_bytes))));
  return kFine;
}

int explain_peers(const CommandContext& context, const DistributedPeers& peers) {
  bool counted = false;
  for (const DistributedPeerRun& run : peers.runs) {
    const std::int64_t tokens = run.tokens_a_gpu * peers.gpus;
    const AttentionProblem problem{.heads = peers.heads,
                                   .heads_kv = peers.heads_kv,
                                   .seqlen_q = tokens,
                                   .seqlen_k = tokens,
                                   .head_dim = peers.head_dim,
                                   .dtype = ElementType::bf16,
                                   .causal = true};
    for (const auto& [direction, seen] : {std::pair(Direction::forward, run.forward_link_bytes),
                                          std::pair(Direction::backward, run.backward_link_bytes)}) {
      if (!seen || *seen <= 0) continue;
      counted = true;
      context.print(run.peer + "\n  ");
      explain_link_bytes(context, problem, direction, static_cast<int>(peers.gpus), *seen);
    }
  }
  if (!counted)
    throw BadInput("RECORD", "this one", "must say what the links carried; this one has times alone");
  return kFine;
}

}  // namespace tilescope::cli
