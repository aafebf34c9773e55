// SPDX-License-Identifier: Apache-2.0
// A distributed program on GPUs of this host: one process, a thread a GPU. Plain C++: builds without CUDA
// have it too, and refuse.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "distributed/execution/enqueue_plan.hpp"
#include "gpu/registry/gpu_kernel.hpp"

namespace tilescope {

class NcclRanks;
class ProcessGroup;
/// Connected ranks, which several programs can use one after the other: to connect takes a second.
/// @throws MachineLacks without NCCL
std::shared_ptr<NcclRanks> connect_nccl(int ranks);
/// The same where each process has one rank. @throws RankFailure naming one that does not come
std::shared_ptr<NcclRanks> connect_nccl(ProcessGroup& processes);

struct DeviceRankOptions {
  Transport transport = Transport::copy_engine;
  std::shared_ptr<NcclRanks> nccl = nullptr;  // of this transport; null: connected anew
  /// Where each process has one rank, and NCCL carries what they exchange; null: this one has all.
  std::shared_ptr<ProcessGroup> processes = nullptr;
  /// One whose backward pass is the fused one; null: of rank_kernels().
  const GpuKernel* kernel = nullptr;
  /// Without a sign of progress; then all ranks end.
  std::chrono::milliseconds time_limit = std::chrono::seconds(60);
  /// Called by each rank before it enqueues each of its operations, for tests of faults.
  std::function<void(int rank, int operation)> before = nullptr;
};

/// What of a program is enqueued: without its other half the results are wrong, but the times say what hides
/// what.
enum class WorkShare : std::uint8_t { everything, launches, link };

/// @throws MachineLacks where this machine has too few GPUs, or some that do not reach each other's memory
void require_devices(int ranks);
/// The device of this process among those of its host. @throws MachineLacks where it has none
int device_of(const ProcessGroup& processes);

class DeviceRanks {
 public:
  /// @throws MachineLacks, or BadInput with the reason of a kernel that refuses one of the launches
  DeviceRanks(const DistributedProgram& program, const DeviceRankOptions& options);
  ~DeviceRanks();
  DeviceRanks(const DeviceRanks&) = delete;
  DeviceRanks& operator=(const DeviceRanks&) = delete;

  /// The program's inputs from, and its outputs to, the whole tensors; of processes, each gets all outputs.
  void upload(const TensorSet& tensors);
  void download(TensorSet& tensors);
  /// Random inputs, made on the devices: the times do not depend on which.
  void fill();

  /// Runs the program so many times, one after the other, and waits. @return what the slowest rank took for
  /// one of the last `timed` times [seconds]
  /// @throws RankFailure naming the rank, once all have ended
  double run(int repetitions = 1, int timed = 0, WorkShare share = WorkShare::everything);

  std::string_view kernel() const;
  /// Memory of the buffers, by rank; 0 of other processes'. [bytes]
  std::vector<std::int64_t> memory_bytes() const;

 private:
  template <typename Visitor>
  void for_each_rank(Visitor&& visit) const;
  struct State;
  std::unique_ptr<State> state_;
};

/// One GPU with a whole problem, and nothing between its launches: what ranks are measured against.
class OneDevice {
 public:
  /// @throws MachineLacks
  OneDevice(const GpuKernel& kernel, const AttentionProblem& problem, Direction direction, int device = 0);
  ~OneDevice();
  OneDevice(const OneDevice&) = delete;
  OneDevice& operator=(const OneDevice&) = delete;

  /// Runs the pass so many times, one after the other, and waits. @return what one of the last `timed` times
  /// took [seconds]
  double run(int repetitions, int timed);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tilescope
