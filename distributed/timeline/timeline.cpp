// SPDX-License-Identifier: Apache-2.0
#include "distributed/timeline/timeline.hpp"

#include <algorithm>

#include "distributed/counts/rank_load.hpp"
#include "distributed/timeline/clocks.hpp"

namespace tilescope {
namespace {

/// What an operation takes of its rank.
struct OperationWork {
  const std::vector<EvenCtas>* ctas = nullptr;  // of a launch
  double even_seconds = 0;                      // elementwise, on all SMs
  int launches = 0;
};

/// Launches by the CTAs of a kernel, and the sums that it needs.
class KernelWork {
 public:
  KernelWork(const DistributedProgram& program, const RankKernel& kernel, const RankRates& rates)
      : program_(program), work_(program, kernel), rates_(rates) {}
  double cleared_seconds(int rank) const { return seconds(work_.cleared_bytes(rank)); }
  OperationWork of(int operation) {
    const Attend* const attend = std::get_if<Attend>(&program_.operations[at(operation)].what);
    return {attend != nullptr ? &work_.ctas(*attend) : nullptr, seconds(work_.memory_bytes(operation)),
            work_.launches(operation)};
  }

 private:
  double seconds(std::int64_t bytes) const {
    return static_cast<double>(bytes) / rates_.memory_bytes_per_second;
  }
  const DistributedProgram& program_;
  DeviceWork work_;
  const RankRates& rates_;
};

/// Launches by their useful FLOP on a GPU that is one SM, whose tile is a FLOP; and the program's own sums.
class FlopWork {
 public:
  FlopWork(const DistributedProgram& program, const RankRates& rates) : program_(program), rates_(rates) {}
  double cleared_seconds(int) const { return 0; }
  OperationWork of(int operation) {
    const auto& what = program_.operations[at(operation)].what;
    if (const Attend* const attend = std::get_if<Attend>(&what)) {
      const auto& q = program_.buffers[at(attend->buffer(TensorName::q))];
      flops_ = {{1, useful_flops(program_.direction,
                                 program_.problem.batch * q.heads * attend->slice.visible_pairs(),
                                 program_.problem.head_dim)}};
      return {&flops_, 0, 1};
    }
    const Move& move = std::get<Move>(what);
    const std::int64_t passes = move.kind == MoveKind::add ? 2 : 1;  // an addition clears and accumulates
    return {nullptr,
            static_cast<double>(passes * (program_.bytes(move.from) + program_.bytes(move.to))) /
                rates_.memory_bytes_per_second,
            1};
  }

 private:
  const DistributedProgram& program_;
  const RankRates& rates_;
  std::vector<EvenCtas> flops_;
};

/// One rank's SMs, links and account.
struct RankClock {
  RankClock(std::int64_t ctas_at_once, std::size_t compute_stream_count)
      : sms(ctas_at_once), compute_streams(compute_stream_count), last(compute_stream_count, -1) {}
  SmClock sms;
  std::vector<double> compute_streams;  // when each is free
  std::vector<int> last;                // operation of each
  double out_free = 0, in_free = 0;     // of its links
  int last_out = -1, last_in = -1;      // transfers that they carried
  double out_busy = 0, in_busy = 0;     // [seconds]
  int last_of_all = -1;                 // operation or arrival that ended last
  TimeSplit split;
};

template <typename Works>
class ProgramClock {
 public:
  /// @param tile_seconds  of a tile on one SM
  ProgramClock(const DistributedProgram& program, const RankRates& rates, Works& works,
               std::int64_t ctas_at_once, double tile_seconds)
      : program_(program), rates_(rates), works_(works), tile_seconds_(tile_seconds) {
    const auto compute_streams = static_cast<std::size_t>(program.compute_streams);
    for (int rank = 0; rank < program.ranks; ++rank) {
      ranks_.push_back(RankClock(ctas_at_once, compute_streams));
      RankClock& own = ranks_.back();
      if (program.ranks > 1) own.split.others = rates.link_latency_seconds;  // all have ended the pass before
      own.split.sums = works_.cleared_seconds(rank);
      const double begin = own.split.others + own.split.sums;
      own.sms.advance(begin);
      std::ranges::fill(own.compute_streams, begin);
    }
    timeline_.ranks.resize(static_cast<std::size_t>(program.ranks));
    done_.resize(program.operations.size());
  }

  RankTimeline run() {
    ReadyOperations ready(program_);
    while (ready.any()) {
      const int index = ready.take();
      const Operation& operation = program_.operations[at(index)];
      Done& done = done_[at(index)];
      for (const int wait : operation.waits) done.start_after(wait, done_[at(wait)].end);
      const Move* const move = std::get_if<Move>(&operation.what);
      const bool copy = move != nullptr && move->kind == MoveKind::copy;
      copy ? transfer(index, *move, done) : compute(index, operation, done);
      ready.note_end(index, done.end);
    }
    return finish();
  }

 private:
  /// When an operation ran, and which one's end it waited for.
  struct Done {
    double start = 0, end = 0;
    int cause = -1;
    bool crossed = false;  // from one rank to another
    double lead = 0;       // of a transfer, until its bytes go
    void start_after(int operation, double time) {
      if (time <= start) return;
      start = time;
      cause = operation;
    }
    /// Bytes go no earlier than `shortest` after the end of another transfer.
    void behind(int transfer, double time, double shortest) {
      if (transfer < 0 || time + shortest <= start + lead) return;
      start = time;
      cause = transfer;
      lead = shortest;
    }
  };

  void note_end(int rank, int operation, double end) {
    double& last = timeline_.ranks[at(rank)].end_seconds;
    if (end < last) return;
    last = end;
    ranks_[at(rank)].last_of_all = operation;
  }

  void transfer(int index, const Move& move, Done& done) {
    const int from = program_.rank_of(move.from), to = program_.rank_of(move.to);
    done.end = done.start;
    if (from == to) return;
    RankClock &sender = ranks_[at(from)], &receiver = ranks_[at(to)];
    done.crossed = true;
    // To begin takes less behind another transfer, which hides most of it.
    done.lead = rates_.link_latency_seconds;
    done.behind(sender.last_out, sender.out_free, rates_.launch_seconds);
    done.behind(receiver.last_in, receiver.in_free, rates_.launch_seconds);
    const double seconds =
        done.lead + static_cast<double>(program_.bytes(move.from)) / rates_.link_bytes_per_second;
    done.end = sender.out_free = receiver.in_free = done.start + seconds;
    sender.last_out = receiver.last_in = index;
    sender.out_busy += seconds;
    receiver.in_busy += seconds;
    note_end(from, index, done.end);
    note_end(to, index, done.end);
  }

  void compute(int index, const Operation& operation, Done& done) {
    const int rank = program_.rank_of(operation);
    RankClock& own = ranks_[at(rank)];
    const OperationWork work = works_.of(index);
    const auto compute_stream = static_cast<std::size_t>(operation.compute_stream);
    done.start_after(own.last[compute_stream], own.compute_streams[compute_stream]);
    done.end = done.start;
    if (work.ctas != nullptr || work.even_seconds > 0) {
      const double begin = done.start + work.launches * rates_.launch_seconds;
      wait(rank, done.start, done.cause, own);
      own.split.launches += std::max(0.0, begin - std::max(own.sms.level(), done.start));
      own.split.tails += own.sms.advance(begin);
      done.end = work_on(rank, work, begin, own);
    }
    own.compute_streams[compute_stream] = done.end;
    own.last[compute_stream] = index;
    note_end(rank, index, done.end);
  }
  /// A pass over memory comes before what later compute streams have given to SMs: its stream has the higher
  /// priority.
  /// @return when the operation has ended
  double work_on(int rank, const OperationWork& work, double begin, RankClock& own) {
    RankTime& time = timeline_.ranks[at(rank)];
    double end = begin;
    if (work.ctas != nullptr) {
      double tiles = 0;
      for (const EvenCtas& run : *work.ctas) tiles += static_cast<double>(run.ctas) * run.tiles;
      const double seconds = tiles * tile_seconds_ / static_cast<double>(own.sms.size());
      time.attention_seconds += seconds;
      own.split.tiles += seconds;
      end = std::max(end, own.sms.issue(*work.ctas, tile_seconds_));
    }
    if (work.even_seconds == 0) return end;
    time.elementwise_seconds += work.even_seconds;
    own.split.sums += work.even_seconds;
    own.sms.insert(work.even_seconds);
    return end + work.even_seconds;
  }

  /// What a rank has not computed from the end of its last CTA until `time`, by the operations that were
  /// waited for: back from `cause` through what each of them waited for.
  void wait(int rank, double time, int cause, RankClock& own) {
    const double from = own.sms.level();
    while (time > from && cause >= 0) {
      const Done& done = done_[at(cause)];
      const auto spend = [&](double& account, double begin) {
        const double until = std::clamp(begin, from, time);
        account += time - until;
        time = until;
      };
      if (done.crossed) {
        spend(own.split.others, done.end);  // launched by another rank since
        spend(own.split.bytes, done.start + done.lead);
        spend(own.split.latency, done.start);
      } else {
        const bool elsewhere = program_.rank_of(program_.operations[at(cause)]) != rank;
        spend(elsewhere ? own.split.others : own.split.launches, done.start);
      }
      cause = done.cause;
    }
    if (time > from) own.split.others += time - from;
  }

  RankTimeline finish() {
    for (int r = 0; r < program_.ranks; ++r)
      timeline_.ranks[at(r)].link_seconds = std::max(ranks_[at(r)].out_busy, ranks_[at(r)].in_busy);
    const int last = static_cast<int>(timeline_.last_rank());
    RankClock& own = ranks_[at(last)];
    timeline_.seconds = std::max(own.sms.level(), timeline_.ranks[at(last)].end_seconds);
    own.split.tails += own.sms.uneven_seconds();
    wait(last, timeline_.seconds, own.last_of_all, own);
    timeline_.exposed_seconds = own.split.bytes + own.split.latency + own.split.others;
    timeline_.lost = own.split;
    return std::move(timeline_);
  }

  const DistributedProgram& program_;
  const RankRates& rates_;
  Works& works_;
  double tile_seconds_;
  RankTimeline timeline_;
  std::vector<Done> done_;  // by operation
  std::vector<RankClock> ranks_;
};

/// What is more than a share of what one GPU takes.
TimeSplit beyond(const TimeSplit& all, const TimeSplit& one_gpu, double share) {
  return {all.tiles - share * one_gpu.tiles,  all.tails - share * one_gpu.tails,
          all.sums - share * one_gpu.sums,    all.launches - share * one_gpu.launches,
          all.bytes - share * one_gpu.bytes,  all.latency - share * one_gpu.latency,
          all.others - share * one_gpu.others};
}

RankTimeline beside_one_gpu(RankTimeline timeline, const TimeSplit& one_gpu) {
  const double share = 1.0 / static_cast<double>(timeline.ranks.size());
  timeline.lost = beyond(timeline.lost, one_gpu, share);
  timeline.one_gpu_seconds = one_gpu.total();
  if (timeline.seconds > 0) timeline.efficiency = share * timeline.one_gpu_seconds / timeline.seconds;
  return timeline;
}

/// The time of a tile on one SM with which one GPU with the whole problem takes the time that its rate says;
/// where launches and sums take most of that, its tiles alone do.
double tile_seconds_of(const DistributedProgram& alone, const RankRates& rates, KernelWork& work,
                       std::int64_t ctas_at_once, double one_gpu_seconds) {
  const auto seconds = [&](double tile) {
    return ProgramClock(alone, rates, work, ctas_at_once, tile).run().seconds;
  };
  const double rest = seconds(0), tiles = seconds(1) - rest;
  if (tiles <= 0) return 0;
  return (rest < one_gpu_seconds / 2 ? one_gpu_seconds - rest : one_gpu_seconds) / tiles;
}

}  // namespace

std::size_t RankTimeline::last_rank() const {
  const auto earlier = [](const RankTime& a, const RankTime& b) { return a.end_seconds < b.end_seconds; };
  return static_cast<std::size_t>(std::ranges::max_element(ranks, earlier) - ranks.begin());
}

RankTimeline predict_timeline(const DistributedProgram& program, const RankRates& rates,
                              const RankKernel* kernel) {
  const AttentionProblem& problem = program.problem;
  const double one_gpu_seconds =
      useful_flops(program.direction, problem.visible_pairs(), problem.head_dim) / rates.flops_per_second;
  if (kernel == nullptr) {
    FlopWork work(program, rates);
    return beside_one_gpu(ProgramClock(program, rates, work, 1, 1 / rates.flops_per_second).run(),
                          {.tiles = one_gpu_seconds});
  }
  const DistributedProgram alone = build_distributed(problem, program.direction, {LinkSchedule::ring, 1});
  KernelWork alone_work(alone, *kernel, rates);
  const std::int64_t ctas = kernel->ctas_at_once;
  const double tile = tile_seconds_of(alone, rates, alone_work, ctas, one_gpu_seconds);
  const TimeSplit one_gpu = ProgramClock(alone, rates, alone_work, ctas, tile).run().lost;
  DistributedProgram executed = program;
  drop_waits_between_parts(executed, plan_accumulation(program));
  KernelWork work(executed, *kernel, rates);
  return beside_one_gpu(ProgramClock(executed, rates, work, ctas, tile).run(), one_gpu);
}

}  // namespace tilescope
