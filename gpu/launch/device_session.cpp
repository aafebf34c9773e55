// SPDX-License-Identifier: Apache-2.0
#include "gpu/launch/device_session.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <numeric>
#include <set>

#include "common/log.hpp"
#include "cpu_ref/launch/launch_text.hpp"
#include "cpu_ref/numeric/descales.hpp"
#include "cpu_ref/schedule/kv_page_rows.hpp"
#include "cpu_ref/schedule/sum_slots.hpp"
#include "gpu/launch/pass_arguments.hpp"
#include "gpu/launch/row_stride.hpp"

namespace tilescope {
namespace {

struct DeviceMemory {
  std::int64_t free_bytes, total_bytes;
};
DeviceMemory device_memory() {
  std::size_t free_bytes = 0, total_bytes = 0;
  check_cuda(cudaMemGetInfo(&free_bytes, &total_bytes), "asking for free device memory");
  return {static_cast<std::int64_t>(free_bytes), static_cast<std::int64_t>(total_bytes)};
}

/// @return what the driver says is free
std::int64_t check_free_memory(const AttentionProblem& problem, const std::vector<std::int64_t>& footprints,
                               const std::string& kernel) {
  const std::int64_t needed = std::accumulate(footprints.begin(), footprints.end(), std::int64_t{0});
  const auto [free_bytes, total_bytes] = device_memory();
  if (needed <= free_bytes) return free_bytes;
  throw MachineLacks(kernel + " needs " + std::to_string(needed >> 20) + " MiB of device memory for " +
                     describe(problem) + ", " + std::to_string(free_bytes >> 20) + " of " +
                     std::to_string(total_bytes >> 20) +
                     " MiB are free; a smaller batch or sequence, or a kernel without N x N matrices, would "
                     "fit");
}

/// @throws BadInput if the row refuses the problem, MachineLacks if the device cannot run the passes
void require_taken(const Kernel& row, const AttentionProblem& problem, Direction direction,
                   const ProgramOptions& options, TensorLayout layout) {
  const auto sentence = [&](const std::string& reason, const std::optional<Chip>& chip) {
    return refusal_sentence(row, reason, problem, direction, chip);
  };
  if (const auto reason = row.refusal(problem, direction, options)) {
    throw BadInput(sentence(*reason, std::nullopt));
  }
  if (layout == TensorLayout::bnhd && !row.can.of(direction).has(Feature::bnhd_rows)) {
    throw BadInput(std::string(row.name) + " does not take tensors laid out (batch, rows, heads, head_dim)");
  }
  if (layout == TensorLayout::bnhd && !heads_side_by_side_fit(problem)) {
    throw BadInput("heads * head_dim",
                   std::to_string(problem.heads) + " * " + std::to_string(problem.head_dim),
                   "the product must not exceed " + std::to_string(kMaxRowStride) +
                       " where tensors are laid out (batch, rows, heads, head_dim)");
  }
  if (const auto lack = build_lack(row, problem, direction, options)) {
    throw MachineLacks(std::string(row.name) + " " + *lack);
  }
  const Chip chip = current_device().chip;
  if (const auto lack = row.chip_lack(chip, problem, direction, options)) {
    throw MachineLacks(sentence(*lack, chip));
  }
}

/// From one row of a tensor to the next. Rows of N x N matrices, which are nobody's but the kernels', begin
/// at sectors, so that tiles of them are whole sectors at any length.
std::int64_t elements_of_row(const TensorExtent& extent) {
  if (extent.indexing != TileIndexing::mn) return extent.cols;
  return rounded_up(extent.cols * extent.element_bytes, kSectorBytes) / extent.element_bytes;
}

/// Of one head of a tensor. Heads of FlashAttention-1's m and l, which are the kernels' own too, begin at
/// sectors, so that several rows can be loaded at once.
std::int64_t elements_of_head(TensorName name, const TensorExtent& extent) {
  constexpr std::int64_t kRowsOfSector = 8;
  const bool own = name == TensorName::row_max || name == TensorName::row_sum;
  return own ? rounded_up(extent.rows, kRowsOfSector) : extent.rows * elements_of_row(extent);
}

}  // namespace

DeviceSession::DeviceSession(const Kernel& row, PassLauncher launch, const AttentionProblem& problem,
                             Direction direction, const ProgramOptions& options, TensorLayout layout,
                             std::optional<std::uint64_t> placement, const KvPageTable* pages)
    : kernel_name_(row.name),
      launch_(launch),
      maxima_lag_(row.arithmetic.rescaling == Rescaling::conditional),
      problem_(problem),
      layout_(layout) {
  require_taken(row, problem, direction, options, layout);
  programs_ = row.programs(direction, problem, options);
  if (problem.page_size > 0) {
    kv_pages_ = in_whole_sectors(pages ? *pages : draw_kv_pages(problem));
    kv_page_entries_ = uploaded("page table", kv_pages_.entries, stream());
  }
  const std::set<TensorName> names = tensors_of(programs_);
  std::vector<std::int64_t> footprints;
  for (TensorName name : names) footprints.push_back(DeviceBuffer::footprint_bytes(bytes_of(name)));
  const std::int64_t free_before = check_free_memory(problem, footprints, kernel_name_);
  std::optional<PagePool> pool;
  if (placement) pool.emplace(footprints, *placement);
  for (TensorName name : names) {
    buffers_.emplace(name,
                     DeviceBuffer(std::string(to_string(name)), bytes_of(name), pool ? &*pool : nullptr));
  }
  pool.reset();  // the pages that no tensor took are free again
  device_bytes_ = free_before - device_memory().free_bytes;
  counter_ = DeviceBuffer("work counter", sizeof(WorkCounter));
  counter_.zero(stream());
  for (const TensorName name : {TensorName::q, TensorName::k, TensorName::v}) {
    if (descale_of(problem, name) == Descale{}) continue;
    descales_.emplace(name, DeviceBuffer("descales of " + std::string(to_string(name)),
                                         Tensor(descale_shape(problem, name), ElementType::fp32).bytes()));
  }
  for (std::size_t pass = 0; pass < programs_.size(); ++pass) {
    if (programs_[pass].bit_reads > 0) visits_.emplace(pass, DeviceVisitTables(programs_[pass], stream()));
  }
  if (problem.key_lengths.empty()) return;
  const std::vector<int> lengths(problem.key_lengths.begin(), problem.key_lengths.end());
  key_lengths_ = uploaded("key lengths", lengths, stream());
}

std::int64_t DeviceSession::bytes_of(TensorName name) const {
  const TensorExtent extent = extent_of(name);
  return extent.batch * extent.heads * extent.splits * elements_of_head(name, extent) * extent.element_bytes;
}

TensorExtent DeviceSession::extent_of(TensorName name) const {
  if (lies_in_pages(problem_, name)) return pool_extent(problem_, name, kv_pages_);
  return extent_in(programs_, name);
}

DeviceTensor DeviceSession::device_tensor(TensorName name) const {
  const auto found = buffers_.find(name);
  if (found == buffers_.end()) return {};
  const TensorExtent extent = extent_of(name);
  const std::int64_t per_head = elements_of_head(name, extent), per_batch = extent.heads * per_head;
  // Only the (B, H, N, D) operands of a model come in two layouts; LSE, delta and N x N matrices do not.
  const bool by_row = layout_ == TensorLayout::bnhd &&
                      (extent.cols == problem_.head_dim || extent.cols == problem_.value_dim()) &&
                      extent.indexing != TileIndexing::mn;
  if (by_row) return {found->second.data(), per_batch, extent.cols, extent.heads * extent.cols};
  return {found->second.data(), per_batch, per_head, elements_of_row(extent)};
}

DeviceDescales DeviceSession::device_descales(TensorName of) const {
  const auto found = descales_.find(of);
  if (found == descales_.end()) return {};
  const Shape shape = descale_shape(problem_, of);
  return {static_cast<const float*>(found->second.data()), static_cast<int>(problem_.heads / shape.heads),
          static_cast<int>(shape.cols)};
}

KernelArguments DeviceSession::arguments(std::size_t index) const {
  KernelArguments arguments = pass_arguments(programs_[index]);
  for (int i = 0; i < kNumRowTensors; ++i) {
    arguments.tensors[static_cast<std::size_t>(i)] = device_tensor(static_cast<TensorName>(i));
  }
  arguments.counter = static_cast<WorkCounter*>(counter_.data());
  arguments.descale_q = device_descales(TensorName::q);
  arguments.descale_k = device_descales(TensorName::k);
  arguments.descale_v = device_descales(TensorName::v);
  if (problem_.page_size > 0) {
    arguments.kv_pages = {static_cast<const int*>(kv_page_entries_.data()), static_cast<int>(kv_pages_.row),
                          std::countr_zero(static_cast<std::uint64_t>(kv_pages_.page_size))};
  }
  if (!problem_.key_lengths.empty()) arguments.key_lengths = static_cast<const int*>(key_lengths_.data());
  if (const auto visits = visits_.find(index); visits != visits_.end()) {
    arguments.visits = visits->second.visits();
  }
  const auto numbers = [this](TensorName name) {
    return holds(name) ? static_cast<float*>(buffers_.at(name).data()) : nullptr;
  };
  arguments.score_mods.alibi_slopes = numbers(TensorName::alibi_slopes);
  arguments.score_mods.sinks = numbers(TensorName::sink);
  arguments.score_mods.dsinks = numbers(TensorName::dsink);
  return arguments;
}

void DeviceSession::upload(TensorName name, const Tensor& source) {
  const DeviceTensor target = device_tensor(name);
  const std::size_t element = static_cast<std::size_t>(element_bytes(source.dtype()));
  const std::size_t row_bytes = static_cast<std::size_t>(source.shape().cols) * element;
  if (extent_of(name).indexing == TileIndexing::mn) buffers_.at(name).zero(stream());  // what fills sectors
  for (std::int64_t batch = 0; batch < source.shape().batch; ++batch) {
    for (std::int64_t head = 0; head < source.shape().heads; ++head) {
      const std::int64_t offset = batch * target.batch_stride + head * target.head_stride;
      check_cuda(
          cudaMemcpy2DAsync(static_cast<char*>(target.data) + offset * static_cast<int>(element),
                            static_cast<std::size_t>(target.row_stride) * element, source.row(batch, head, 0),
                            row_bytes, row_bytes, static_cast<std::size_t>(source.shape().rows),
                            cudaMemcpyHostToDevice, stream_.get()),
          "uploading " + std::string(to_string(name)));
    }
  }
}

void DeviceSession::upload_inputs(const TensorSet& tensors, std::span<const TensorName> names) {
  for (const TensorName name : names) {
    if (holds(name)) upload(name, lies_in_pages(problem_, name) ? tensors.pool(name) : tensors[name]);
  }
}

void DeviceSession::upload_descales(const TensorSet& tensors) {
  for (auto& [name, buffer] : descales_) {
    const Tensor& source = tensors.descales(name);
    if (source.shape() != descale_shape(problem_, name)) {
      throw BadInput("the descales of " + std::string(to_string(name)) + " must be there");
    }
    check_cuda(cudaMemcpyAsync(buffer.data(), source.data(), static_cast<std::size_t>(source.bytes()),
                               cudaMemcpyHostToDevice, stream()),
               "uploading descales");
  }
}

void DeviceSession::download_head(TensorName name, std::int64_t batch, std::int64_t head, void* destination) {
  const DeviceTensor source = device_tensor(name);
  const TensorExtent extent = extent_of(name);
  const std::size_t row_bytes = static_cast<std::size_t>(extent.cols * extent.element_bytes);
  const std::int64_t offset = batch * source.batch_stride + head * source.head_stride;
  check_cuda(cudaMemcpy2DAsync(destination, row_bytes,
                               static_cast<char*>(source.data) + offset * extent.element_bytes,
                               static_cast<std::size_t>(source.row_stride * extent.element_bytes), row_bytes,
                               static_cast<std::size_t>(extent.rows), cudaMemcpyDeviceToHost, stream_.get()),
             "downloading " + std::string(to_string(name)));
}

void DeviceSession::download(TensorName name, Tensor& destination) {
  for (std::int64_t batch = 0; batch < destination.shape().batch; ++batch) {
    for (std::int64_t head = 0; head < destination.shape().heads; ++head) {
      download_head(name, batch, head, destination.row(batch, head, 0));
    }
  }
}

Tensor DeviceSession::head(TensorName name, std::int64_t batch_head) {
  const TensorExtent extent = tensor_extent(problem_, name);
  Tensor head({1, 1, extent.rows, extent.cols}, extent.dtype);
  const std::int64_t batch = batch_head / extent.heads;
  if (lies_in_pages(problem_, name)) {
    Tensor page({1, 1, kv_pages_.page_size, extent.cols}, extent.dtype);
    head.poison();
    for (std::int64_t key = 0; key < problem_.keys_of(batch); key += kv_pages_.page_size) {
      download_head(name, kv_pages_.page_of(batch, key), batch_head % extent.heads, page.data());
      synchronize();
      const std::int64_t rows = std::min(kv_pages_.page_size, problem_.keys_of(batch) - key);
      std::memcpy(head.row(0, 0, key), page.data(),
                  static_cast<std::size_t>(rows * extent.cols * extent.element_bytes));
    }
    return head;
  }
  download_head(name, batch, batch_head % extent.heads, head.data());
  synchronize();
  return head;
}

void DeviceSession::launch(std::size_t index, cudaStream_t stream) {
  log_text(LogLevel::trace,
           [&] { return "launch of " + kernel_name_ + ": " + launch_text(programs_[index]); });
  launch_(programs_[index], arguments(index), stream);
  check_cuda(cudaGetLastError(),
             "launching " + kernel_name_ + " " + std::string(to_string(programs_[index].name)));
}

void DeviceSession::synchronize() { stream_.synchronize("running " + kernel_name_); }

void DeviceSession::check_guards() const {
  for (const auto& [name, buffer] : buffers_) buffer.check_guards();
  counter_.check_guards();
}

}  // namespace tilescope
