// SPDX-License-Identifier: Apache-2.0
// GPU kernels on memory of somebody else's: no allocation, no copy, no waiting, on a stream that is given.
#pragma once

#include <array>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "gpu/registry/gpu_kernel.hpp"
#include "python/native/arrays.hpp"

namespace tilescope::python {

/// The use with its choices made: without a kernel the fastest that computes a direction of the problem, on a
/// device of that compute capability (90: sm_90) or, if it is 0, on the CPU; where none does the fastest,
/// whose refusal then says why. The order "deterministic" becomes one of the kernel's that sums alike each
/// time.
KernelUse choose_kernel(const AttentionProblem& problem, KernelUse use, int compute_capability,
                        bool backward);

/// A tensor that the passes of a direction need beside inputs and outputs: (B, H, N, D), contiguous, and its
/// element type.
using Workspace = std::tuple<std::array<std::int64_t, 4>, std::string>;
/// A tensor of the caller's: its name, and its strides [elements] of batch, head and row; columns are
/// contiguous.
using GivenTensor = std::tuple<std::string, std::array<std::int64_t, 3>>;

/// The passes of one direction on tensors that lie in one way, made once and launched many times: what is
/// left for a launch is to put in addresses.
class DeviceLaunch {
 public:
  /// @param page_table_row  entries of a batch entry, whole sectors, where the problem has pages: k and v are
  /// pools then
  /// @throws BadInput where the kernel refuses the problem, a tensor is missing or rows lie more than
  /// kMaxRowStride apart, MachineLacks where this machine cannot run it
  DeviceLaunch(const AttentionProblem& problem, const KernelUse& use, bool backward,
               const std::vector<GivenTensor>& given, std::int64_t page_table_row = 0);

  const std::vector<Workspace>& workspaces() const { return workspaces_; }
  /// What passes that find their tiles in tables (VisitTables) read, three tables a pass: bytes that the
  /// caller puts into the device's memory. Long ones: they are held until they are taken.
  std::vector<std::string> take_tables() { return std::exchange(tables_, {}); }
  /// Enqueues the passes on `stream` of the current context.
  /// @param addresses  of the given tensors, then of the workspaces, in their orders; then, of ints, the page
  /// table of a problem with pages, whose entries are pages of the pools, its key lengths if it has some, and
  /// of floats those descales of q, k and v that it is given; last the tables of take_tables()
  /// @param counter  of two ints that are 0, or 0: those of the stream, which no graph may capture
  /// @param seed  of dropout
  /// @throws DeviceError where a launch fails
  void enqueue(std::uintptr_t stream, const std::vector<std::uintptr_t>& addresses, std::uintptr_t counter,
               std::uint64_t seed) const;

 private:
  const GpuKernel* kernel_;
  double dropout_;
  std::vector<TileProgram> programs_;
  std::vector<KernelArguments> arguments_;  // of each program, but for addresses
  std::vector<TensorName> names_;           // whose addresses enqueue() takes
  std::vector<Workspace> workspaces_;
  std::vector<std::string> tables_;
  std::size_t num_tables_ = 0;
  bool has_pages_, has_lengths_;
  std::vector<TensorName> descaled_;  // whose descales are given
  int heads_of_descale_ = 1;          // query heads that share a number
};

}  // namespace tilescope::python
