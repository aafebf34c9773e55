// SPDX-License-Identifier: Apache-2.0
#include "distributed/devices/device_rank.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "cpu_ref/primitives/kernel_scale.hpp"
#include "gpu/launch/pass_arguments.hpp"
#include "gpu/launch/random_fill.hpp"

namespace tilescope {

using enum TensorName;

namespace {

std::size_t at(int i) { return static_cast<std::size_t>(i); }

DeviceTensor& of(KernelArguments& arguments, TensorName name) {
  return arguments.tensors[static_cast<std::size_t>(name)];
}

std::int64_t row_bytes(const Buffer& buffer) { return buffer.cols * element_bytes(buffer.dtype); }

}  // namespace

Event::Event(bool timed) {
  check_cuda(cudaEventCreateWithFlags(&event_, timed ? cudaEventDefault : cudaEventDisableTiming),
             "creating an event");
}
Event::~Event() { cudaEventDestroy(event_); }

DeviceRank::DeviceRank(int rank, RankedProgram& shared)
    : rank_((check_cuda(cudaSetDevice(rank), "choosing a device"), rank)),
      shared_(shared),
      program_(shared.program) {
  const RankPlan& plan = shared_.plans[at(rank_)];
  for (int i = 0; i < plan.lanes; ++i) {
    lanes_.push_back(std::make_unique<Stream>());
    lane_ends_.push_back(std::make_unique<Event>());
  }
  for (const Enqueued& entry : plan.enqueued) {
    if (!entry.awaited) continue;
    const auto event = std::make_shared<Event>();
    for (const int operation : entry.operations) ends_[operation] = event;
  }
  for (int i = 0; i < static_cast<int>(program_.buffers.size()); ++i) {
    const Buffer& buffer = program_.buffers[at(i)];
    if (buffer.rank != rank_ || !shared_.accumulation.exists[at(i)]) continue;
    const auto made =
        buffers_.emplace(i, DeviceBuffer(std::string(to_string(buffer.tensor)), program_.bytes(buffer)));
    shared_.memory[at(i)] = made.first->second.data();
  }
  counter_ = DeviceBuffer("work counter", sizeof(WorkCounter));
  counter_.zero(lane(0));
  lanes_.front()->synchronize("clearing the work counter");
  for (int i = 0; i < static_cast<int>(program_.operations.size()); ++i) {
    const Attend* const attend = std::get_if<Attend>(&program_.operations[at(i)].what);
    if (attend != nullptr && attend->rank == rank_) prepare(i, *attend);
  }
}

DeviceRank::~DeviceRank() { cudaSetDevice(rank_); }

void DeviceRank::make_current() const { check_cuda(cudaSetDevice(rank_), "choosing a device"); }

DeviceTensor DeviceRank::scratch(const DeviceBuffer& memory, std::int64_t heads, std::int64_t rows,
                                 std::int64_t cols) const {
  return {memory.data(), heads * rows * cols, rows * cols, cols};
}

DeviceTensor DeviceRank::tensor(int buffer) const {
  const Buffer& of = program_.buffers[at(buffer)];
  return {shared_.memory[at(buffer)], of.heads * of.rows * of.cols, of.rows * of.cols, of.cols};
}

DeviceTensor DeviceRank::tensor(const BufferBlock& block) const {
  DeviceTensor part = tensor(block.buffer);
  const std::int64_t offset = block.heads.begin * part.head_stride + block.rows.begin * part.row_stride;
  part.data = static_cast<std::byte*>(part.data) + offset * element_bytes(program_.buffer_of(block).dtype);
  return part;
}

DeviceTensor DeviceRank::rows_from(int buffer, std::int64_t row) const {
  const Buffer& of = program_.buffers[at(buffer)];
  return tensor(BufferBlock{buffer, {0, of.heads}, {row, of.rows}});
}

PassRows DeviceRank::extent(const BufferBlock& block) const {
  return {program_.problem.batch, block.heads.count(), block.rows.count(), program_.buffer_of(block).cols};
}

std::int64_t DeviceRank::memory_bytes() const {
  std::int64_t bytes = 0;
  for (const auto& [index, buffer] : buffers_) bytes += buffer.bytes();
  for (const auto& [index, launch] : launches_) bytes += launch->part_out.bytes() + launch->part_lse.bytes();
  for (const DeviceBuffer* scratch : {&scratch_out_, &scratch_lse_, &scratch_dk_, &scratch_dv_, &delta_})
    bytes += scratch->bytes();
  return bytes;
}

// ---- launches

void DeviceRank::prepare(int operation, const Attend& attend) {
  const AttentionProblem problem = program_.slice_problem(attend);
  const Kernel& row = shared_.kernel->row;
  auto launch = std::make_unique<Launch>();
  launch->programs = row.programs(program_.direction, problem, row.default_options(problem));
  launch->arguments.counter = static_cast<WorkCounter*>(counter_.data());
  for (const TensorName name : {q, k, v, out, lse, dout, dq_accum}) {
    if (attend.buffer(name) < 0) continue;
    const IndexRange& rows = has_query_rows(name) ? attend.slice.q_rows : attend.slice.kv_rows;
    of(launch->arguments, name) = rows_from(attend.buffer(name), rows.begin);
  }
  const LaunchPlan& plan = shared_.accumulation.launches[at(operation)];
  program_.direction == Direction::forward ? land_outputs(attend, plan, *launch)
                                           : land_gradients(attend, plan, *launch);
  launches_[operation] = std::move(launch);
}

void DeviceRank::land_outputs(const Attend& attend, const LaunchPlan& plan, Launch& launch) {
  const Slice& slice = attend.slice;
  if (plan.out == Landing::result) {
    const int result = shared_.accumulation.result[at(attend.buffer(out_accum))];
    of(launch.arguments, out) = rows_from(result, slice.q_rows.begin);
    return;
  }
  const Buffer& queries = program_.buffers[at(attend.buffer(q))];
  const std::int64_t batch = program_.problem.batch, rows = slice.q_rows.count();
  const std::int64_t lse_bytes = batch * queries.heads * rows * 4,
                     out_bytes = batch * queries.heads * rows * row_bytes(queries);
  const bool own = plan.out == Landing::part;
  DeviceBuffer& part_out = own ? launch.part_out : scratch_out_;
  DeviceBuffer& part_lse = own ? launch.part_lse : scratch_lse_;
  // Scratch has room for all rows of the queries, so that whichever launch comes first makes it.
  const std::int64_t all = batch * queries.heads * queries.rows;
  if (part_out.bytes() == 0)
    part_out = DeviceBuffer("part of out", own ? out_bytes : all * row_bytes(queries));
  if (part_lse.bytes() == 0) part_lse = DeviceBuffer("part of lse", own ? lse_bytes : all * 4);
  launch.part = {scratch(part_out, queries.heads, rows, queries.cols),
                 scratch(part_lse, queries.heads, rows, 1), slice.q_rows.begin, rows};
  of(launch.arguments, out) = launch.part.out;
  of(launch.arguments, lse) = launch.part.lse;
}

void DeviceRank::land_gradients(const Attend& attend, const LaunchPlan& plan, Launch& launch) {
  const Buffer& statistics = program_.buffers[at(attend.buffer(lse))];
  if (delta_.bytes() == 0) delta_ = DeviceBuffer("delta", program_.bytes(statistics));
  DeviceTensor delta_rows = tensor(attend.buffer(lse));
  delta_rows.data = static_cast<float*>(delta_.data()) + attend.slice.q_rows.begin;
  of(launch.arguments, delta) = delta_rows;

  const Buffer& keys = program_.buffers[at(attend.buffer(k))];
  const auto land = [&](TensorName name, TensorName sums, Landing landing, DeviceBuffer& memory) {
    if (landing == Landing::result) {
      of(launch.arguments, name) =
          rows_from(shared_.accumulation.result[at(attend.buffer(sums))], attend.slice.kv_rows.begin);
      return;
    }
    if (memory.bytes() < program_.bytes(keys))
      memory = DeviceBuffer("part of " + std::string(to_string(name)), most_key_bytes());
    of(launch.arguments, name) = scratch(memory, keys.heads, attend.slice.kv_rows.count(), keys.cols);
  };
  land(dk, dk_accum, plan.dk, scratch_dk_);
  land(dv, dv_accum, plan.dv, scratch_dv_);
}

std::int64_t DeviceRank::most_key_bytes() const {
  std::int64_t most = 0;
  for (const Operation& operation : program_.operations) {
    const Attend* const attend = std::get_if<Attend>(&operation.what);
    if (attend == nullptr || attend->rank != rank_) continue;
    most = std::max(most, program_.bytes(program_.buffers[at(attend->buffer(k))]));
  }
  return most;
}

void DeviceRank::attend(int operation, const Attend& attend) {
  const Launch& launch = *launches_.at(operation);
  const LaunchPlan& plan = shared_.accumulation.launches[at(operation)];
  for (const TileProgram& program : launch.programs) {
    KernelArguments arguments = pass_arguments(program);
    arguments.tensors = launch.arguments.tensors;
    arguments.counter = launch.arguments.counter;
    if (program.name == PassName::convert) continue;  // sums are rounded when all have added to them
    if (program.name == PassName::delta) {
      if (!plan.makes_delta) continue;
      of(arguments, dq_accum) = {};  // cleared once, not by each launch
    }
    shared_.kernel->launch(program, arguments, lane(0));
    check_cuda(cudaGetLastError(), "launching " + std::string(shared_.kernel->row.name));
  }
  if (program_.direction == Direction::forward) {
    if (plan.out == Landing::add)
      merge(attend.buffer(lse), tensor(attend.buffer(out_accum)), {&launch}, true);
    return;
  }
  const auto widen = [&](TensorName name, TensorName sums, Landing landing) {
    if (landing != Landing::store && landing != Landing::add) return;
    const BufferBlock block{
        attend.buffer(sums), {0, program_.buffers[at(attend.buffer(sums))].heads}, attend.slice.kv_rows};
    launch_add_part(extent(block), tensor(block), launch.arguments[name], program_.problem.dtype,
                    landing == Landing::store, lane(0));
  };
  widen(dk, dk_accum, plan.dk);
  widen(dv, dv_accum, plan.dv);
}

// ---- sums

void DeviceRank::merge(int statistics, const DeviceTensor& target, const std::vector<const Launch*>& parts,
                       bool fp32_target) {
  const Buffer& rows = program_.buffers[at(statistics)];
  MergeArguments arguments;
  arguments.extent = {program_.problem.batch, rows.heads, rows.rows, program_.problem.head_dim};
  arguments.out = target;
  arguments.lse = tensor(statistics);
  for (const Launch* part : parts) arguments.parts[at(arguments.count++)] = part->part;
  launch_merge(arguments, program_.problem.dtype, fp32_target, lane(0));
}

void DeviceRank::round(int operation, const Move& move) {
  const MovePlan& plan = shared_.accumulation.moves[at(operation)];
  if (plan.nothing) return;
  if (!plan.parts.empty()) {
    std::vector<const Launch*> parts;
    for (const int part : plan.parts) parts.push_back(launches_.at(part).get());
    const Attend& last = std::get<Attend>(program_.operations[at(plan.parts.back())].what);
    return merge(last.buffer(lse), tensor(move.to.buffer), parts, false);
  }
  const bool queries = program_.buffer_of(move.from).tensor == dq_accum;
  const float factor = queries ? KernelScale(program_.problem).signed_scale : 1.0f;
  launch_round(extent(move.from), tensor(move.to), tensor(move.from), program_.problem.dtype, factor,
               lane(0));
}

void DeviceRank::add(int operation, const Move& move) {
  const MovePlan& plan = shared_.accumulation.moves[at(operation)];
  if (plan.nothing) return;
  if (plan.parts.empty())
    return launch_add_sums(extent(move.from), tensor(move.to), tensor(move.from), plan.clears_source,
                           lane(0));
  const int part = plan.parts.front();
  const Attend& attend = std::get<Attend>(program_.operations[at(part)].what);
  BufferBlock target = move.to;
  target.rows = {move.to.rows.begin + attend.slice.kv_rows.begin,
                 move.to.rows.begin + attend.slice.kv_rows.end};
  const TensorName name = program_.buffer_of(move.to).tensor == dk_accum ? dk : dv;
  launch_add_part(extent(target), tensor(target), launches_.at(part)->arguments[name], program_.problem.dtype,
                  false, lane(0));
}

void DeviceRank::move(int operation, const Move& move) {
  switch (move.kind) {
    case MoveKind::copy:
      return copy(move, 0);
    case MoveKind::add:
      return add(operation, move);
    case MoveKind::round:
      return round(operation, move);
  }
}

void DeviceRank::clear() {
  for (const int index : shared_.accumulation.cleared) {
    const auto found = buffers_.find(index);
    if (found != buffers_.end()) found->second.zero(lane(0));
  }
  if (program_.direction == Direction::backward) return;
  for (auto& [index, buffer] : buffers_) {
    if (program_.buffers[at(index)].tensor != lse) continue;
    launch_fill(static_cast<float*>(buffer.data()), buffer.bytes() / 4,
                -std::numeric_limits<float>::infinity(), lane(0));
  }
}

// ---- copies

template <typename Visitor>
void DeviceRank::for_each_pitched(const Move& move, Visitor&& visit) const {
  const Buffer &from = program_.buffer_of(move.from), &to = program_.buffer_of(move.to);
  const std::int64_t width = move.from.rows.count() * row_bytes(from);
  const std::int64_t from_pitch = from.rows * row_bytes(from), to_pitch = to.rows * row_bytes(to);
  const bool all_heads = move.from.heads.count() == from.heads && move.to.heads.count() == to.heads;
  const std::int64_t calls = all_heads ? 1 : program_.problem.batch;
  const std::int64_t height = move.from.heads.count() * (all_heads ? program_.problem.batch : 1);
  const DeviceTensor source = tensor(move.from), target = tensor(move.to);
  for (std::int64_t b = 0; b < calls; ++b) {
    visit(static_cast<const std::byte*>(source.data) + b * from.heads * from_pitch,
          static_cast<std::byte*>(target.data) + b * to.heads * to_pitch, width, height, from_pitch,
          to_pitch);
  }
}

void DeviceRank::copy(const Move& move, int lane_index) {
  for_each_pitched(move, [&](const void* from, void* to, std::int64_t width, std::int64_t height,
                             std::int64_t from_pitch, std::int64_t to_pitch) {
    const bool whole = from_pitch == width && to_pitch == width;
    const auto bytes = static_cast<std::size_t>(width), rows = static_cast<std::size_t>(height);
    check_cuda(whole ? cudaMemcpyAsync(to, from, bytes * rows, cudaMemcpyDefault, lane(lane_index))
                     : cudaMemcpy2DAsync(to, static_cast<std::size_t>(to_pitch), from,
                                         static_cast<std::size_t>(from_pitch), bytes, rows, cudaMemcpyDefault,
                                         lane(lane_index)),
               "copying " + std::string(to_string(program_.buffer_of(move.from).tensor)));
  });
}

void DeviceRank::exchange(const Enqueued& entry) {
  NcclRanks& nccl = *shared_.nccl;
  nccl.begin_group();
  for (const int operation : entry.operations) {
    const Move& move = std::get<Move>(program_.operations[at(operation)].what);
    const int sender = program_.rank_of(move.from), receiver = program_.rank_of(move.to);
    for_each_pitched(move, [&](const std::byte* from, std::byte* to, std::int64_t width, std::int64_t height,
                               std::int64_t from_pitch, std::int64_t to_pitch) {
      const bool whole = from_pitch == width && to_pitch == width;
      const std::int64_t messages = whole ? 1 : height, bytes = whole ? width * height : width;
      for (std::int64_t i = 0; i < messages; ++i) {
        if (sender == rank_)
          nccl.send(rank_, receiver, from + i * from_pitch, static_cast<std::size_t>(bytes),
                    lane(entry.lane));
        if (receiver == rank_)
          nccl.receive(rank_, sender, to + i * to_pitch, static_cast<std::size_t>(bytes), lane(entry.lane));
      }
    });
  }
  nccl.end_group();
}

// ---- the queue

void DeviceRank::set_run(WorkShare share, int repetitions, int timed_from) {
  share_ = share;
  repetitions_ = repetitions;
  timed_from_ = timed_from;
}

double DeviceRank::elapsed_seconds() const {
  float milliseconds = 0;
  check_cuda(cudaEventElapsedTime(&milliseconds, time_begin_.get(), time_end_.get()), "reading a time");
  return 1e-3 * static_cast<double>(milliseconds);
}

void DeviceRank::begin(int repetition) {
  make_current();
  if (repetition > 0) {
    for (const auto& other : shared_.ranks) {
      const Event& end = other->repetition_ends_[at((repetition - 1) % 2)];
      check_cuda(cudaStreamWaitEvent(lane(0), end.get()), "waiting for the repetition before");
    }
  }
  if (repetition == timed_from_) check_cuda(cudaEventRecord(time_begin_.get(), lane(0)), "taking the time");
  if (share_ != WorkShare::link) clear();
  check_cuda(cudaEventRecord(started_.get(), lane(0)), "noting the beginning");
  for (std::size_t i = 1; i < lanes_.size(); ++i)
    check_cuda(cudaStreamWaitEvent(lanes_[i]->get(), started_.get()), "waiting for the beginning");
}

void DeviceRank::wait_for(int lane_index, const OperationEnd& end) {
  const Event& event = *shared_.ranks[at(end.rank)]->ends_.at(end.operation);
  check_cuda(cudaStreamWaitEvent(lane(lane_index), event.get()), "waiting for an operation");
}

void DeviceRank::enqueue(const Enqueued& entry) {
  const bool link = entry.lane > 0;
  if (share_ == (link ? WorkShare::launches : WorkShare::link)) return;
  if (link && shared_.transport == Transport::nccl) return exchange(entry);
  const int index = entry.operations.front();
  const Operation& operation = program_.operations[at(index)];
  if (const Attend* const launch = std::get_if<Attend>(&operation.what)) return attend(index, *launch);
  const Move& what = std::get<Move>(operation.what);
  link ? copy(what, entry.lane) : move(index, what);
}

void DeviceRank::note_end(const Enqueued& entry) {
  check_cuda(cudaEventRecord(ends_.at(entry.operations.front())->get(), lane(entry.lane)), "noting an end");
}

void DeviceRank::end(int repetition) {
  for (std::size_t i = 1; i < lanes_.size(); ++i) {
    check_cuda(cudaEventRecord(lane_ends_[i]->get(), lanes_[i]->get()), "noting the end of a lane");
    check_cuda(cudaStreamWaitEvent(lane(0), lane_ends_[i]->get()), "waiting for a lane");
  }
  check_cuda(cudaEventRecord(repetition_ends_[at(repetition % 2)].get(), lane(0)), "noting the end");
  if (repetition + 1 == repetitions_)
    check_cuda(cudaEventRecord(time_end_.get(), lane(0)), "taking the time");
}

bool DeviceRank::finished() {
  if (shared_.nccl != nullptr) shared_.nccl->check(rank_);
  const cudaError_t status = cudaEventQuery(time_end_.get());
  if (status == cudaErrorNotReady) return false;
  check_cuda(status, "running rank " + std::to_string(rank_));
  return true;
}

void DeviceRank::abandon() noexcept {
  if (shared_.nccl != nullptr) shared_.nccl->abort(rank_);
}

// ---- inputs and results

namespace {

/// Calls visit(bytes of the whole tensor's row, offset in the buffer) for each row of a placement.
template <typename Whole, typename Visitor>
void for_each_row(const DistributedProgram& program, const Placement& placement, Whole& whole,
                  Visitor&& visit) {
  const Buffer& buffer = program.buffer_of(placement.block);
  for (std::int64_t b = 0; b < program.problem.batch; ++b) {
    for (std::int64_t h = 0; h < placement.block.heads.count(); ++h) {
      for (std::int64_t row = 0; row < placement.block.rows.count(); ++row) {
        visit(whole.row(b, placement.first_head + h, placement.rows.token(row)),
              ((b * buffer.heads + h) * buffer.rows + row) * row_bytes(buffer));
      }
    }
  }
}

}  // namespace

void DeviceRank::upload(const TensorSet& tensors) {
  make_current();
  for (const Placement& placement : program_.inputs) {
    if (program_.rank_of(placement.block) != rank_) continue;
    const Buffer& buffer = program_.buffer_of(placement.block);
    std::vector<std::byte> host(static_cast<std::size_t>(program_.bytes(buffer)));
    for_each_row(program_, placement, tensors[buffer.tensor], [&](const void* row, std::int64_t offset) {
      std::memcpy(host.data() + offset, row, static_cast<std::size_t>(row_bytes(buffer)));
    });
    check_cuda(cudaMemcpy(shared_.memory[at(placement.block.buffer)], host.data(), host.size(),
                          cudaMemcpyHostToDevice),
               "uploading " + std::string(to_string(buffer.tensor)));
  }
  // The ranks' streams do not wait for the default one, whose copies may still be under way.
  check_cuda(cudaStreamSynchronize(nullptr), "uploading the inputs");
}

void DeviceRank::download(TensorSet& tensors) {
  make_current();
  for (const Placement& placement : program_.outputs) {
    if (program_.rank_of(placement.block) != rank_) continue;
    const Buffer& buffer = program_.buffer_of(placement.block);
    std::vector<std::byte> host(static_cast<std::size_t>(program_.bytes(buffer)));
    check_cuda(cudaMemcpy(host.data(), shared_.memory[at(placement.block.buffer)], host.size(),
                          cudaMemcpyDeviceToHost),
               "downloading " + std::string(to_string(buffer.tensor)));
    for_each_row(program_, placement, tensors[buffer.tensor], [&](void* row, std::int64_t offset) {
      std::memcpy(row, host.data() + offset, static_cast<std::size_t>(row_bytes(buffer)));
    });
  }
  for (const auto& [index, buffer] : buffers_) buffer.check_guards();
  for (const auto& [index, launch] : launches_) {
    if (launch->part_out.bytes() > 0) launch->part_out.check_guards();
  }
}

void DeviceRank::fill() {
  make_current();
  for (const Placement& placement : program_.inputs) {
    if (program_.rank_of(placement.block) != rank_) continue;
    const Buffer& buffer = program_.buffer_of(placement.block);
    void* const data = shared_.memory[at(placement.block.buffer)];
    const std::int64_t count = program_.bytes(buffer) / element_bytes(buffer.dtype);
    if (buffer.tensor == lse) {  // of scores like these: their number, and half of their variance
      const double keys =
          static_cast<double>(program_.problem.visible_pairs()) /
          static_cast<double>(program_.problem.batch * program_.problem.heads * program_.problem.seqlen_q);
      launch_fill(static_cast<float*>(data), count, static_cast<float>(std::log(std::max(1.0, keys)) + 0.5),
                  lane(0));
    } else {
      fill_normal(data, count, buffer.dtype, program_.problem.seed, buffer.tensor, lane(0));
    }
  }
  lanes_.front()->synchronize("filling the inputs");
}

}  // namespace tilescope
