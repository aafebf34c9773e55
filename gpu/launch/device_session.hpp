// SPDX-License-Identifier: Apache-2.0
// The tensors of one problem on the device, and the passes of one direction, ready to be launched any number
// of times. verify uploads, launches once and downloads; a timer or profiler fills the inputs and launches
// single passes.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <vector>

#include "cpu_ref/launch/step_times.hpp"
#include "cpu_ref/schedule/kv_pages.hpp"
#include "gpu/launch/device.hpp"
#include "gpu/launch/device_tables.hpp"
#include "gpu/registry/gpu_kernel.hpp"

namespace tilescope {

/// The order of a tensor's dimensions in device memory.
enum class TensorLayout : std::uint8_t {
  bhnd,  // (batch, heads, rows, cols)
  bnhd,  // (batch, rows, heads, cols): what a projection layer writes
};

class DeviceSession {
 public:
  /// Allocates every tensor that the passes touch, poisoned with NaN.
  /// @param placement  of the tensors' pages at random (PagePool); none: contiguous memory
  /// @param pages  where keys and values lie, of a problem with pages; null: as draw_kv_pages() has them
  /// @throws BadInput on a refused problem, MachineLacks naming the bytes needed when they are not free.
  DeviceSession(const Kernel& row, PassLauncher launch, const AttentionProblem& problem, Direction direction,
                const ProgramOptions& options, TensorLayout layout = TensorLayout::bhnd,
                std::optional<std::uint64_t> placement = std::nullopt, const KvPageTable* pages = nullptr);

  const std::vector<TileProgram>& programs() const { return programs_; }
  bool holds(TensorName name) const { return buffers_.contains(name); }
  DeviceBuffer& buffer(TensorName name) { return buffers_.at(name); }
  /// Of what it holds: K and V of a problem with pages have one batch entry a page of the pool.
  TensorExtent extent_of(TensorName name) const;
  std::int64_t bytes_of(TensorName name) const;
  cudaStream_t stream() const { return stream_.get(); }
  /// Device memory that the tensors took, as the driver counts it: whole pages, guards included.
  std::int64_t device_bytes() const { return device_bytes_; }

  /// Copies a (B, H, N, D) host tensor of the same extent to the device, into the session's layout. Of a
  /// problem with pages, K and V are pools of pages.
  void upload(TensorName name, const Tensor& source);
  /// Copies what the passes read of `names`; of a problem with pages, the pools of k and v.
  void upload_inputs(const TensorSet& tensors, std::span<const TensorName> names);
  /// Copies the descales of all inputs, in place of those that the problem makes.
  void upload_descales(const TensorSet& tensors);
  /// Copies a tensor back into C order.
  void download(TensorName name, Tensor& destination);

  /// One head of a tensor, (1, 1, rows, cols), when everything enqueued is done.
  Tensor head(TensorName name, std::int64_t batch_head);

  /// Enqueues pass `index` of programs() on the session's own stream, or on another.
  void launch(std::size_t index) { launch(index, stream()); }
  void launch(std::size_t index, cudaStream_t stream);
  /// Waits for everything enqueued. @throws DeviceError if it failed.
  void synchronize();
  /// @throws DeviceError if a kernel wrote outside a buffer.
  void check_guards() const;
  /// Runs pass `index` and logs the tiles that it visits, with their states, in issue order.
  PassLog observe(std::size_t index);
  static bool has_step_clock();
  /// Runs pass `index` once and notes when its CTAs began their steps, at most `most_notes` of each CTA.
  /// @throws MachineLacks where the kernels were compiled without a step clock
  StepTimes time_steps(std::size_t index, int most_notes);
  /// Runs pass `index` once. @returns of each SM how fast its clock ran meanwhile [cycles a nanosecond]
  std::vector<double> clock_rates(std::size_t index);
  /// Runs pass `index` once. @returns of each SM, by its id, how long it had CTAs of the pass [cycles of its
  /// clock]; nothing where the pass ends within a millisecond
  std::map<int, double> busy_cycles(std::size_t index);

 private:
  KernelArguments arguments(std::size_t index) const;
  DeviceTensor device_tensor(TensorName name) const;
  DeviceDescales device_descales(TensorName of) const;
  void download_head(TensorName name, std::int64_t batch, std::int64_t head, void* destination);

  std::string kernel_name_;
  PassLauncher launch_;
  bool maxima_lag_;  // Rescaling::conditional: an observed forward pass notes what P is relative to
  AttentionProblem problem_;
  TensorLayout layout_;
  std::vector<TileProgram> programs_;
  Stream stream_;
  std::map<TensorName, DeviceBuffer> buffers_;
  std::int64_t device_bytes_ = 0;
  DeviceBuffer counter_;      // of persistent CTAs
  DeviceBuffer key_lengths_;  // of the batch entries, where there is padding
  KvPageTable kv_pages_;      // where keys and values lie in pages
  DeviceBuffer kv_page_entries_;
  std::map<TensorName, DeviceBuffer> descales_;      // of q, k and v, where they are not 1
  std::map<std::size_t, DeviceVisitTables> visits_;  // of the passes that walk them
};

}  // namespace tilescope
