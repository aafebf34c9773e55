// SPDX-License-Identifier: Apache-2.0
// Operations of a CTA that were issued and have not taken effect. The scheduler draws one now and then; a
// wait that guarantees some has them take effect at once. What a kernel may not rely on therefore differs
// from run to run.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <utility>

#include "emulator/machine/random.hpp"

namespace tilescope::gpu::emulator {

enum class AsyncKind : std::uint8_t { cp_async, copy_arrival, wgmma, bulk_read, bulk, tensor_load };

struct AsyncOperation {
  static constexpr std::uint64_t kUncommitted = ~0ull;
  AsyncKind kind = AsyncKind::cp_async;
  std::uint32_t owner = 0;  // whose groups: a thread of the CTA (cp_async, bulk), a warp (wgmma)
  bool in_order = false;    // takes effect after those of its kind and owner that were issued before
  bool late = false;        // is not drawn while a warp can go on without it
  std::function<void()> effect;
  std::uint64_t group = kUncommitted;
  std::uint64_t number = 0;  // of those of its CTA
};

class AsyncQueue {
 public:
  void push(AsyncOperation operation) {
    operation.number = pushed_++;
    pending_.push_back(std::move(operation));
  }
  std::uint64_t pushed() const { return pushed_; }
  /// Closes the group of an owner's uncommitted operations.
  void commit(AsyncKind kind, std::uint32_t owner);
  /// How many groups the owner has closed.
  std::uint64_t committed(AsyncKind kind, std::uint32_t owner) { return committed_groups_[{kind, owner}]; }
  /// Has all but the newest `left` committed groups take effect.
  void wait(AsyncKind kind, std::uint32_t owner, unsigned left);
  /// Has one that may take effect do so; false where none was drawn. Late ones are drawn only if there is
  /// nothing else to do.
  bool draw(Random& random, bool late_too = false);
  /// Has all take effect that `matches`, in the order of their issue.
  template <class Matches>
  void finish(Matches&& matches) {
    for (auto operation = pending_.begin(); operation != pending_.end();) {
      if (!matches(*operation)) {
        ++operation;
        continue;
      }
      const auto effect = std::move(operation->effect);
      operation = pending_.erase(operation);
      effect();
    }
  }
  bool empty() const { return pending_.empty(); }
  const std::list<AsyncOperation>& operations() const { return pending_; }

 private:
  std::list<AsyncOperation> pending_;
  std::uint64_t pushed_ = 0;
  std::map<std::pair<AsyncKind, std::uint32_t>, std::uint64_t> committed_groups_;
};

}  // namespace tilescope::gpu::emulator
