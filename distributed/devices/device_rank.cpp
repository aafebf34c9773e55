// SPDX-License-Identifier: Apache-2.0
#include "distributed/devices/device_rank.hpp"

#include <limits>

namespace tilescope {

using enum TensorName;

DeviceRank::DeviceRank(int rank, RankedProgram& shared)
    : rank_(rank),
      device_((check_cuda(cudaSetDevice(shared.devices[at(rank)]), "choosing a device"),
               shared.devices[at(rank)])),
      shared_(shared),
      program_(shared.program) {
  const RankPlan& plan = shared_.plans[at(rank_)];
  for (int i = 0; i < plan.streams; ++i) {
    // Copies first, then compute streams in their order: what is ready of a later one fills what earlier ones
    // leave.
    const int place = i < plan.compute_streams ? 1 + i : 0;
    streams_.push_back(std::make_unique<RankStream>(place));
    stream_ends_.push_back(std::make_unique<Event>());
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
  for (int compute_stream = 0; compute_stream < plan.compute_streams; ++compute_stream) {
    Scratch& scratch = scratch_.emplace_back();
    scratch.counter = DeviceBuffer("work counter", sizeof(WorkCounter));
    scratch.counter.zero(stream(0));
  }
  streams_.front()->synchronize("clearing the work counters");
  for (int i = 0; i < static_cast<int>(program_.operations.size()); ++i) {
    const Operation& operation = program_.operations[at(i)];
    const Attend* const attend = std::get_if<Attend>(&operation.what);
    if (attend != nullptr && attend->rank == rank_) prepare(i, *attend, operation.compute_stream);
  }
}

DeviceRank::~DeviceRank() { cudaSetDevice(device_); }

void DeviceRank::make_current() const { check_cuda(cudaSetDevice(device_), "choosing a device"); }

DeviceTensor DeviceRank::packed(const DeviceBuffer& memory, std::int64_t heads, std::int64_t rows,
                                std::int64_t cols) {
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
  for (const Scratch& scratch : scratch_) {
    for (const DeviceBuffer* memory : {&scratch.out, &scratch.lse, &scratch.dk, &scratch.dv})
      bytes += memory->bytes();
  }
  for (const auto& [index, delta] : deltas_) bytes += delta.bytes();
  return bytes;
}

void DeviceRank::clear() {
  for (const int index : shared_.accumulation.cleared) {
    const auto found = buffers_.find(index);
    if (found != buffers_.end()) found->second.zero(stream(0));
  }
  for (const int index : shared_.accumulation.emptied) {
    const auto found = buffers_.find(index);
    if (found == buffers_.end()) continue;
    launch_fill(static_cast<float*>(found->second.data()), found->second.bytes() / 4,
                -std::numeric_limits<float>::infinity(), stream(0));
  }
}

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
      if (other == nullptr) continue;  // NCCL's two sides meet
      const Event& end = other->repetition_ends_[at((repetition - 1) % 2)];
      check_cuda(cudaStreamWaitEvent(stream(0), end.get()), "waiting for the repetition before");
    }
  }
  if (repetition == timed_from_) check_cuda(cudaEventRecord(time_begin_.get(), stream(0)), "taking the time");
  if (share_ != WorkShare::link) clear();
  check_cuda(cudaEventRecord(started_.get(), stream(0)), "noting the beginning");
  for (std::size_t i = 1; i < streams_.size(); ++i)
    check_cuda(cudaStreamWaitEvent(streams_[i]->get(), started_.get()), "waiting for the beginning");
}

void DeviceRank::wait_for(int stream_index, const OperationEnd& end) {
  const Event& event = *shared_.ranks[at(end.rank)]->ends_.at(end.operation);
  check_cuda(cudaStreamWaitEvent(stream(stream_index), event.get()), "waiting for an operation");
}

void DeviceRank::enqueue(const Enqueued& entry) {
  const bool link = entry.stream >= shared_.plans[at(rank_)].compute_streams;
  if (share_ == (link ? WorkShare::launches : WorkShare::link)) return;
  if (link && shared_.transport == Transport::nccl) return exchange(entry);
  const int index = entry.operations.front();
  const Operation& operation = program_.operations[at(index)];
  if (const Attend* const launch = std::get_if<Attend>(&operation.what))
    return attend(index, *launch, entry.stream);
  const Move& what = std::get<Move>(operation.what);
  link ? copy(what, entry.stream) : move(index, what, entry.stream);
}

void DeviceRank::note_end(const Enqueued& entry) {
  check_cuda(cudaEventRecord(ends_.at(entry.operations.front())->get(), stream(entry.stream)),
             "noting an end");
}

void DeviceRank::end(int repetition) {
  for (std::size_t i = 1; i < streams_.size(); ++i) {
    check_cuda(cudaEventRecord(stream_ends_[i]->get(), streams_[i]->get()), "noting the end of a stream");
    check_cuda(cudaStreamWaitEvent(stream(0), stream_ends_[i]->get()), "waiting for a stream");
  }
  check_cuda(cudaEventRecord(repetition_ends_[at(repetition % 2)].get(), stream(0)), "noting the end");
  if (repetition + 1 == repetitions_)
    check_cuda(cudaEventRecord(time_end_.get(), stream(0)), "taking the time");
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

}  // namespace tilescope
