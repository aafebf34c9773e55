// SPDX-License-Identifier: Apache-2.0
#include "gpu/registry/kernel_registry.hpp"

#include <algorithm>
#include <vector>

#include "common/errors.hpp"
#include "common/nearest_names.hpp"
#include "gpu/kernels/decode/decode.hpp"
#include "gpu/kernels/decode/mla.hpp"
#include "gpu/kernels/flash1/flash1.hpp"
#include "gpu/kernels/flash1_mma/flash1_mma.hpp"
#include "gpu/kernels/flash2_mma/flash2_mma.hpp"
#include "gpu/kernels/flash2_simt/flash2_simt.hpp"
#include "gpu/kernels/flash3/flash3.hpp"
#include "gpu/kernels/flash3_basic/flash3_basic.hpp"
#include "gpu/kernels/split_k/split_k.hpp"
#include "gpu/kernels/standard/standard.hpp"
#include "gpu/kernels/standard_mma/standard_mma.hpp"
#ifdef TILESCOPE_HAS_CUDA
#include "gpu/launch/device.hpp"
#endif

namespace tilescope {
namespace {

/// Behind delta its passes are launched so that they begin early.
GpuKernel flash3_row() {
  GpuKernel kernel = make_gpu_kernel<Flash3>();
  kernel.row.begins_early = [](const TileProgram& program) {
    return program.name == PassName::init || program.name == PassName::dkdvdq ||
           program.name == PassName::convert;
  };
  return kernel;
}

}  // namespace

std::span<const GpuKernel> gpu_kernel_rungs() {
  static const std::vector<GpuKernel> rungs = {
      make_gpu_kernel<Standard>(),  make_gpu_kernel<Flash1>(),      make_gpu_kernel<Flash2Simt>(),
      make_gpu_kernel<Flash2Mma>(), make_gpu_kernel<Flash3Basic>(), flash3_row(),
      make_gpu_kernel<SplitK>(),    make_gpu_kernel<Flash1Mma>(),   make_gpu_kernel<StandardMma>(),
      make_gpu_kernel<Decode>(),    make_gpu_kernel<MlaDecode>()};
  return rungs;
}

std::span<const GpuKernel> gpu_ladder() {
  static const std::vector<GpuKernel> ladder = [] {
    std::vector<GpuKernel> rungs(gpu_kernel_rungs().begin(), gpu_kernel_rungs().end());
    std::erase_if(rungs, [](const GpuKernel& rung) { return rung.row.rung == 0; });
    std::ranges::sort(rungs, [](const GpuKernel& a, const GpuKernel& b) { return a.row.rung < b.row.rung; });
    return rungs;
  }();
  return ladder;
}

std::span<const Kernel> gpu_kernels() {
  static const std::vector<Kernel> rows = [] {
    std::vector<Kernel> all;
    for (const GpuKernel& rung : gpu_kernel_rungs()) all.push_back(rung.row);
    return all;
  }();
  return rows;
}

std::vector<const Kernel*> rank_kernels() {
  std::vector<const Kernel*> kernels;
  for (const Kernel& row : gpu_kernels()) {
    if (row.on_ranks) kernels.push_back(&row);
  }
  std::ranges::sort(kernels, [](const Kernel* a, const Kernel* b) { return a->rung > b->rung; });
  return kernels;
}

const GpuKernel& find_gpu_kernel(std::string_view name) {
  std::string names;
  for (const GpuKernel& rung : gpu_kernel_rungs()) {
    if (rung.row.name == name) return rung;
    names += (names.empty() ? "" : ", ") + std::string(rung.row.name);
  }
  throw BadInput("kernel", std::string(name), "the GPU kernels are " + names);
}

std::vector<const Kernel*> all_kernels() {
  std::vector<const Kernel*> kernels;
  for (const Kernel& kernel : cpu_kernels()) kernels.push_back(&kernel);
  for (const Kernel& kernel : gpu_kernels()) kernels.push_back(&kernel);
  return kernels;
}

const Kernel& find_kernel(const std::string& name) {
  std::vector<std::string> names;
  for (const Kernel* kernel : all_kernels()) {
    if (kernel->name == name) return *kernel;
    names.emplace_back(kernel->name);
  }
  throw unknown_name("kernel", name, names);
}

void require_direction(const AttentionProblem& problem, Direction direction) {
  if (problem.page_size == 0 || direction == Direction::forward) return;
  throw BadInput("pass", "bwd",
                 "must be fwd with page_size: keys and values in pages have a forward pass alone");
}

void require_supported(const Kernel& kernel, const AttentionProblem& problem, Direction direction,
                       const ProgramOptions& options) {
  require_direction(problem, direction);
  const std::optional<std::string> reason = kernel.refusal(problem, direction, options);
  if (!reason) return;
  const ProgramOptions usual = kernel.default_options(problem);
  std::string able;
  for (const Kernel* other : all_kernels()) {
    if (other->name == kernel.name) continue;  // by itself it may take it
    ProgramOptions own = other->default_options(problem);
    own.diagonal_slices = options.diagonal_slices;
    own.splits = options.splits;
    own.pack_gqa = options.pack_gqa;
    if (options.query_splits != usual.query_splits) own.set_query_splits(options.query_splits);
    if (other->refusal(problem, direction, own)) continue;
    able += (able.empty() ? "; this problem runs on " : ", ") + std::string(other->name);
  }
  throw BadInput("kernel", std::string(kernel.name), *reason + able);
}

bool is_runnable(const Kernel& kernel) {
  return kernel.run != nullptr && !(kernel.on_gpu() && device_lack());
}

void require_runnable(const Kernel& kernel) {
  if (is_runnable(kernel)) return;
  throw MachineLacks(std::string(kernel.name) +
                     " cannot run: " + device_lack().value_or("this build has no code for it"));
}

std::optional<std::string> device_lack() {
#ifdef TILESCOPE_HAS_CUDA
  try {
    require_device();
    return std::nullopt;
  } catch (const MachineLacks& lack) {
    return lack.what();
  }
#else
  return "this build has no GPU side; build where nvcc is on the PATH. The cpu: kernels need no device";
#endif
}

std::optional<DeviceFacts> device_facts() {
  if (device_lack()) return std::nullopt;
#ifdef TILESCOPE_HAS_CUDA
  return current_device();
#else
  return std::nullopt;
#endif
}

std::optional<std::string> build_lack(const Kernel& kernel, const AttentionProblem& problem,
                                      Direction direction, const ProgramOptions& options) {
  if (kHasTuner || !kernel.on_gpu()) return std::nullopt;
  if (options.variant != Variant::own) {
    return "cannot run its variant " + std::string(to_string(options.variant)) + ": " +
           std::string(kTunerLack);
  }
  if (!find_gpu_kernel(kernel.name).tiles_of_tuner) return std::nullopt;
  if (options.diagonal_slices > 1) {
    return "cannot run with diagonal-slices " + std::to_string(options.diagonal_slices) + ": " +
           std::string(kTunerLack);
  }
  for (const PassName pass : tiled_passes(kernel.algorithm, direction, options.backward)) {
    const TileShape tile = options[pass].tile;
    if (tile == kernel.tile_choices(problem, pass).front() && options[pass].launch == PassLaunch{}) continue;
    return "cannot run pass " + std::string(to_string(pass)) + " with tiles of " +
           std::to_string(tile.block_m) + "x" + std::to_string(tile.block_n) + ": " + std::string(kTunerLack);
  }
  return std::nullopt;
}

std::string refusal_sentence(const Kernel& kernel, const std::string& reason, const AttentionProblem& problem,
                             Direction direction, const std::optional<Chip>& chip) {
  std::string others;
  for (const Kernel& other : gpu_kernels()) {
    const ProgramOptions options = other.default_options(problem);
    if (other.name == kernel.name || other.refusal(problem, direction, options)) continue;
    if (chip && other.chip_lack(*chip, problem, direction, options)) continue;
    others += (others.empty() ? "" : ", ") + std::string(other.name);
  }
  return std::string(kernel.name) + " " + reason + "; " +
         (others.empty() ? "no other GPU kernel takes this problem either" : "it runs on " + others);
}

}  // namespace tilescope
