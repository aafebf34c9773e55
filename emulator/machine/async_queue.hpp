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

namespace tilescope::gpu::emulator {

/// What is drawn during a run: splitmix64, so that a seed gives the same run with every library.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}
  std::uint64_t next() {
    std::uint64_t z = state_ += 0x9e3779b97f4a7c15ull;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
  }
  /// Below `bound`, which is not 0.
  std::uint64_t below(std::uint64_t bound) { return next() % bound; }

 private:
  std::uint64_t state_;
};

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
