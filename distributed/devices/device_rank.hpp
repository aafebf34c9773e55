// SPDX-License-Identifier: Apache-2.0
// One GPU of a distributed program: its buffers, its streams, and what it enqueues there.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "distributed/devices/device_ranks.hpp"
#include "distributed/devices/nccl_library.hpp"
#include "distributed/devices/streams.hpp"
#include "distributed/devices/sums.hpp"
#include "distributed/execution/accumulation_plan.hpp"
#include "distributed/execution/rank_queues.hpp"
#include "gpu/launch/device.hpp"

namespace tilescope {

class DeviceRank;

inline std::int64_t row_bytes(const Buffer& buffer) { return buffer.cols * element_bytes(buffer.dtype); }

/// What the ranks of a program share.
struct RankedProgram {
  DistributedProgram program;
  AccumulationPlan accumulation;
  std::vector<RankPlan> plans;
  const GpuKernel* kernel = nullptr;
  Transport transport = Transport::copy_engine;
  std::shared_ptr<NcclRanks> nccl;
  std::vector<void*> memory;                       // by buffer, whichever rank's
  std::vector<std::unique_ptr<DeviceRank>> ranks;  // null: of another process
  std::vector<int> devices;                        // of this process, by rank
};

class DeviceRank final : public RankQueue {
 public:
  /// Allocates on the device of the rank, which is made current.
  DeviceRank(int rank, RankedProgram& shared);
  ~DeviceRank() override;

  void upload(const TensorSet& tensors);
  void download(TensorSet& tensors);
  void fill();
  std::int64_t memory_bytes() const;

  /// What the next run enqueues, and the repetition from which on time is taken.
  void set_run(WorkShare share, int repetitions, int timed_from);
  /// From the first timed repetition to the end of the last.
  double elapsed_seconds() const;

  void begin(int repetition) override;
  void wait_for(int stream, const OperationEnd& end) override;
  void enqueue(const Enqueued& entry) override;
  void note_end(const Enqueued& entry) override;
  void end(int repetition) override;
  bool finished() override;
  void abandon() noexcept override;

 private:
  /// A launch made ready: its passes, and the memory of its parts.
  struct Launch {
    std::vector<TileProgram> programs;
    KernelArguments arguments;  // tensors alone; the rest is the program's
    OutputPart part;
    DeviceBuffer part_out, part_lse;
  };

  /// Memory that one launch after the other uses.
  struct Scratch {
    DeviceBuffer out, lse, dk, dv, counter;
  };

  void prepare(int operation, const Attend& attend, int compute_stream);
  void place_outputs(const Attend& attend, const LaunchPlan& plan, int compute_stream, Launch& launch);
  void place_gradients(const Attend& attend, const LaunchPlan& plan, int compute_stream, Launch& launch);
  DeviceTensor tensor(int buffer) const;
  /// From a row and head of it on.
  DeviceTensor tensor(const BufferBlock& block) const;
  DeviceTensor rows_from(int buffer, std::int64_t row) const;
  static DeviceTensor packed(const DeviceBuffer& memory, std::int64_t heads, std::int64_t rows,
                             std::int64_t cols);
  PassRows extent(const BufferBlock& block) const;
  /// The largest extent of that buffer in one launch of a compute stream.
  std::int64_t most_bytes(TensorName name, int compute_stream) const;

  void clear();
  /// What follows is enqueued on `compute_stream`.
  void attend(int operation, const Attend& attend, int compute_stream);
  /// Merges parts into a target whose LSE is in the buffer `lse_buffer`.
  void merge(int lse_buffer, const DeviceTensor& target, const std::vector<const Launch*>& parts,
             bool fp32_target, int compute_stream);
  void move(int operation, const Move& move, int compute_stream);
  void round(int operation, const Move& move, int compute_stream);
  void add(int operation, const Move& move, int compute_stream);
  /// Calls visit(from, to, bytes of a row, rows, bytes from row to row of either) for what lies evenly.
  template <typename Visitor>
  void for_each_pitched(const Move& move, Visitor&& visit) const;
  void copy(const Move& move, int stream);
  void exchange(const Enqueued& entry);
  void make_current() const;
  cudaStream_t stream(int index) const { return streams_[static_cast<std::size_t>(index)]->get(); }

  int rank_, device_;
  RankedProgram& shared_;
  const DistributedProgram& program_;
  std::vector<std::unique_ptr<RankStream>> streams_;
  std::map<int, DeviceBuffer> buffers_;              // by the program's number
  std::map<int, std::unique_ptr<Launch>> launches_;  // by operation
  std::vector<Scratch> scratch_;                     // by compute stream
  std::map<int, DeviceBuffer> deltas_;               // by buffer of lse
  std::map<int, std::shared_ptr<Event>> ends_;       // by operation
  Event started_;
  std::vector<std::unique_ptr<Event>> stream_ends_;
  std::array<Event, 2> repetition_ends_;  // of even and odd repetitions
  Event time_begin_{true}, time_end_{true};
  WorkShare share_ = WorkShare::everything;
  int repetitions_ = 1, timed_from_ = 0;
};

}  // namespace tilescope
