// SPDX-License-Identifier: Apache-2.0
#include "emulator/machine/warp.hpp"

#include <algorithm>
#include <cstring>
#include <new>

namespace tilescope::gpu::emulator {
namespace {

constexpr std::align_val_t kAlign{64};

/// The value of a special register in a lane.
std::uint32_t special_value(const Warp& warp, std::string_view name, int lane) {
  const Cta& cta = warp.cta;
  const Launch& launch = cta.run.launch;
  const auto thread = static_cast<std::uint32_t>(warp.thread(lane));
  const auto of = [](const Extent& extent, char axis) {
    return axis == 'x' ? extent.x : axis == 'y' ? extent.y : extent.z;
  };
  const auto divided = [](const Extent& a, const Extent& b) {
    return Extent{a.x / b.x, a.y / b.y, a.z / b.z};
  };
  const auto modulo = [](const Extent& a, const Extent& b) {
    return Extent{a.x % b.x, a.y % b.y, a.z % b.z};
  };
  const char axis = name.back();
  const std::string_view base = name.substr(0, name.find('.'));
  if (base == "tid") {
    const Extent& block = launch.block;
    return of({thread % block.x, thread / block.x % block.y, thread / block.x / block.y}, axis);
  }
  if (base == "ntid") return of(launch.block, axis);
  if (base == "ctaid") return of(cta.index, axis);
  if (base == "nctaid") return of(launch.grid, axis);
  if (base == "clusterid") return of(divided(cta.index, launch.cluster), axis);
  if (base == "nclusterid") return of(divided(launch.grid, launch.cluster), axis);
  if (base == "cluster_ctaid") return of(modulo(cta.index, launch.cluster), axis);
  if (base == "cluster_nctaid") return of(launch.cluster, axis);
  if (name == "cluster_ctarank") return cta.rank;
  if (name == "cluster_nctarank") return static_cast<std::uint32_t>(launch.cluster.count());
  if (name == "laneid") return static_cast<std::uint32_t>(lane);
  if (name == "warpid") return warp.index;
  if (name == "nwarpid") return kMaxWarps;
  if (name == "smid") return cta.sm;
  if (name == "nsmid") return kMultiprocessors;
  if (name == "lanemask_eq") return 1u << lane;
  if (name == "lanemask_lt") return (1u << lane) - 1;
  if (name == "lanemask_le") return (1u << lane) | ((1u << lane) - 1);
  if (name == "lanemask_gt") return ~((1u << lane) | ((1u << lane) - 1));
  if (name == "lanemask_ge") return ~((1u << lane) - 1);
  // Where cooperative groups keep the count of a grid's barrier.
  if (name == "envreg1") return static_cast<std::uint32_t>(cta.run.workspace_address() >> 32);
  if (name == "envreg2") return static_cast<std::uint32_t>(cta.run.workspace_address());
  if (name == "dynamic_smem_size") return launch.dynamic_shared_bytes;
  if (name == "total_smem_size") return cta.shared_end;
  throw Fault("special register '%" + std::string(name) + "' has no value here");
}

}  // namespace

Warp::Warp(Cta& cta, std::uint32_t index, LaneMask lanes) : cta(cta), index(index), living(lanes) {
  const ptx::Kernel& kernel = *cta.run.launch.kernel;
  const std::size_t bytes = std::max<std::size_t>(kernel.register_bytes, 64);
  registers_.reset(static_cast<std::byte*>(::operator new[](bytes, kAlign)));
  std::memset(registers_.get(), 0xff, bytes);  // what was not written reads as NaN
  constants_ = reinterpret_cast<const std::byte*>(kernel.constants.data());
  groups.push_back({0, lanes});
  for (const ptx::SpecialRegister& special : kernel.specials) {
    auto* const values = reinterpret_cast<std::uint32_t*>(registers_.get() + special.offset);
    for (int lane = 0; lane < kLanes; ++lane) values[lane] = special_value(*this, special.name, lane);
  }
}

void Warp::Free::operator()(std::byte* bytes) const { ::operator delete[](bytes, kAlign); }

LaneMask Warp::predicate(const ptx::Operand& operand) const {
  const LaneMask mask = operand.kind == ptx::Operand::Kind::constant ? (operand.value != 0 ? ~0u : 0u)
                                                                     : *read<LaneMask>(operand);
  return operand.negated ? ~mask : mask;
}

void Warp::set_predicate(const ptx::Operand& operand, LaneMask values) {
  if (operand.kind == ptx::Operand::Kind::none) return;
  LaneMask& mask = *write<LaneMask>(operand);
  mask = (mask & ~active) | (values & active);
}

std::uint64_t Warp::value(const ptx::Operand& operand, int lane) const {
  if (operand.kind == ptx::Operand::Kind::constant) return static_cast<std::uint64_t>(operand.value);
  switch (operand.bytes) {
    case 0:
      return predicate(operand) >> lane & 1;
    case 2:
      return read<std::uint16_t>(operand)[lane];
    case 4:
      return read<std::uint32_t>(operand)[lane];
    default:
      return read<std::uint64_t>(operand)[lane];
  }
}

void Warp::set_value(const ptx::Operand& operand, int lane, std::uint64_t value) {
  switch (operand.bytes) {
    case 2:
      write<std::uint16_t>(operand)[lane] = static_cast<std::uint16_t>(value);
      break;
    case 4:
      write<std::uint32_t>(operand)[lane] = static_cast<std::uint32_t>(value);
      break;
    case 8:
      write<std::uint64_t>(operand)[lane] = value;
      break;
    default:
      throw Fault("a predicate cannot be written as a number", lane);
  }
}

std::uint64_t Warp::address(const ptx::Operand& operand, int lane) const {
  return value(operand.elements[0], lane) + static_cast<std::uint64_t>(operand.value);
}

}  // namespace tilescope::gpu::emulator
