// SPDX-License-Identifier: Apache-2.0
// The passes of one direction of a GPU kernel on random inputs in device memory, to be launched one by one
// and any number of times, for those who count or time them. Plain C++: builds without CUDA have it too, and
// refuse.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "cpu_ref/launch/step_times.hpp"
#include "gpu/registry/gpu_kernel.hpp"

namespace tilescope {

class PassRunner {
 public:
  /// Fills the inputs with normal numbers that depend on the problem's seed alone. Those of a backward pass
  /// that a forward pass computes are computed.
  /// @param placement  0, 1, ...: of the tensors' pages of 2 MiB at random
  /// places, other ones in each placement; none: contiguous memory
  /// @throws BadInput on a refused problem, MachineLacks without a device or enough device memory,
  /// DeviceError
  PassRunner(const GpuKernel& kernel, const AttentionProblem& problem, Direction direction,
             const ProgramOptions& options, std::optional<std::uint64_t> placement = std::nullopt);
  ~PassRunner();
  PassRunner(const PassRunner&) = delete;
  PassRunner& operator=(const PassRunner&) = delete;

  /// In launch order. Each finds what the passes before it left when they were launched last.
  const std::vector<TileProgram>& programs() const;
  /// Device memory that the direction's tensors took, as the driver counts it. [bytes]
  std::int64_t device_bytes() const;
  /// Enqueues pass `index`.
  void launch(std::size_t index, CUstream_st* stream);
  /// Enqueues what makes again what pass `index` changed of what it finds, so that it does the same when it
  /// is launched once more: the pass that clears its flags (DqStart). Others find the same each time.
  void prepare(std::size_t index, CUstream_st* stream);
  /// Whether the kernels of this build can note when their CTAs begin their steps, which changes their loops.
  static bool has_step_clock();
  /// One head of a tensor, (1, 1, rows, cols), as launches left it; an LSE from what is kept in its place.
  Tensor head(TensorName name, std::int64_t batch_head);
  /// Runs pass `index` once and notes when its CTAs began their steps, at most `most_notes` of each CTA.
  /// @throws MachineLacks where the kernels were compiled without a step clock
  StepTimes time_steps(std::size_t index, int most_notes);
  /// Runs pass `index` once. @returns of each SM how fast its clock ran meanwhile [cycles a nanosecond]
  std::vector<double> clock_rates(std::size_t index);
  /// Runs pass `index` once. @returns of each SM, by its id, how long it had CTAs of the pass [cycles of its
  /// clock]; nothing where the pass ends within a millisecond
  std::map<int, double> busy_cycles(std::size_t index);
  /// Waits for everything. @throws DeviceError if a kernel failed or wrote outside its tensors
  void check();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tilescope
