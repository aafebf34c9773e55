// SPDX-License-Identifier: Apache-2.0
// What bulk copies have in common, those of boxes (copy_handlers.cpp), those of runs of bytes
// (bulk_handlers.cpp) and asynchronous stores of registers (async_store_handlers.cpp): loads land some time
// after their issue and are counted by an mbarrier; a store first reads its shared memory, which may then be
// written again, and later writes.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "emulator/machine/cta_order.hpp"
#include "emulator/sm90/reduction.hpp"
#include "emulator/sm90/state.hpp"
#include "emulator/sm90/tensor_map.hpp"

namespace tilescope::gpu::emulator {

inline constexpr std::uint32_t kBulkChunk = 16;  // bytes, in which all of them go

/// visit(offset in the copy, shared address), chunk by chunk
using ChunkVisitor = std::function<void(std::uint32_t, std::uint32_t)>;
using Chunks = std::function<void(const ChunkVisitor&)>;

/// A load into the shared memory of one CTA.
struct BulkLoad {
  std::uint32_t bytes = 0, barrier = 0;  // barrier: its offset there
  Chunks chunks;
  /// Its bytes, read when it lands. @param again  another CTA of the cluster received the same
  std::function<std::vector<std::byte>(Cta& target, bool again)> read;
  std::uint32_t chunk = kBulkChunk;  // bytes that lie together
  bool by_engine = true;             // through the async proxy
  bool reduces = false;              // an atomic: no race with others
  Cta* sender = nullptr;             // whose shared memory is read, from this offset on
  std::uint32_t from = 0;
};

/// Issues a load to the CTA that `target` names, or to those that the mask does where it is a multicast.
/// @param target, barrier  addresses in shared memory
void issue_load(Warp& warp, const ptx::Instruction& instruction, int lane, std::uint32_t target,
                std::uint32_t barrier, const ptx::Operand* mask, BulkLoad load);

/// Issues the two halves of a store.
void issue_store(Warp& warp, const ptx::Instruction& instruction, int lane, std::size_t bytes, Chunks chunks,
                 std::function<void(const std::vector<std::byte>&)> write);

/// Writes a run of bytes in global memory, or has it reduced there.
void put(Run& run, Reduction reduction, MapType type, std::uint64_t address, const void* source,
         std::size_t bytes);
/// Reads one from there.
void get(const Cta& cta, std::uint64_t address, void* target, std::size_t bytes);

/// An address in shared memory. @throws Fault where it is not aligned
std::uint32_t shared_address(const Warp& warp, const ptx::Operand& operand, int lane, std::uint32_t align);
/// The same in the CTA's own shared memory: its offset there.
std::uint32_t own_offset(Warp& warp, const ptx::Operand& operand, int lane, std::uint32_t align);

}  // namespace tilescope::gpu::emulator
