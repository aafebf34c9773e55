// SPDX-License-Identifier: Apache-2.0
// The launches that a driver refuses: limits of the chip, what the kernel was compiled for, and what host
// code must ask for first. Source: CUDA C++ Programming Guide, compute capabilities; PTX ISA,
// "Performance-Tuning Directives" and "Cluster Dimension Directives".
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "emulator/machine/launch.hpp"

namespace tilescope::gpu::emulator {

inline constexpr std::uint32_t kSharedUnasked = 48 * 1024;  // static and dynamic, of a CTA

/// What host code asked for a kernel, by cudaFuncSetAttribute.
struct HostAttributes {
  std::optional<std::uint32_t> max_dynamic_shared;  // bytes; not asked: what static variables leave of 48 KiB
  bool non_portable_cluster = false;                // clusters of more than 8 CTAs
};

struct ChipLimits {
  std::uint32_t shared_bytes = 227 * 1024;  // of a CTA, once asked for
  bool has_clusters = true;
  std::string name{};  // in messages, "sm_80"; may be empty
};

/// Those of the chip that PTX was compiled for, "sm_80" or "sm_90a". One that is not known has an H200's.
ChipLimits limits_of_target(std::string_view target);

struct Refusal {
  enum class Kind { configuration, resources, value, cluster };
  Kind kind;
  std::string text;
};

/// Why a driver would not launch this; nothing where it would.
/// @param registers  of a thread, where somebody knows
std::optional<Refusal> refusal_of(const Launch& launch, const HostAttributes& attributes,
                                  std::optional<int> registers, const ChipLimits& chip = {});

/// The cluster of a launch that names none: the one that the kernel was compiled for.
Extent cluster_or_required(const ptx::Kernel& kernel, const Extent& named);

/// Bytes of the kernel's own variables in shared memory.
std::uint32_t static_shared_bytes(const ptx::Kernel& kernel);

}  // namespace tilescope::gpu::emulator
