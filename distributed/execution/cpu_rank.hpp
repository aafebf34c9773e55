// SPDX-License-Identifier: Apache-2.0
// One rank on this CPU: its buffers, and what its operations do with them.
#pragma once

#include <cstddef>
#include <vector>

#include "cpu_ref/kernels/kernel.hpp"
#include "distributed/schedule/distributed_program.hpp"

namespace tilescope {

/// cpu:flash2, whose backward pass takes the merged out and lse.
const Kernel& default_rank_kernel();

class CpuRank {
 public:
  /// Allocates the buffers: sums hold 0, the lse of state -inf, anything else NaN.
  /// @param tile  of every launch; none: the kernel's own
  CpuRank(int rank, const DistributedProgram& program, const Kernel& kernel, std::optional<TileShape> tile);

  void read_inputs(const TensorSet& tensors);
  void write_outputs(TensorSet& tensors) const;

  /// A launch, an addition, a rounding, or a copy inside the rank.
  void run(const Operation& operation);
  /// The rows of a block, one after the other.
  std::vector<std::byte> pack(const BufferBlock& block) const;
  void unpack(const BufferBlock& block, const std::vector<std::byte>& message);

 private:
  Tensor& memory(int buffer) { return memory_[static_cast<std::size_t>(buffer)]; }
  const Tensor& memory(int buffer) const { return memory_[static_cast<std::size_t>(buffer)]; }
  template <typename Own, typename Whole, typename Visitor>
  void for_each_row(const Placement& placement, Own& own, Whole& whole, Visitor&& visit) const;
  template <typename Owner, typename Visitor>
  void for_each_run(Owner& owner, const BufferBlock& block, Visitor&& visit) const;
  template <typename Visitor>
  void for_each_part_row(const Attend& attend, Tensor& part, TensorName name, Visitor&& visit);
  void move_here(const Move& move);
  void attend(const Attend& attend);
  void merge(const Attend& attend, TensorSet& part);
  void add(const Attend& attend, Tensor& gradient, TensorName sums);

  int rank_;
  const DistributedProgram& program_;
  const Kernel& kernel_;
  std::optional<TileShape> tile_;
  std::vector<Tensor> memory_;  // by buffer; those of other ranks stay empty
};

/// Merges the normalised output `part` and its log-sum-exp into one row of running sums, in fp32: attention
/// over two sets of keys from attention over each. Both weights are exponentials of numbers of at most 0, so
/// that nothing overflows; -inf stands for no keys.
void merge_partial(float* out, float* lse, const float* part, float part_lse, std::int64_t head_dim);

}  // namespace tilescope
