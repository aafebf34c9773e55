// SPDX-License-Identifier: Apache-2.0
// What a rank copies: blocks to other ranks, by the copy engine or NCCL, and inputs and results from and to
// the host.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>

#include "distributed/devices/device_rank.hpp"
#include "gpu/launch/random_fill.hpp"

namespace tilescope {

using enum TensorName;

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

void DeviceRank::copy(const Move& move, int stream_index) {
  for_each_pitched(move, [&](const void* from, void* to, std::int64_t width, std::int64_t height,
                             std::int64_t from_pitch, std::int64_t to_pitch) {
    const bool whole = from_pitch == width && to_pitch == width;
    const auto bytes = static_cast<std::size_t>(width), rows = static_cast<std::size_t>(height);
    check_cuda(whole ? cudaMemcpyAsync(to, from, bytes * rows, cudaMemcpyDefault, stream(stream_index))
                     : cudaMemcpy2DAsync(to, static_cast<std::size_t>(to_pitch), from,
                                         static_cast<std::size_t>(from_pitch), bytes, rows, cudaMemcpyDefault,
                                         stream(stream_index)),
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
                    stream(entry.stream));
        if (receiver == rank_)
          nccl.receive(rank_, sender, to + i * to_pitch, static_cast<std::size_t>(bytes),
                       stream(entry.stream));
      }
    });
  }
  nccl.end_group();
}

namespace {

/// Calls visit(bytes of the whole tensor's row, offset in the buffer) for each row of a placement.
template <typename Whole, typename Visitor>
void for_each_row(const DistributedProgram& program, const Placement& placement, Whole& whole,
                  Visitor&& visit) {
  const Buffer& buffer = program.buffer_of(placement.block);
  const IndexRange &heads = placement.block.heads, &rows = placement.block.rows;
  for (std::int64_t b = 0; b < program.problem.batch; ++b) {
    for (std::int64_t h = 0; h < heads.count(); ++h) {
      for (std::int64_t row = 0; row < rows.count(); ++row) {
        visit(whole.row(b, placement.first_head + h, placement.rows.token(row)),
              ((b * buffer.heads + heads.begin + h) * buffer.rows + rows.begin + row) * row_bytes(buffer));
      }
    }
  }
}

}  // namespace

void DeviceRank::upload(const TensorSet& tensors) {
  make_current();
  // All bits set are no number: rows that have not come yet show, if something reads them.
  std::map<int, std::vector<std::byte>> images;
  for (const Placement& placement : program_.inputs) {
    if (program_.rank_of(placement.block) != rank_) continue;
    const Buffer& buffer = program_.buffer_of(placement.block);
    std::vector<std::byte>& host = images[placement.block.buffer];
    host.resize(static_cast<std::size_t>(program_.bytes(buffer)), std::byte{0xff});
    for_each_row(program_, placement, tensors[buffer.tensor], [&](const void* row, std::int64_t offset) {
      std::memcpy(host.data() + offset, row, static_cast<std::size_t>(row_bytes(buffer)));
    });
  }
  for (const auto& [index, host] : images) {
    check_cuda(cudaMemcpy(shared_.memory[at(index)], host.data(), host.size(), cudaMemcpyHostToDevice),
               "uploading " + std::string(to_string(program_.buffers[at(index)].tensor)));
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
                  stream(0));
    } else {
      fill_normal(data, count, buffer.dtype, program_.problem.seed, buffer.tensor, stream(0));
    }
  }
  streams_.front()->synchronize("filling the inputs");
}

}  // namespace tilescope
