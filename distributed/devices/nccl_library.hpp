// SPDX-License-Identifier: Apache-2.0
// NCCL, where nccl.h was found at build time and libnccl is found when it is asked for: the program starts
// without it.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <memory>
#include <string>

namespace tilescope {

class ProcessGroup;

/// One communicator a device of this process, without NVLink multicast (NCCL_NVLS_ENABLE=0): a program that
/// uses it can put a host's other GPUs out of service.
class NcclRanks {
 public:
  /// On devices 0 ... ranks - 1. @throws MachineLacks without NCCL, DeviceError
  explicit NcclRanks(int ranks);
  /// This process's rank, on that device, among those of the other processes. @throws RankFailure naming a
  /// process that does not come
  NcclRanks(ProcessGroup& processes, int device);
  ~NcclRanks();
  NcclRanks(const NcclRanks&) = delete;
  NcclRanks& operator=(const NcclRanks&) = delete;

  /// Stand round the sends and receives of one group, in the thread of their rank.
  void begin_group();
  void end_group();
  void send(int rank, int to, const void* data, std::size_t bytes, cudaStream_t stream);
  void receive(int rank, int from, void* data, std::size_t bytes, cudaStream_t stream);
  /// @throws DeviceError if something that was enqueued has failed
  void check(int rank);
  /// Ends what is under way on a rank, and its communicator.
  void abort(int rank) noexcept;

 private:
  struct State;
  std::shared_ptr<State> state_;  // a thread that NCCL holds back may outlive this
};

}  // namespace tilescope
