// SPDX-License-Identifier: Apache-2.0
#include "emulator/ptx/names.hpp"

#include <algorithm>
#include <iterator>

namespace tilescope::gpu::emulator::ptx {
namespace {

constexpr std::string_view kTypes[] = {"pred",  "b8",  "u8",  "s8",   "e4m3",   "e5m2",   "b16",
                                       "u16",   "s16", "f16", "bf16", "e4m3x2", "e5m2x2", "b32",
                                       "u32",   "s32", "f32", "tf32", "f16x2",  "bf16x2", "u16x2",
                                       "s16x2", "b64", "u64", "s64",  "f64",    "b128"};
static_assert(std::size(kTypes) == static_cast<std::size_t>(Type::b128) + 1);

constexpr std::string_view kSpecials[] = {
    // of a thread, a CTA and a grid
    "tid.x", "tid.y", "tid.z", "ntid.x", "ntid.y", "ntid.z", "ctaid.x", "ctaid.y", "ctaid.z", "nctaid.x",
    "nctaid.y", "nctaid.z",
    // of a warp and its SM
    "laneid", "warpid", "nwarpid", "smid", "nsmid", "lanemask_eq", "lanemask_le", "lanemask_lt",
    "lanemask_ge", "lanemask_gt",
    // of clusters
    "clusterid.x", "clusterid.y", "clusterid.z", "nclusterid.x", "nclusterid.y", "nclusterid.z",
    "cluster_ctaid.x", "cluster_ctaid.y", "cluster_ctaid.z", "cluster_nctaid.x", "cluster_nctaid.y",
    "cluster_nctaid.z", "cluster_ctarank", "cluster_nctarank",
    // of a launch
    "envreg1", "envreg2", "dynamic_smem_size", "total_smem_size"};
constexpr std::string_view kClocks[] = {"clock", "clock64", "globaltimer"};

/// The value with that name, of those whose names stand in their order.
template <typename Value, std::size_t N>
std::optional<Value> value_in(const std::string_view (&names)[N], std::string_view name) {
  const auto found = std::ranges::find(names, name);
  if (found == std::end(names)) return std::nullopt;
  return static_cast<Value>(found - std::begin(names));
}

}  // namespace

std::optional<Type> type_of(std::string_view name) { return value_in<Type>(kTypes, name); }

std::string_view name_of(Type type) { return kTypes[static_cast<std::size_t>(type)]; }

std::optional<std::uint32_t> special_offset(std::string_view name) {
  auto offset = value_in<std::uint32_t>(kSpecials, name);
  if (offset) *offset *= kLanes * sizeof(std::uint32_t);
  return offset;
}

std::optional<Clock> clock_of(std::string_view name) { return value_in<Clock>(kClocks, name); }

std::uint32_t special_bytes() { return std::size(kSpecials) * kLanes * sizeof(std::uint32_t); }

}  // namespace tilescope::gpu::emulator::ptx
