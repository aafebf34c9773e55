// SPDX-License-Identifier: Apache-2.0
#include "emulator/machine/async_queue.hpp"

#include <algorithm>
#include <iterator>

namespace tilescope::gpu::emulator {

void AsyncQueue::commit(AsyncKind kind, std::uint32_t owner) {
  const std::uint64_t group = committed_groups_[{kind, owner}]++;
  for (AsyncOperation& operation : pending_) {
    if (operation.kind == kind && operation.owner == owner && operation.group == AsyncOperation::kUncommitted)
      operation.group = group;
  }
}

void AsyncQueue::wait(AsyncKind kind, std::uint32_t owner, unsigned left) {
  const std::uint64_t committed = committed_groups_[{kind, owner}];
  if (committed <= left) return;
  finish([&](const AsyncOperation& operation) {
    return operation.kind == kind && operation.owner == owner && operation.group < committed - left;
  });
}

bool AsyncQueue::draw(Random& random, bool late_too) {
  if (pending_.empty()) return false;
  auto drawn = std::next(pending_.begin(), static_cast<std::ptrdiff_t>(random.below(pending_.size())));
  if (drawn->in_order) {
    drawn = std::find_if(pending_.begin(), drawn, [&](const AsyncOperation& operation) {
      return operation.in_order && operation.kind == drawn->kind && operation.owner == drawn->owner;
    });
  }
  if (drawn->late && !late_too) return false;
  const auto effect = std::move(drawn->effect);
  pending_.erase(drawn);
  effect();
  return true;
}

}  // namespace tilescope::gpu::emulator
