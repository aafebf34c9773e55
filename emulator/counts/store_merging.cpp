// SPDX-License-Identifier: Apache-2.0
#include "emulator/counts/store_merging.hpp"

#include <algorithm>
#include <map>
#include <utility>

namespace tilescope::gpu::emulator {
namespace {

constexpr std::uint64_t kSectorsOfLine = 4;
/// Where the model cannot say who arrives when: between all of those that may, and none.
constexpr double kHalf = 0.5;

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
  Store& store = stores_.back();
  const bool same_line =
      store.end > store.begin && sectors_.back().number / kSectorsOfLine == sector / kSectorsOfLine;
  store.lines += !same_line;
  sectors_.push_back({sector, whole, true});
  store.end = sectors_.size();
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
  std::stable_sort(stores.begin(), stores.end(),
                   [](const Store* a, const Store* b) { return a->turn < b->turn; });
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
  std::uint64_t lines = 0;
  for (const Store* store : stores) lines += store->lines;
  for (const Store* store : stores) {
    for (std::uint64_t i = store->begin; i < store->end; ++i) {
      Sector& sector = sectors_[i];
      const std::uint64_t line = sector.number / kSectorsOfLine;
      if (!sector.whole) sector.leaves = !merges(stream, *store, sector, lines);
      if (i == store->begin || sectors_[i - 1].number / kSectorsOfLine != line)
        stream.lines[line] = ++stream.clock;
      if (!sector.whole) stream.sectors[sector.number] = store->turn;
    }
  }
}

bool StoreMerging::merges(const Stream& stream, const Store& store, const Sector& sector,
                          std::uint64_t lines) {
  const auto before = stream.sectors.find(sector.number);
  if (before == stream.sectors.end() || store.lines > kOpenLines) return false;
  const std::uint64_t since = stream.clock - stream.lines.at(sector.number / kSectorsOfLine);
  if (since >= kOpenLines && !paced(kHalf)) return false;
  return before->second == store.turn || paced(runs_->share(lines, kOpenLines));
}

void StoreMerging::decide_between_warps(const Store& store) {
  for (std::uint64_t i = store.begin; i < store.end; ++i) {
    Sector& sector = sectors_[i];
    if (sector.whole) continue;
    const auto [first, is_new] = first_.try_emplace(sector.number, store.warp);
    if (sector.leaves && !is_new && first->second != store.warp && store.lines <= kOpenLines)
      sector.leaves = !paced(kHalf);
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
