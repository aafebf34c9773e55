// SPDX-License-Identifier: Apache-2.0
#include "distributed/execution/run_on_ranks.hpp"

#include <omp.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <limits>
#include <thread>

#include "cpu_ref/numeric/numeric.hpp"
#include "distributed/execution/merge_partial.hpp"

namespace tilescope {
namespace {

using enum TensorName;

const Kernel& kernel_of(const RankOptions& options) {
  if (options.kernel != nullptr) return *options.kernel;
  const auto kernels = cpu_kernels();
  return *std::find_if(kernels.begin(), kernels.end(),
                       [](const Kernel& kernel) { return kernel.algorithm == Algorithm::flash2; });
}

/// One rank: its buffers and what it does with them.
class Rank {
 public:
  Rank(int rank, const DistributedProgram& program, const RankOptions& options, Exchange& exchange)
      : rank_(rank), program_(program), options_(options), kernel_(kernel_of(options)), exchange_(exchange) {}

  void allocate() {
    memory_.resize(program_.buffers.size());
    for (std::size_t i = 0; i < memory_.size(); ++i) {
      const Buffer& buffer = program_.buffers[i];
      if (buffer.rank != rank_) continue;
      memory_[i] = Tensor({program_.problem.batch, buffer.heads, buffer.rows, buffer.cols}, buffer.dtype);
      const bool statistics = buffer.tensor == lse, sums = !statistics && is_sum(buffer.tensor);
      if (sums) memory_[i].zero();
      if (!sums) memory_[i].poison();
      if (statistics && program_.direction == Direction::forward) {
        std::fill_n(memory_[i].floats(), memory_[i].shape().elements(),
                    -std::numeric_limits<float>::infinity());
      }
    }
  }
  void read_inputs(const TensorSet& tensors) {
    for (const Placement& placement : program_.inputs) {
      if (program_.rank_of(placement.block) != rank_) continue;
      const Tensor& whole = tensors[program_.buffer_of(placement.block).tensor];
      for_each_row(placement, whole,
                   [](void* own, const void* shared, std::size_t bytes) { std::memcpy(own, shared, bytes); });
    }
  }
  void write_outputs(TensorSet& tensors) {
    for (const Placement& placement : program_.outputs) {
      if (program_.rank_of(placement.block) != rank_) continue;
      Tensor& whole = tensors[program_.buffer_of(placement.block).tensor];
      for_each_row(placement, whole,
                   [](const void* own, void* shared, std::size_t bytes) { std::memcpy(shared, own, bytes); });
    }
  }

  /// This rank's part of an operation. @return false if the program has been ended by another
  bool run(int index) {
    const Operation& operation = program_.operations[static_cast<std::size_t>(index)];
    const Move* const move = std::get_if<Move>(&operation.what);
    const int receiver = move != nullptr ? program_.rank_of(move->to) : -1;
    if (program_.rank_of(operation) != rank_ && receiver != rank_) return true;
    if (options_.before) options_.before(rank_, index);
    if (move == nullptr) {
      attend(std::get<Attend>(operation.what));
    } else if (!this->move(*move, index)) {
      return false;
    }
    exchange_.progress();
    return true;
  }

 private:
  Tensor& memory(int buffer) { return memory_[static_cast<std::size_t>(buffer)]; }

  /// Calls visit(row of the buffer, row of the whole tensor, bytes).
  template <typename Whole, typename Visitor>
  void for_each_row(const Placement& placement, Whole& whole, Visitor&& visit) {
    Tensor& own = memory(placement.block.buffer);
    const std::size_t bytes =
        static_cast<std::size_t>(own.shape().cols) * static_cast<std::size_t>(element_bytes(own.dtype()));
    for (std::int64_t b = 0; b < program_.problem.batch; ++b) {
      for (std::int64_t h = 0; h < placement.block.heads.count(); ++h) {
        for (std::int64_t row = 0; row < placement.block.rows.count(); ++row) {
          visit(own.row(b, h, row), whole.row(b, placement.first_head + h, placement.rows.token(row)), bytes);
        }
      }
    }
  }
  /// Calls visit(first row, elements) for each batch and head of a block: its rows lie together.
  template <typename Visitor>
  void for_each_run(const BufferBlock& block, Visitor&& visit) {
    Tensor& tensor = memory(block.buffer);
    for (std::int64_t b = 0; b < program_.problem.batch; ++b) {
      for (std::int64_t h = block.heads.begin; h < block.heads.end; ++h)
        visit(static_cast<std::byte*>(tensor.row(b, h, block.rows.begin)),
              block.rows.count() * tensor.shape().cols);
    }
  }

  Exchange::Message pack(const BufferBlock& block) {
    Exchange::Message message;
    const int size = element_bytes(program_.buffer_of(block).dtype);
    for_each_run(block, [&](const std::byte* run, std::int64_t elements) {
      message.insert(message.end(), run, run + elements * size);
    });
    return message;
  }
  void unpack(const BufferBlock& block, const Exchange::Message& message) {
    if (static_cast<std::int64_t>(message.size()) != program_.bytes(block))
      throw std::runtime_error("a message has " + std::to_string(message.size()) + " bytes, not " +
                               std::to_string(program_.bytes(block)));
    const int size = element_bytes(program_.buffer_of(block).dtype);
    const std::byte* from = message.data();
    for_each_run(block, [&](std::byte* run, std::int64_t elements) {
      std::memcpy(run, from, static_cast<std::size_t>(elements * size));
      from += elements * size;
    });
  }

  bool move(const Move& move, int index) {
    const bool sends = program_.rank_of(move.from) == rank_, receives = program_.rank_of(move.to) == rank_;
    if (sends && receives) {
      move_here(move);
    } else if (sends) {
      exchange_.send(rank_, index, pack(move.from));
    } else {
      Exchange::Message message;
      switch (exchange_.receive(rank_, index, message)) {
        case Exchange::Outcome::arrived:
          unpack(move.to, message);
          break;
        case Exchange::Outcome::another_failed:
          return false;
        case Exchange::Outcome::nobody_moves:
          throw_stalled(move, index);
      }
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

  void move_here(const Move& move) {
    if (move.kind == MoveKind::copy) return unpack(move.to, pack(move.from));
    std::vector<std::byte*> targets;
    for_each_run(move.to, [&](std::byte* run, std::int64_t) { targets.push_back(run); });
    std::size_t next = 0;
    const ElementType type = program_.buffer_of(move.to).dtype;
    for_each_run(move.from, [&](std::byte* run, std::int64_t elements) {
      float* const sums = reinterpret_cast<float*>(run);
      std::byte* const target = targets[next++];
      if (move.kind == MoveKind::round) return narrow(type, sums, target, elements);
      for (std::int64_t i = 0; i < elements; ++i)
        reinterpret_cast<float*>(target)[i] += std::exchange(sums[i], 0.0f);
    });
  }

  /// The rows of a launch as tensors of its own problem, its results merged into those of the buffers.
  void attend(const Attend& attend) {
    TensorSet part(program_.slice_problem(attend));
    for (const TensorName name : {q, k, v, out, lse, dout}) {
      const bool result = program_.direction == Direction::forward && (name == out || name == lse);
      if (attend.buffer(name) < 0 || result) continue;
      part.allocate(name);
      for_each_part_row(attend, part[name], name, [](float*, const void* own, void* row, std::size_t bytes) {
        std::memcpy(row, own, bytes);
      });
    }
    ProgramOptions options = kernel_.default_options(part.problem());
    if (options_.tile) options.set_tile(*options_.tile);
    kernel_.run(options, program_.direction, part, nullptr);
    if (program_.direction == Direction::forward) return merge(attend, part);
    add(attend, part[dq], dq_accum);
    add(attend, part[dk], dk_accum);
    add(attend, part[dv], dv_accum);
  }

  /// Calls visit(fp32 row of the buffer, row of the buffer, row of the part, its bytes).
  template <typename Visitor>
  void for_each_part_row(const Attend& attend, Tensor& part, TensorName name, Visitor&& visit) {
    Tensor& own = memory(attend.buffer(name));
    const std::int64_t first = has_query_rows(name) ? attend.slice.q_rows.begin : attend.slice.kv_rows.begin;
    const Shape& shape = part.shape();
    const auto bytes = static_cast<std::size_t>(shape.cols * element_bytes(part.dtype()));
    for (std::int64_t b = 0; b < shape.batch; ++b) {
      for (std::int64_t h = 0; h < shape.heads; ++h) {
        for (std::int64_t row = 0; row < shape.rows; ++row) {
          void* const own_row = own.row(b, h, first + row);
          visit(static_cast<float*>(own_row), own_row, part.row(b, h, row), bytes);
        }
      }
    }
  }
  void merge(const Attend& attend, TensorSet& part) {
    const Tensor outputs = part[out].as(ElementType::fp32);
    const float* next = outputs.floats();
    const float* next_lse = part[lse].floats();
    std::vector<float*> statistics;
    for_each_part_row(attend, part[lse], lse,
                      [&](float* own, const void*, const void*, std::size_t) { statistics.push_back(own); });
    std::size_t row = 0;
    for_each_part_row(attend, part[out], out_accum, [&](float* sums, const void*, const void*, std::size_t) {
      merge_partial(sums, statistics[row], next, next_lse[row], program_.problem.head_dim);
      next += program_.problem.head_dim;
      ++row;
    });
  }
  void add(const Attend& attend, Tensor& gradient, TensorName sums) {
    const Tensor values = gradient.as(ElementType::fp32);
    const float* next = values.floats();
    for_each_part_row(attend, gradient, sums, [&](float* row, const void*, const void*, std::size_t) {
      for (std::int64_t i = 0; i < program_.problem.head_dim; ++i) row[i] += *next++;
    });
  }

  int rank_;
  const DistributedProgram& program_;
  const RankOptions& options_;
  const Kernel& kernel_;
  Exchange& exchange_;
  std::vector<Tensor> memory_;  // by buffer; those of other ranks stay empty
};

/// What ended a rank.
struct Failure {
  int rank = 0, step = 0;
  std::exception_ptr what;
};

[[noreturn]] void rethrow(const Failure& failure) {
  try {
    std::rethrow_exception(failure.what);
  } catch (const BadInput&) {
    throw;
  } catch (const MachineLacks&) {
    throw;
  } catch (const RankFailure&) {
    throw;
  } catch (const std::exception& error) {
    throw RankFailure(failure.rank, failure.step, error.what());
  } catch (...) {
    throw RankFailure(failure.rank, failure.step, "unknown exception");
  }
}

}  // namespace

std::vector<LinkBytes> run_on_ranks(const DistributedProgram& program, TensorSet& tensors,
                                    const RankOptions& options) {
  if (kernel_of(options).algorithm != Algorithm::flash2) {
    throw BadInput("kernel", std::string(kernel_of(options).name), "must be one of flash2 on several ranks");
  }
  for (const TensorName name : output_tensors(program.direction)) tensors.allocate(name);
  Exchange exchange(program.ranks, options.time_limit);
  std::vector<Failure> failures;
  std::mutex failures_mutex;
  const int kernel_threads = std::max(1, omp_get_max_threads() / program.ranks);
  const auto run_rank = [&](int r) {
    int index = 0;
    try {
      omp_set_num_threads(kernel_threads);
      Rank rank(r, program, options, exchange);
      rank.allocate();
      rank.read_inputs(tensors);
      for (; index < static_cast<int>(program.operations.size()); ++index) {
        if (!rank.run(index)) return;
      }
      rank.write_outputs(tensors);
      exchange.end(r);
    } catch (...) {
      const std::size_t last = program.operations.empty() ? 0 : program.operations.size() - 1;
      const std::size_t at = std::min(static_cast<std::size_t>(index), last);
      {
        const std::lock_guard<std::mutex> lock(failures_mutex);
        failures.push_back(
            {r, program.operations.empty() ? 0 : program.operations[at].step, std::current_exception()});
      }
      exchange.fail();
    }
  };
  std::vector<std::thread> threads;
  for (int r = 0; r < program.ranks; ++r) threads.emplace_back(run_rank, r);
  for (std::thread& thread : threads) thread.join();
  if (!failures.empty()) rethrow(failures.front());
  return exchange.link_bytes();
}

RankVerdict judge_on_ranks(Reference& reference, Direction direction, const DistributedOptions& schedule,
                           const RankOptions& options) {
  RankVerdict result;
  reference.run(
      [&](Direction step, TensorSet& tensors) {
        const auto bytes =
            run_on_ranks(build_distributed(reference.problem(), step, schedule), tensors, options);
        (step == Direction::forward ? result.forward : result.backward) = bytes;
      },
      direction);
  result.verdict = reference.judge(direction);
  return result;
}

}  // namespace tilescope
