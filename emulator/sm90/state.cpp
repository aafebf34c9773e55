// SPDX-License-Identifier: Apache-2.0
#include "emulator/sm90/state.hpp"

#include <string>
#include <utility>

#include "emulator/machine/launch.hpp"
#include "emulator/machine/shared_places.hpp"

namespace tilescope::gpu::emulator {
namespace {

constexpr std::uint32_t kMarkedBytes = 4;  // that share the memory of who stored them

template <class State>
State& made(std::any& extension) {
  if (!extension.has_value()) extension = State();
  return *std::any_cast<State>(&extension);
}

}  // namespace

AsyncProxy::AsyncProxy(std::uint32_t threads, std::uint32_t shared_end, const ptx::Kernel* kernel)
    : kernel_(kernel), last_fence_(threads), stores_((shared_end + kMarkedBytes - 1) / kMarkedBytes) {}

void AsyncProxy::stored(std::uint32_t thread, std::uint32_t offset, std::uint32_t bytes) {
  for (std::uint32_t word = offset / kMarkedBytes; word * kMarkedBytes < offset + bytes; ++word) {
    stores_[word] = {thread, now_};
  }
}

void AsyncProxy::fence(std::uint32_t thread) { last_fence_[thread] = ++now_; }

void AsyncProxy::check(std::uint32_t issuer, std::uint32_t offset, std::uint32_t bytes,
                       const char* use) const {
  for (std::uint32_t word = offset / kMarkedBytes; word * kMarkedBytes < offset + bytes; ++word) {
    const Store& store = stores_[word];
    if (last_fence_[store.thread] > store.time || last_fence_[issuer] > store.time || store.time == 0)
      continue;
    throw Fault(shared_place(kernel_, word * kMarkedBytes) + ", stored by thread " +
                std::to_string(store.thread) + ", is " + use + " by the async proxy without a fence");
  }
}

void AsyncProxy::copied(std::uint32_t offset, std::uint32_t bytes) {
  for (std::uint32_t word = offset / kMarkedBytes; word * kMarkedBytes < offset + bytes; ++word)
    stores_[word] = {};
}

CtaState& state_of(Cta& cta) { return *std::any_cast<CtaState>(&cta.extension); }
ClusterState& state_of(Cluster& cluster) { return made<ClusterState>(cluster.extension); }
WarpState& state_of(Warp& warp) { return made<WarpState>(warp.extension); }

void issue(Cta& cta, const ptx::Instruction& instruction, AsyncOperation operation) {
  operation.effect = [effect = std::move(operation.effect), line = instruction.line] {
    try {
      effect();
    } catch (const Fault& fault) {
      Fault placed(std::string(fault.what()) + " (issued at line " + std::to_string(line) + ")", fault.lane,
                   fault.kind);
      placed.line = line;
      throw placed;
    }
  };
  if (!cta.run.options.adversary) return operation.effect();
  operation.late = cta.run.random.below(2) == 1;
  cta.async.push(std::move(operation));
}

}  // namespace tilescope::gpu::emulator
