// SPDX-License-Identifier: Apache-2.0
#include "distributed/execution/run_on_ranks.hpp"

#include <omp.h>

#include <algorithm>
#include <utility>

#include "distributed/execution/cpu_rank.hpp"
#include "distributed/execution/rank_failure.hpp"

namespace tilescope {

Exchange::Exchange(int ranks, std::chrono::milliseconds time_limit)
    : bytes_(static_cast<std::size_t>(ranks)),
      idle_(static_cast<std::size_t>(ranks)),
      time_limit_(time_limit),
      last_progress_(Clock::now()) {}

void Exchange::send(int from, int operation, Message message) {
  const std::lock_guard<std::mutex> lock(mutex_);
  bytes_[static_cast<std::size_t>(from)].sent += static_cast<std::int64_t>(message.size());
  messages_[operation] = std::move(message);
  changed_.notify_all();
}

Exchange::Outcome Exchange::receive(int to, int operation, Message& message) {
  std::unique_lock<std::mutex> lock(mutex_);
  const auto rank = static_cast<std::size_t>(to);
  for (;;) {
    if (failed_) return Outcome::another_failed;
    if (const auto found = messages_.find(operation); found != messages_.end()) {
      message = std::move(found->second);
      messages_.erase(found);
      idle_[rank] = false;
      bytes_[rank].received += static_cast<std::int64_t>(message.size());
      return Outcome::arrived;
    }
    const Clock::time_point deadline = last_progress_ + time_limit_;
    if (Clock::now() >= deadline) return Outcome::nobody_moves;
    idle_[rank] = true;
    changed_.wait_until(lock, deadline);
  }
}

int Exchange::running_rank() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto running = std::ranges::find(idle_, false);
  return running == idle_.end() ? -1 : static_cast<int>(running - idle_.begin());
}

void Exchange::end(int rank) {
  const std::lock_guard<std::mutex> lock(mutex_);
  idle_[static_cast<std::size_t>(rank)] = true;
}

void Exchange::progress() {
  const std::lock_guard<std::mutex> lock(mutex_);
  last_progress_ = Clock::now();
}

void Exchange::fail() {
  const std::lock_guard<std::mutex> lock(mutex_);
  failed_ = true;
  changed_.notify_all();
}

std::vector<LinkBytes> Exchange::link_bytes() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return bytes_;
}

namespace {

const Kernel& kernel_of(const RankOptions& options) {
  return options.kernel != nullptr ? *options.kernel : default_rank_kernel();
}

/// A rank whose copies are messages.
class MessagingRank {
 public:
  MessagingRank(int rank, const DistributedProgram& program, const RankOptions& options, Exchange& exchange)
      : rank_(rank),
        program_(program),
        options_(options),
        exchange_(exchange),
        memory_(rank, program, kernel_of(options), options.tile) {}

  CpuRank& memory() { return memory_; }

  /// This rank's part of an operation. @return false if the program has been ended by another
  bool run(int index) {
    const Operation& operation = program_.operations[static_cast<std::size_t>(index)];
    const Move* const move = std::get_if<Move>(&operation.what);
    const int receiver = move != nullptr ? program_.rank_of(move->to) : -1;
    if (program_.rank_of(operation) != rank_ && receiver != rank_) return true;
    if (options_.before) options_.before(rank_, index);
    if (move == nullptr || program_.rank_of(move->from) == program_.rank_of(move->to)) {
      memory_.run(operation);
    } else if (!transfer(*move, index)) {
      return false;
    }
    exchange_.progress();
    return true;
  }

 private:
  bool transfer(const Move& move, int index) {
    if (program_.rank_of(move.from) == rank_) {
      exchange_.send(rank_, index, memory_.pack(move.from));
      return true;
    }
    Exchange::Message message;
    switch (exchange_.receive(rank_, index, message)) {
      case Exchange::Outcome::arrived:
        memory_.unpack(move.to, message);
        return true;
      case Exchange::Outcome::another_failed:
        return false;
      case Exchange::Outcome::nobody_moves:
        throw_stalled(move, index);
    }
    return true;
  }

  [[noreturn]] void throw_stalled(const Move& move, int index) const {
    const int running = exchange_.running_rank();
    throw RankFailure(running < 0 ? rank_ : running,
                      program_.operations[static_cast<std::size_t>(index)].step,
                      "did nothing for " + std::to_string(options_.time_limit.count()) + " ms while rank " +
                          std::to_string(rank_) + " waited for " +
                          std::string(to_string(program_.buffer_of(move.to).tensor)) + " from rank " +
                          std::to_string(program_.rank_of(move.from)));
  }

  int rank_;
  const DistributedProgram& program_;
  const RankOptions& options_;
  Exchange& exchange_;
  CpuRank memory_;
};

}  // namespace

std::vector<LinkBytes> run_on_ranks(const DistributedProgram& program, TensorSet& tensors,
                                    const RankOptions& options) {
  if (kernel_of(options).algorithm != Algorithm::flash2) {
    throw BadInput("kernel", std::string(kernel_of(options).name), "must be one of flash2 on several ranks");
  }
  for (const TensorName name : output_tensors(program.problem, program.direction)) tensors.allocate(name);
  Exchange exchange(program.ranks, options.time_limit);
  FirstFailure failure;
  const int kernel_threads = std::max(1, omp_get_max_threads() / program.ranks);
  run_threads(program.ranks, [&](int r) {
    int index = 0;
    const int operations = static_cast<int>(program.operations.size());
    try {
      omp_set_num_threads(kernel_threads);
      MessagingRank rank(r, program, options, exchange);
      rank.memory().read_inputs(tensors);
      for (; index < operations; ++index) {
        if (!rank.run(index)) return;
      }
      rank.memory().write_outputs(tensors);
      exchange.end(r);
    } catch (...) {
      const int at = std::min(index, operations - 1);
      failure.keep(r, at < 0 ? 0 : program.operations[static_cast<std::size_t>(at)].step);
      exchange.fail();
    }
  });
  failure.rethrow();
  return exchange.link_bytes();
}

RankVerdict judge_on_ranks(Reference& reference, Direction direction, const DistributedOptions& schedule,
                           const ProgramRunner& run) {
  RankVerdict result;
  reference.run(
      [&](Direction step, TensorSet& tensors) {
        (step == Direction::forward ? result.forward : result.backward) =
            run(build_distributed(reference.problem(), step, schedule), tensors);
      },
      direction);
  result.verdict = reference.judge(direction);
  return result;
}

RankVerdict judge_on_ranks(Reference& reference, Direction direction, const DistributedOptions& schedule,
                           const RankOptions& options) {
  return judge_on_ranks(reference, direction, schedule,
                        [&](const DistributedProgram& program, TensorSet& tensors) {
                          return run_on_ranks(program, tensors, options);
                        });
}

}  // namespace tilescope
