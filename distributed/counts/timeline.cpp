// SPDX-License-Identifier: Apache-2.0
#include "distributed/counts/timeline.hpp"

#include <algorithm>

#include "distributed/counts/rank_load.hpp"

namespace tilescope {
namespace {

class Clock {
 public:
  Clock(const DistributedProgram& program, const RankRates& rates)
      : program_(program),
        rates_(rates),
        compute_free_(ranks()),
        out_free_(ranks()),
        in_free_(ranks()),
        out_busy_(ranks()),
        in_busy_(ranks()) {
    timeline_.ranks.resize(ranks());
    ends_.reserve(program.operations.size());
  }

  RankTimeline run() {
    for (const Operation& operation : program_.operations) {
      double start = 0;
      for (const int wait : operation.waits) start = std::max(start, ends_[static_cast<std::size_t>(wait)]);
      const Move* const move = std::get_if<Move>(&operation.what);
      ends_.push_back(move != nullptr && move->kind == MoveKind::copy ? transfer(start, *move)
                                                                      : compute(start, operation));
    }
    return finish();
  }

 private:
  std::size_t ranks() const { return static_cast<std::size_t>(program_.ranks); }

  double transfer(double start, const Move& move) {
    const auto from = static_cast<std::size_t>(program_.rank_of(move.from)),
               to = static_cast<std::size_t>(program_.rank_of(move.to));
    if (from == to) return start;
    start = std::max({start, out_free_[from], in_free_[to]});
    const double seconds = rates_.link_latency_seconds +
                           static_cast<double>(program_.bytes(move.from)) / rates_.link_bytes_per_second;
    const double end = start + seconds;
    out_free_[from] = in_free_[to] = end;
    out_busy_[from] += seconds;
    in_busy_[to] += seconds;
    for (const std::size_t rank : {from, to})
      timeline_.ranks[rank].end_seconds = std::max(timeline_.ranks[rank].end_seconds, end);
    return end;
  }

  double compute(double start, const Operation& operation) {
    const auto rank = static_cast<std::size_t>(program_.rank_of(operation));
    RankTime& time = timeline_.ranks[rank];
    double attention = 0, elementwise = 0;
    if (const Attend* const attend = std::get_if<Attend>(&operation.what)) {
      const auto& q = program_.buffers[static_cast<std::size_t>(attend->buffer(TensorName::q))];
      attention =
          useful_flops(program_.direction, program_.problem.batch * q.heads * attend->slice.visible_pairs(),
                       program_.problem.head_dim) /
          rates_.flops_per_second;
    } else {
      const Move& move = std::get<Move>(operation.what);
      const std::int64_t passes = move.kind == MoveKind::add ? 2 : 1;  // an addition clears and accumulates
      elementwise = static_cast<double>(passes * (program_.bytes(move.from) + program_.bytes(move.to))) /
                    rates_.memory_bytes_per_second;
    }
    time.attention_seconds += attention;
    time.elementwise_seconds += elementwise;
    const double end = std::max(start, compute_free_[rank]) + attention + elementwise;
    compute_free_[rank] = end;
    time.end_seconds = std::max(time.end_seconds, end);
    return end;
  }

  RankTimeline finish() {
    double work = 0, longest = 0;
    for (std::size_t r = 0; r < ranks(); ++r) {
      RankTime& time = timeline_.ranks[r];
      time.link_seconds = std::max(out_busy_[r], in_busy_[r]);
      timeline_.seconds = std::max(timeline_.seconds, time.end_seconds);
      work += time.attention_seconds;
      longest = std::max(longest, time.attention_seconds + time.elementwise_seconds);
    }
    if (timeline_.seconds > 0) timeline_.efficiency = work / program_.ranks / timeline_.seconds;
    timeline_.exposed_seconds = std::max(0.0, timeline_.seconds - longest);
    return std::move(timeline_);
  }

  const DistributedProgram& program_;
  const RankRates& rates_;
  RankTimeline timeline_;
  std::vector<double> ends_;  // by operation
  std::vector<double> compute_free_, out_free_, in_free_, out_busy_, in_busy_;
};

}  // namespace

RankTimeline predict_timeline(const DistributedProgram& program, const RankRates& rates) {
  return Clock(program, rates).run();
}

}  // namespace tilescope
