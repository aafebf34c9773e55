// SPDX-License-Identifier: Apache-2.0
// Which stores of a CTA that cover a sector in part leave L1 as one. Counted on an H200, by kernels that vary
// one thing at a time: L1 keeps the lines of stores for as long as more of them arrive without a pause, and
// sends a line as soon as a few cycles pass without. Two stores merge if they meet in that time, of one warp
// or of several: with fewer than 8 stores since, of fewer than 32 lines, where a line of which two sectors
// are stored counts twice, and one of which one is, four times. A load that is waited for, a barrier or ten
// cycles of arithmetic end it; sectors that are stored whole never merge, nor what scatters over 32 lines.
// Loads of the same line and cache operators change nothing. Without cycles here, stores of a warp are in a
// row where no load of global memory, barrier or jump back stands between, and those of several warps arrive
// together where a barrier was the last that they waited for.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <unordered_map>
#include <vector>

#include "emulator/counts/store_runs.hpp"

namespace tilescope::gpu::emulator {

class StoreMerging {
 public:
  /// @param runs  how ptxas placed the kernel's stores
  explicit StoreMerging(const StoreRuns& runs) : runs_(&runs) {}

  /// A load of global memory, which the warp's next stores wait for.
  void load(std::uint32_t warp, std::uint64_t barriers) { warps_[warp].load_behind = barriers; }
  /// An instruction of a warp, whose sectors follow by `add`.
  /// @param barriers  that the CTA has completed @param site  the instruction's place in the code
  void store(std::uint32_t warp, std::uint64_t barriers, std::uint32_t site);
  /// A sector of it (its address / 32).
  void add(std::uint64_t sector, bool whole);
  /// Whether sectors should be decided on before this store: they can meet none that follows.
  bool is_due(std::uint64_t barriers) const;
  /// Tells of each sector that was stored in part and leaves L1, and forgets all.
  void decide(const std::function<void(std::uint32_t site, std::uint64_t sector)>& leaves);

 private:
  static constexpr std::size_t kMostSectors = 1u << 16;
  struct Warp {
    std::uint64_t barriers = 0;                // completed at its last store
    std::optional<std::uint64_t> load_behind;  // barriers completed at a load that no store followed yet
    bool loaded = false;                       // since the last barrier
    std::uint32_t run = 0, turn = 0, site = 0;
  };
  struct Store {
    std::uint32_t warp, run, turn, site;  // turn: of the run
    bool together;                        // with those of other warps
    std::uint64_t begin = 0, end = 0;     // its sectors
    unsigned lines = 0;
    double cost = 0;  // in lines that are stored whole
  };
  struct Sector {
    std::uint64_t number;
    bool whole, leaves;
  };
  /// Stores that arrive one after the other without a pause.
  struct Stream {
    struct Time {
      std::uint64_t stores;
      double cost;
      std::uint32_t turn;
      std::uint64_t lines;
    };
    std::uint64_t stores = 0, lines = 0;
    double cost = 0;
    std::unordered_map<std::uint64_t, Time> last;  // of sectors that were stored in part
  };
  void decide_run(std::vector<Store*>& stores);
  void decide_turn(Stream& stream, const std::vector<Store*>& stores);
  double weigh(Store& store) const;
  bool merges(const Stream& stream, const Store& store, const Sector& sector, double turn_cost);
  void decide_between_warps(const Store& store);
  /// True in this share of its calls.
  bool paced(double share);

  const StoreRuns* runs_;
  std::unordered_map<std::uint32_t, Warp> warps_;
  std::uint64_t barriers_ = 0;
  std::vector<Store> stores_;
  std::vector<Sector> sectors_;
  std::unordered_map<std::uint64_t, std::uint32_t>
      first_;  // of stores apart: which warp was the first at a sector
  double pace_ = 0;
};

}  // namespace tilescope::gpu::emulator
