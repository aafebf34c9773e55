// SPDX-License-Identifier: Apache-2.0
#include "distributed/execution/cpu_rank.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <stdexcept>
#include <string>
#include <utility>

#include "cpu_ref/numeric/numeric.hpp"

namespace tilescope {

using enum TensorName;

const Kernel& default_rank_kernel() {
  const auto kernels = cpu_kernels();
  return *std::ranges::find(kernels, Algorithm::flash2, &Kernel::algorithm);
}

CpuRank::CpuRank(int rank, const DistributedProgram& program, const Kernel& kernel,
                 std::optional<TileShape> tile)
    : rank_(rank), program_(program), kernel_(kernel), tile_(tile), memory_(program.buffers.size()) {
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

/// Calls visit(row of the buffer, row of the whole tensor, bytes).
template <typename Own, typename Whole, typename Visitor>
void CpuRank::for_each_row(const Placement& placement, Own& own, Whole& whole, Visitor&& visit) const {
  const std::size_t bytes =
      static_cast<std::size_t>(own.shape().cols) * static_cast<std::size_t>(element_bytes(own.dtype()));
  for (std::int64_t b = 0; b < program_.problem.batch; ++b) {
    for (std::int64_t h = 0; h < placement.block.heads.count(); ++h) {
      for (std::int64_t row = 0; row < placement.block.rows.count(); ++row) {
        visit(own.row(b, placement.block.heads.begin + h, placement.block.rows.begin + row),
              whole.row(b, placement.first_head + h, placement.rows.token(row)), bytes);
      }
    }
  }
}

void CpuRank::read_inputs(const TensorSet& tensors) {
  for (const Placement& placement : program_.inputs) {
    if (program_.rank_of(placement.block) != rank_) continue;
    const Tensor& whole = tensors[program_.buffer_of(placement.block).tensor];
    for_each_row(placement, memory(placement.block.buffer), whole,
                 [](void* own, const void* shared, std::size_t bytes) { std::memcpy(own, shared, bytes); });
  }
}

void CpuRank::write_outputs(TensorSet& tensors) const {
  for (const Placement& placement : program_.outputs) {
    if (program_.rank_of(placement.block) != rank_) continue;
    Tensor& whole = tensors[program_.buffer_of(placement.block).tensor];
    for_each_row(placement, memory(placement.block.buffer), whole,
                 [](const void* own, void* shared, std::size_t bytes) { std::memcpy(shared, own, bytes); });
  }
}

void CpuRank::run(const Operation& operation) {
  if (const Attend* const launch = std::get_if<Attend>(&operation.what)) return attend(*launch);
  move_here(std::get<Move>(operation.what));
}

/// Calls visit(first row, elements) for each batch and head of a block: its rows lie together.
template <typename Owner, typename Visitor>
void CpuRank::for_each_run(Owner& owner, const BufferBlock& block, Visitor&& visit) const {
  auto& tensor = owner.memory(block.buffer);
  for (std::int64_t b = 0; b < program_.problem.batch; ++b) {
    for (std::int64_t h = block.heads.begin; h < block.heads.end; ++h)
      visit(tensor.row(b, h, block.rows.begin), block.rows.count() * tensor.shape().cols);
  }
}

std::vector<std::byte> CpuRank::pack(const BufferBlock& block) const {
  std::vector<std::byte> message;
  const int size = element_bytes(program_.buffer_of(block).dtype);
  for_each_run(*this, block, [&](const void* run, std::int64_t elements) {
    const auto* const bytes = static_cast<const std::byte*>(run);
    message.insert(message.end(), bytes, bytes + elements * size);
  });
  return message;
}

void CpuRank::unpack(const BufferBlock& block, const std::vector<std::byte>& message) {
  if (static_cast<std::int64_t>(message.size()) != program_.bytes(block))
    throw std::runtime_error("a message has " + std::to_string(message.size()) + " bytes, not " +
                             std::to_string(program_.bytes(block)));
  const int size = element_bytes(program_.buffer_of(block).dtype);
  const std::byte* from = message.data();
  for_each_run(*this, block, [&](void* run, std::int64_t elements) {
    std::memcpy(run, from, static_cast<std::size_t>(elements * size));
    from += elements * size;
  });
}

void CpuRank::move_here(const Move& move) {
  if (move.kind == MoveKind::copy) return unpack(move.to, pack(move.from));
  std::vector<void*> targets;
  for_each_run(*this, move.to, [&](void* run, std::int64_t) { targets.push_back(run); });
  std::size_t next = 0;
  const ElementType type = program_.buffer_of(move.to).dtype;
  for_each_run(*this, move.from, [&](void* run, std::int64_t elements) {
    float* const sums = static_cast<float*>(run);
    void* const target = targets[next++];
    if (move.kind == MoveKind::round) return narrow(type, sums, target, elements);
    for (std::int64_t i = 0; i < elements; ++i)
      static_cast<float*>(target)[i] += std::exchange(sums[i], 0.0f);
  });
}

/// The rows of a launch as tensors of its own problem, its results merged into those of the buffers.
void CpuRank::attend(const Attend& attend) {
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
  if (tile_) options.set_tile(*tile_);
  kernel_.run(options, program_.direction, part, nullptr);
  if (program_.direction == Direction::forward) return merge(attend, part);
  add(attend, part[dq], dq_accum);
  add(attend, part[dk], dk_accum);
  add(attend, part[dv], dv_accum);
}

/// Calls visit(fp32 row of the buffer, row of the buffer, row of the part, its bytes).
template <typename Visitor>
void CpuRank::for_each_part_row(const Attend& attend, Tensor& part, TensorName name, Visitor&& visit) {
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

void CpuRank::merge(const Attend& attend, TensorSet& part) {
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

void CpuRank::add(const Attend& attend, Tensor& gradient, TensorName sums) {
  const Tensor values = gradient.as(ElementType::fp32);
  const float* next = values.floats();
  for_each_part_row(attend, gradient, sums, [&](float* row, const void*, const void*, std::size_t) {
    for (std::int64_t i = 0; i < program_.problem.head_dim; ++i) row[i] += *next++;
  });
}

void merge_partial(float* out, float* lse, const float* part, float part_lse, std::int64_t head_dim) {
  constexpr float kNothing = -std::numeric_limits<float>::infinity();
  if (part_lse == kNothing) return;
  if (*lse == kNothing) {
    std::copy(part, part + head_dim, out);
    *lse = part_lse;
    return;
  }
  const float larger = std::max(*lse, part_lse);
  const float weight = std::exp(*lse - larger), part_weight = std::exp(part_lse - larger);
  const float sum = weight + part_weight;
  for (std::int64_t i = 0; i < head_dim; ++i) out[i] = (weight * out[i] + part_weight * part[i]) / sum;
  *lse = larger + std::log(sum);
}

}  // namespace tilescope
