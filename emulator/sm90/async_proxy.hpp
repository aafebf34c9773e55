// SPDX-License-Identifier: Apache-2.0
// Which bytes of shared memory ordinary stores wrote and no fence.proxy.async followed: the copy engine and
// the tensor cores may not see them. A fence counts if the thread that wrote executed it, or the one that
// issues the operation, after the store. Source: PTX ISA, "Memory Consistency Model: Proxies".
#pragma once

#include <cstdint>
#include <vector>

#include "emulator/ptx/module.hpp"

namespace tilescope::gpu::emulator {

class AsyncProxy {
 public:
  /// @param kernel  whose variables are named
  AsyncProxy(std::uint32_t threads, std::uint32_t shared_end, const ptx::Kernel* kernel);

  void stored(std::uint32_t thread, std::uint32_t offset, std::uint32_t bytes);
  void fence(std::uint32_t thread);
  /// @throws Fault if the bytes hold what was stored without a fence
  /// @param use  what is issued: "read", "overwritten"
  void check(std::uint32_t issuer, std::uint32_t offset, std::uint32_t bytes, const char* use) const;
  /// A copy wrote them.
  void copied(std::uint32_t offset, std::uint32_t bytes);

 private:
  struct Store {
    std::uint32_t thread;
    std::uint32_t time;  // 0: none since a copy
  };
  const ptx::Kernel* kernel_;
  std::uint32_t now_ = 1;                  // counts fences
  std::vector<std::uint32_t> last_fence_;  // of threads
  std::vector<Store> stores_;              // the last of each word
};

}  // namespace tilescope::gpu::emulator
