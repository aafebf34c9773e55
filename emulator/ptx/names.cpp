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

constexpr std::string_view kSpecials[] = {"tid.x",
                                          "tid.y",
                                          "tid.z",
                                          "ntid.x",
                                          "ntid.y",
                                          "ntid.z",
                                          "ctaid.x",
                                          "ctaid.y",
                                          "ctaid.z",
                                          "nctaid.x",
                                          "nctaid.y",
                                          "nctaid.z",
                                          "laneid",
                                          "warpid",
                                          "nwarpid",
                                          "smid",
                                          "nsmid",
                                          "lanemask_eq",
                                          "lanemask_le",
                                          "lanemask_lt",
                                          "lanemask_ge",
                                          "lanemask_gt",
                                          "clusterid.x",
                                          "clusterid.y",
                                          "clusterid.z",
                                          "nclusterid.x",
                                          "nclusterid.y",
                                          "nclusterid.z",
                                          "cluster_ctaid.x",
                                          "cluster_ctaid.y",
                                          "cluster_ctaid.z",
                                          "cluster_nctaid.x",
                                          "cluster_nctaid.y",
                                          "cluster_nctaid.z",
                                          "cluster_ctarank",
                                          "cluster_nctarank",
                                          "envreg1",
                                          "envreg2",
                                          "dynamic_smem_size",
                                          "total_smem_size"};
constexpr std::string_view kClocks[] = {"clock", "clock64", "globaltimer"};

template <std::size_t N>
std::optional<std::size_t> index_in(const std::string_view (&names)[N], std::string_view name) {
  const auto found = std::find(std::begin(names), std::end(names), name);
  if (found == std::end(names)) return std::nullopt;
  return static_cast<std::size_t>(found - std::begin(names));
}

}  // namespace

std::optional<Type> type_of(std::string_view name) {
  const auto index = index_in(kTypes, name);
  return index ? std::optional(static_cast<Type>(*index)) : std::nullopt;
}

std::string_view name_of(Type type) { return kTypes[static_cast<std::size_t>(type)]; }

std::optional<std::uint32_t> special_offset(std::string_view name) {
  const auto index = index_in(kSpecials, name);
  return index ? std::optional(static_cast<std::uint32_t>(*index * kLanes * sizeof(std::uint32_t)))
               : std::nullopt;
}

std::optional<Clock> clock_of(std::string_view name) {
  const auto index = index_in(kClocks, name);
  return index ? std::optional(static_cast<Clock>(*index)) : std::nullopt;
}

std::uint32_t special_bytes() { return std::size(kSpecials) * kLanes * sizeof(std::uint32_t); }

}  // namespace tilescope::gpu::emulator::ptx
