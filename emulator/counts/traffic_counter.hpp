// SPDX-License-Identifier: Apache-2.0
// Counts the bytes of a launch, instruction by instruction, while it runs.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <optional>
#include <unordered_set>
#include <vector>

#include "emulator/counts/global_accesses.hpp"
#include "emulator/counts/kernel_counts.hpp"
#include "emulator/counts/l1_model.hpp"
#include "emulator/counts/l2_requests.hpp"
#include "emulator/counts/memory_sites.hpp"
#include "emulator/counts/store_merging.hpp"
#include "emulator/counts/store_runs.hpp"
#include "emulator/counts/touched_sectors.hpp"
#include "emulator/machine/observer.hpp"

namespace tilescope::gpu::emulator {

class TrafficCounter : public Observer {
 public:
  /// @param races  whether to look for races between CTAs, and for reads of what nobody wrote
  /// @param l2  is told what L1 does not answer; may be null
  /// @param store_runs  how ptxas placed the stores; nothing where nobody knows
  TrafficCounter(const Launch& launch, const Memory& memory, std::optional<int> registers, bool races,
                 L2Listener* l2 = nullptr, const std::optional<StoreRuns>& store_runs = {});

  void begin(Cta& cta) override;
  void end(Cta& cta) override;
  void global(const LaneRequest& request) override;
  void shared(const LaneRequest& request, unsigned wavefronts) override;
  void engine(const EngineRun& run) override;

  /// Of the CTAs that have ended; called once.
  KernelCounts counts(const ptx::Module& module, const Report& report);
  /// Where races were looked for.
  const GlobalAccesses* accesses() const { return accesses_ ? &*accesses_ : nullptr; }

 private:
  static constexpr std::uint64_t kMostKeptFetches = 1u << 25;  // 256 MB at most
  /// Of one instruction. Sectors are of 32 bytes.
  struct SiteCounts {
    std::uint64_t requests = 0, asked_bytes = 0, sectors = 0, least_sectors = 0;
    std::uint64_t read_sectors = 0, l1_hits = 0;  // loads
    std::uint64_t l1_again = 0;       // of loads, where one looked in L1 before: the most that may hit
    std::uint64_t store_sectors = 0;  // asked for by plain stores
    std::uint64_t merged_sectors = 0, least_sectors_stored = 0;  // left of them as modelled, and if all merge
    std::uint64_t reduced_sectors = 0, atomic_sectors = 0;
    std::uint64_t engine_read_bytes = 0, engine_again_bytes = 0, engine_beyond_bytes = 0;
    std::uint64_t engine_write_bytes = 0, engine_reduced_bytes = 0;
    std::uint64_t shared_requests = 0, wavefronts = 0, least_wavefronts = 0;
    void add(const SiteCounts& other);
    std::uint64_t read_bytes() const;
    std::uint64_t write_bytes() const;
  };
  struct CtaCounts {
    CtaCounts(std::uint32_t number, std::size_t sites, std::uint64_t l1_bytes, const StoreRuns& runs)
        : number(number), sites(sites), l1(l1_bytes), merging(runs) {}
    std::uint32_t number;
    std::vector<SiteCounts> sites;
    L1Model l1;
    FetchesOfSms::OfCta fetches;
    std::uint64_t turns = 0;  // sectors asked of the L2
    std::vector<L2Request> requests;
    std::unordered_set<std::uint64_t> partly_stored;  // sectors
    StoreMerging merging;
  };
  static CtaCounts& of(const Cta& cta);
  struct Sectors;

  void ask(CtaCounts& cta, std::uint64_t sector, L2Access access);
  void load(CtaCounts& cta, std::size_t site, std::uint64_t sector);
  void store(CtaCounts& cta, std::uint32_t site, const Warp& warp, const Sectors& sectors);
  void send_stores(CtaCounts& cta);
  void find_hits_of_neighbours();
  void add_metrics(KernelCounts& counts, const Report& report) const;
  void add_notes(KernelCounts& counts) const;

  const Launch& launch_;
  MemorySites sites_;
  Residency residency_;
  std::optional<StoreRuns> store_runs_known_;
  StoreRuns store_runs_;
  TouchedSectors touched_;
  bool races_;
  L2Listener* l2_;
  std::optional<GlobalAccesses> accesses_;
  std::mutex mutex_;
  std::vector<SiteCounts> total_;
  FetchesOfSms fetches_;
  std::atomic<std::uint64_t> kept_fetches_ = 0;
};

/// Where the source has an instruction: the innermost place that is no header of the toolkit's.
SourceLine source_of(const ptx::Module& module, const ptx::Instruction& instruction);

}  // namespace tilescope::gpu::emulator
