// SPDX-License-Identifier: Apache-2.0
#include "emulator/machine/launch_limits.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace tilescope::gpu::emulator {
namespace {

using Kind = Refusal::Kind;

std::string text(const Extent& size) { return fmt::format("{}x{}x{}", size.x, size.y, size.z); }

Extent extent(const std::array<std::uint32_t, 3>& size) { return {size[0], size[1], size[2]}; }

std::optional<Refusal> refused_threads(const Launch& launch, std::optional<int> registers) {
  constexpr std::uint64_t kMostThreads = 1024, kMostInZ = 64, kRegisters = 65536, kUnit = 256,
                          kWarpsTogether = 4;
  const ptx::Kernel& kernel = *launch.kernel;
  const Extent& block = launch.block;
  const std::uint64_t threads = block.count();
  if (threads == 0 || threads > kMostThreads || block.z > kMostInZ)
    return Refusal{Kind::configuration,
                   fmt::format("CTAs of {} threads, where 1 ... {} are allowed and {} in z", text(block),
                               kMostThreads, kMostInZ)};
  if (kernel.required_threads[0] > 0 && block != extent(kernel.required_threads))
    return Refusal{Kind::configuration,
                   fmt::format("CTAs of {} threads where the kernel was compiled for {} (.reqntid)",
                               text(block), text(extent(kernel.required_threads)))};
  if (threads > kernel.max_threads)
    return Refusal{Kind::resources,
                   fmt::format("CTAs of {} threads where the kernel was compiled for at most {} (.maxntid)",
                               text(block), kernel.max_threads)};
  if (!registers) return std::nullopt;
  const std::uint64_t of_warp =
      (static_cast<std::uint64_t>(*registers) * ptx::kLanes + kUnit - 1) / kUnit * kUnit;
  const std::uint64_t warps = (threads + ptx::kLanes - 1) / ptx::kLanes;
  const std::uint64_t held = (warps + kWarpsTogether - 1) / kWarpsTogether * kWarpsTogether * of_warp;
  if (held <= kRegisters) return std::nullopt;
  return Refusal{Kind::resources,
                 fmt::format("CTAs of {} threads with {} registers each take {} registers; an SM has {}",
                             text(block), *registers, held, kRegisters)};
}

std::optional<Refusal> refused_shared(const Launch& launch, const HostAttributes& attributes,
                                      const ChipLimits& chip) {
  const std::uint32_t of_variables = static_shared_bytes(*launch.kernel),
                      dynamic = launch.dynamic_shared_bytes;
  if (of_variables > kSharedUnasked)
    return Refusal{Kind::value, fmt::format("{} B of static shared memory, of which ptxas allows {}",
                                            of_variables, kSharedUnasked)};
  if (std::uint64_t{of_variables} + dynamic > chip.shared_bytes)
    return Refusal{
        Kind::value,
        fmt::format("{} B of static and {} B of dynamic shared memory; a CTA has {} at most{}", of_variables,
                    dynamic, chip.shared_bytes, chip.name.empty() ? "" : " on " + chip.name)};
  const std::uint32_t most = attributes.max_dynamic_shared.value_or(kSharedUnasked - of_variables);
  if (dynamic <= most) return std::nullopt;
  return Refusal{
      Kind::value,
      fmt::format("{} B of dynamic shared memory beside {} B of static, where host code {} {} B "
                  "(cudaFuncAttributeMaxDynamicSharedMemorySize, max_dynamic_shared here)",
                  dynamic, of_variables,
                  attributes.max_dynamic_shared ? "asked for" : "did not ask for more than", most)};
}

std::optional<Refusal> refused_cluster(const Launch& launch, const HostAttributes& attributes,
                                       const ChipLimits& chip) {
  constexpr std::uint64_t kPortable = 8, kLargest = 16;
  const ptx::Kernel& kernel = *launch.kernel;
  const Extent &grid = launch.grid, &cluster = launch.cluster;
  const std::uint64_t size = cluster.count();
  const auto refuse = [&](const std::string& why) {
    return Refusal{Kind::cluster,
                   fmt::format("clusters of {} in a grid of {}{}", text(cluster), text(grid), why)};
  };
  if (size == 0 || grid.x % cluster.x != 0 || grid.y % cluster.y != 0 || grid.z % cluster.z != 0)
    return refuse(", which is no multiple of them");
  if (size > 1 && !chip.has_clusters) return refuse(", on a chip without clusters");
  if (kernel.required_cluster[0] > 0 && cluster != extent(kernel.required_cluster))
    return refuse(
        fmt::format(", where the kernel was compiled for {}", text(extent(kernel.required_cluster))));
  if (size > kernel.max_cluster)
    return refuse(fmt::format(", where the kernel was compiled for at most {} CTAs", kernel.max_cluster));
  if (size > kLargest) return refuse(fmt::format(", where {} CTAs are allowed", kLargest));
  if (size > kPortable && !attributes.non_portable_cluster)
    return refuse(
        fmt::format(", more than {} CTAs, which host code did not ask for "
                    "(cudaFuncAttributeNonPortableClusterSizeAllowed, "
                    "non_portable_cluster here)",
                    kPortable));
  return std::nullopt;
}

}  // namespace

ChipLimits limits_of_target(std::string_view target) {
  struct Row {
    std::string_view capability;
    std::uint32_t shared_kib;
  };
  constexpr Row kRows[] = {{"70", 96},   {"72", 96},   {"75", 64},  {"80", 163}, {"86", 99},
                           {"87", 163},  {"88", 99},   {"89", 99},  {"90", 227}, {"100", 227},
                           {"103", 227}, {"110", 227}, {"120", 99}, {"121", 99}};
  ChipLimits limits{.name = std::string(target)};
  const std::string_view digits = target.substr(std::min(target.find('_') + 1, target.size()));
  const std::string_view capability = digits.substr(0, digits.find_first_not_of("0123456789"));
  for (const Row& row : kRows) {
    if (row.capability != capability) continue;
    limits.shared_bytes = row.shared_kib * 1024;
    limits.has_clusters = capability.size() > 2 || capability >= "90";
  }
  return limits;
}

std::uint32_t static_shared_bytes(const ptx::Kernel& kernel) {
  return kernel.static_shared_end - ptx::kSharedBegin;
}

Extent cluster_or_required(const ptx::Kernel& kernel, const Extent& named) {
  return named.count() == 1 && kernel.required_cluster[0] > 0 ? extent(kernel.required_cluster) : named;
}

std::optional<Refusal> refusal_of(const Launch& launch, const HostAttributes& attributes,
                                  std::optional<int> registers, const ChipLimits& chip) {
  constexpr std::uint64_t kMostInX = 0x7fffffff, kMostInYAndZ = 65535;
  const Extent& grid = launch.grid;
  if (grid.count() == 0 || grid.x > kMostInX || grid.y > kMostInYAndZ || grid.z > kMostInYAndZ)
    return Refusal{Kind::configuration, fmt::format("a grid of {}, where at most {}x{}x{} are allowed",
                                                    text(grid), kMostInX, kMostInYAndZ, kMostInYAndZ)};
  if (auto refused = refused_threads(launch, registers)) return refused;
  if (auto refused = refused_shared(launch, attributes, chip)) return refused;
  return refused_cluster(launch, attributes, chip);
}

}  // namespace tilescope::gpu::emulator
