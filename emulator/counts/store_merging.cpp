// SPDX-License-Identifier: Apache-2.0
#include "emulator/counts/store_merging.hpp"

#include <algorithm>
#include <map>
#include <utility>

namespace tilescope::gpu::emulator {
namespace {

constexpr std::uint64_t kSectorsOfLine = 4;
constexpr std::uint64_t kFewStores = 8;  // and more: what was stored before them has left
/// Lines a turn that leave L1 no pause to send one, where other stores of the warp stand between two that
/// meet: of 2.5 all merged, of 2 half, of 1.75 and 1 none.
constexpr double kBusy = 2.5, kPaused = 1.9;
constexpr unsigned kMostLines = 16;  // of a store that merges at all
/// Of stores that arrive too late where warps keep in step, since they drift: of four sums of `gpu:standard`
/// on an H200 and an H100, 34 to 46 % merged.
constexpr double kLate = 0.4;
/// Of warps that a load kept apart, where none or all may meet: of `gather` and `layer_norm`, 27 to 79 %.
constexpr double kApart = 0.5;

/// A line of which all four sectors are stored is 1.
double cost_of_line(std::uint64_t sectors) { return sectors == kSectorsOfLine ? 1 : sectors > 1 ? 2 : 4; }

}  // namespace

bool StoreMerging::is_due(std::uint64_t barriers) const {
  return barriers != barriers_ || sectors_.size() > kMostSectors;
}

void StoreMerging::store(std::uint32_t warp, std::uint64_t barriers, std::uint32_t site) {
  barriers_ = barriers;
  Warp& state = warps_[warp];
  const bool loads = state.load_behind == barriers;
  if (state.barriers != barriers) state = Warp();
  state.barriers = barriers;
  if (loads || (state.turn > 0 && site <= state.site)) {
    state.turn = 0;
    ++state.run;
  }
  state.loaded |= loads;
  state.load_behind.reset();
  state.site = site;
  const std::size_t at = sectors_.size();
  stores_.push_back({warp, state.run, state.turn++, site, barriers > 0 && !state.loaded, at, at});
}

void StoreMerging::add(std::uint64_t sector, bool whole) {
  sectors_.push_back({sector, whole, true});
  stores_.back().end = sectors_.size();
}

void StoreMerging::decide(const std::function<void(std::uint32_t, std::uint64_t)>& leaves) {
  // A run of warps together, or of one that is apart.
  std::map<std::pair<std::uint64_t, std::uint32_t>, std::vector<Store*>> runs;
  constexpr std::uint64_t kTogether = ~0ull;
  for (Store& store : stores_) runs[{store.together ? kTogether : store.warp, store.run}].push_back(&store);
  for (auto& [key, stores] : runs) decide_run(stores);
  for (const Store& store : stores_) {
    if (!store.together) decide_between_warps(store);
    for (std::uint64_t i = store.begin; i < store.end; ++i) {
      if (!sectors_[i].whole && sectors_[i].leaves) leaves(store.site, sectors_[i].number);
    }
  }
  stores_.clear();
  sectors_.clear();
  first_.clear();
}

void StoreMerging::decide_run(std::vector<Store*>& stores) {
  std::ranges::stable_sort(stores, [](const Store* a, const Store* b) { return a->turn < b->turn; });
  Stream stream;
  for (auto first = stores.begin(); first != stores.end();) {
    const auto end =
        std::find_if(first, stores.end(), [&](const Store* s) { return s->turn != (*first)->turn; });
    decide_turn(stream, {first, end});
    first = end;
  }
}

/// Stores that arrive at once, one of each warp.
void StoreMerging::decide_turn(Stream& stream, const std::vector<Store*>& stores) {
  double turn_cost = 0;
  for (Store* store : stores) turn_cost += weigh(*store);
  for (const Store* store : stores) {
    ++stream.stores;
    stream.lines += store->lines;
    stream.cost += store->cost;
    for (std::uint64_t i = store->begin; i < store->end; ++i) {
      Sector& sector = sectors_[i];
      if (sector.whole) continue;
      sector.leaves = !merges(stream, *store, sector, turn_cost);
      stream.last[sector.number] = {stream.stores, stream.cost, store->turn, stream.lines};
    }
  }
}

/// Sets its lines and cost, and returns this.
double StoreMerging::weigh(Store& store) const {
  for (std::uint64_t i = store.begin, next = i; i < store.end; i = next) {
    const std::uint64_t line = sectors_[i].number / kSectorsOfLine;
    while (next < store.end && sectors_[next].number / kSectorsOfLine == line) ++next;
    ++store.lines;
    store.cost += cost_of_line(next - i);
  }
  return store.cost;
}

bool StoreMerging::merges(const Stream& stream, const Store& store, const Sector& sector, double turn_cost) {
  const auto before = stream.last.find(sector.number);
  if (before == stream.last.end() || store.lines > kMostLines) return false;
  const bool late = stream.stores - before->second.stores >= kFewStores ||
                    stream.cost - before->second.cost >= StoreRuns::kOpenLines;
  const std::uint32_t turns = store.turn - before->second.turn;
  const double rate = static_cast<double>(stream.lines - before->second.lines) / std::max(turns, 1u);
  if (turns > 1 && rate < kPaused) return false;
  if ((late || (turns > 1 && rate < kBusy)) && !paced(kLate)) return false;
  return before->second.turn == store.turn || paced(runs_->share(turn_cost));
}

void StoreMerging::decide_between_warps(const Store& store) {
  for (std::uint64_t i = store.begin; i < store.end; ++i) {
    Sector& sector = sectors_[i];
    if (sector.whole) continue;
    const auto [first, is_new] = first_.try_emplace(sector.number, store.warp);
    if (sector.leaves && !is_new && first->second != store.warp && store.lines <= kMostLines)
      sector.leaves = !paced(kApart);
  }
}

bool StoreMerging::paced(double share) {
  constexpr double kRounding = 1e-9;
  pace_ += share;
  if (pace_ < 1 - kRounding) return false;
  pace_ -= 1;
  return true;
}

}  // namespace tilescope::gpu::emulator
