// SPDX-License-Identifier: Apache-2.0
#include "emulator/counts/traffic_counter.hpp"

#include <algorithm>
#include <memory>
#include <tuple>
#include <utility>

#include "emulator/counts/crossing.hpp"

namespace tilescope::gpu::emulator {
namespace {

constexpr std::uint64_t kBankBytes = 128;
constexpr std::uint64_t kSectorMask = (1ull << 48) - 1, kMostSites = 1u << 16;

std::uint64_t number_of(const Cta& cta) {
  const Extent& grid = cta.run.launch.grid;
  return cta.index.x + std::uint64_t{grid.x} * (cta.index.y + std::uint64_t{grid.y} * cta.index.z);
}

/// How often threads of a CTA have waited for one another.
std::uint64_t barriers_of(const Cta& cta) {
  std::uint64_t completed = 0;
  for (const NamedBarrier& barrier : cta.barriers) completed += barrier.phase;
  return completed;
}

/// Of `bytes` from one on, those of a sector.
std::uint32_t bits_of(std::uint64_t first, std::uint64_t bytes) {
  return static_cast<std::uint32_t>(((1ull << std::min(bytes, kSectorBytes)) - 1) << first);
}

bool is_toolkit_header(const std::string& path) {
  return path.find("/cuda") != std::string::npos && path.find("/include/") != std::string::npos;
}

}  // namespace

/// What a request asks for: different sectors, each with the bytes asked of it.
struct TrafficCounter::Sectors {
  explicit Sectors(const LaneRequest& request);
  struct One {
    std::uint64_t number;
    std::uint32_t bytes, covered;  // covered: a bit a byte
  };
  std::array<One, kLanes> all{};
  unsigned count = 0;
  std::uint64_t different_bytes = 0;
};

TrafficCounter::Sectors::Sectors(const LaneRequest& request) {
  std::array<std::uint64_t, kLanes> addresses;
  unsigned lanes = 0;
  for_lanes(request.lanes, [&](int lane) { addresses[lanes++] = request.addresses[lane]; });
  std::sort(addresses.begin(), addresses.begin() + lanes);
  for (unsigned i = 0; i < lanes; ++i) {
    if (i > 0 && addresses[i] == addresses[i - 1]) continue;
    different_bytes += request.bytes;
    const std::uint64_t number = addresses[i] / kSectorBytes;
    if (count == 0 || all[count - 1].number != number) {
      all[count++] = {number, 0, 0};
    }
    all[count - 1].bytes += request.bytes;
    all[count - 1].covered |= bits_of(addresses[i] % kSectorBytes, request.bytes);
  }
}

void TrafficCounter::SiteCounts::add(const SiteCounts& other) {
  requests += other.requests;
  asked_bytes += other.asked_bytes;
  sectors += other.sectors;
  least_sectors += other.least_sectors;
  read_sectors += other.read_sectors;
  l1_hits += other.l1_hits;
  l1_again += other.l1_again;
  store_sectors += other.store_sectors;
  merged_sectors += other.merged_sectors;
  least_sectors_stored += other.least_sectors_stored;
  reduced_sectors += other.reduced_sectors;
  atomic_sectors += other.atomic_sectors;
  engine_read_bytes += other.engine_read_bytes;
  engine_again_bytes += other.engine_again_bytes;
  engine_beyond_bytes += other.engine_beyond_bytes;
  engine_write_bytes += other.engine_write_bytes;
  engine_reduced_bytes += other.engine_reduced_bytes;
  shared_requests += other.shared_requests;
  wavefronts += other.wavefronts;
  least_wavefronts += other.least_wavefronts;
}

std::uint64_t TrafficCounter::SiteCounts::read_bytes() const {
  return (read_sectors + atomic_sectors) * kSectorBytes + engine_read_bytes;
}

std::uint64_t TrafficCounter::SiteCounts::write_bytes() const {
  return (merged_sectors + reduced_sectors + atomic_sectors) * kSectorBytes + engine_write_bytes +
         engine_reduced_bytes;
}

TrafficCounter::TrafficCounter(const Launch& launch, const Memory& memory, std::optional<int> registers,
                               bool races, L2Listener* l2, const std::optional<StoreRuns>& store_runs)
    : launch_(launch),
      sites_(*launch.kernel),
      residency_(residency_of(launch, registers)),
      store_runs_known_(store_runs),
      store_runs_(store_runs.value_or(StoreRuns{})),
      touched_(memory),
      races_(races),
      l2_(l2),
      total_(sites_.size()) {
  if (races && GlobalAccesses::fits(launch, memory)) accesses_.emplace(launch, memory);
  if (l2) l2->begin(residency_.ctas);
}

TrafficCounter::CtaCounts& TrafficCounter::of(const Cta& cta) {
  return **std::any_cast<std::shared_ptr<CtaCounts>>(&cta.observed);
}

void TrafficCounter::begin(Cta& cta) {
  cta.observed = std::make_shared<CtaCounts>(static_cast<std::uint32_t>(number_of(cta)), sites_.size(),
                                             residency_.share(), store_runs_);
}

void TrafficCounter::end(Cta& cta) {
  CtaCounts& counts = of(cta);
  send_stores(counts);
  const std::lock_guard lock(mutex_);
  fetches_.add(cta.sm, counts.number, std::move(counts.fetches));
  if (l2_) l2_->add(counts.number, counts.turns, std::move(counts.requests));
  for (std::size_t i = 0; i < total_.size(); ++i) total_[i].add(counts.sites[i]);
}

/// Counts a sector that crosses to the L2 or from it.
void TrafficCounter::ask(CtaCounts& cta, std::uint64_t sector, L2Access access) {
  if (access == L2Access::load) touched_.read(sector, cta.number);
  if (access == L2Access::store) touched_.write(sector, cta.number);
  if (access == L2Access::update) touched_.update(sector, cta.number);
  if (!l2_) return;
  if (l2_->wants(sector)) cta.requests.push_back({sector, cta.turns, access});
  ++cta.turns;
}

void TrafficCounter::load(CtaCounts& cta, std::size_t site, std::uint64_t sector) {
  SiteCounts& counts = cta.sites[site];
  const bool by_l1 = sites_[site].route == Route::l1;
  const bool hit = by_l1 && cta.l1.load(sector);
  ++(hit ? counts.l1_hits : counts.read_sectors);
  if (!hit && sites_[site].route != Route::constant) ask(cta, sector, L2Access::load);
  counts.l1_again += by_l1 && touched_.looks_again(sector);
  if (by_l1 && !hit && ++kept_fetches_ <= kMostKeptFetches)
    cta.fetches.push_back({sector & kSectorMask, static_cast<std::uint16_t>(site)});
}

/// Whole sectors leave at once; which of the others do is known when no store can meet them any more.
void TrafficCounter::store(CtaCounts& cta, std::uint32_t site, const Warp& warp, const Sectors& sectors) {
  SiteCounts& counts = cta.sites[site];
  const std::uint64_t barriers = barriers_of(warp.cta);
  if (cta.merging.is_due(barriers)) send_stores(cta);
  cta.merging.store(warp.index, barriers, site);
  for (unsigned i = 0; i < sectors.count; ++i) {
    const auto [sector, bytes, covered] = sectors.all[i];
    const bool whole = bytes == kSectorBytes;
    ++counts.store_sectors;
    counts.least_sectors_stored += whole || cta.partly_stored.insert(sector).second;
    cta.merging.add(sector, whole);
    touched_.cover(sector, covered);
    if (!whole) continue;
    ++counts.merged_sectors;
    ask(cta, sector, L2Access::store);
  }
}

void TrafficCounter::send_stores(CtaCounts& cta) {
  cta.merging.decide([&](std::uint32_t site, std::uint64_t sector) {
    ++cta.sites[site].merged_sectors;
    ask(cta, sector, L2Access::store);
  });
}

void TrafficCounter::global(const LaneRequest& request) {
  CtaCounts& cta = of(request.warp.cta);
  const std::size_t index = sites_.index_of(*request.warp.instruction);
  const MemorySite& site = sites_[index];
  SiteCounts& counts = cta.sites[index];
  const Sectors sectors(request);
  if (accesses_) accesses_->note(request);
  ++counts.requests;
  counts.asked_bytes += static_cast<std::uint64_t>(__builtin_popcount(request.lanes)) * request.bytes;
  counts.sectors += sectors.count;
  counts.least_sectors += (sectors.different_bytes + kSectorBytes - 1) / kSectorBytes;
  // A tensor map that a kernel puts where others read it goes as atomics do. Counted on an H100.
  const bool is_map = request.warp.instruction->opcode.starts_with("tensormap");
  if (request.purpose == Purpose::store && !is_map)
    return store(cta, static_cast<std::uint32_t>(index), request.warp, sectors);
  cta.merging.load(request.warp.index, barriers_of(request.warp.cta));
  if (request.warp.instruction->opcode.starts_with("cp.async.cg"))
    counts.read_sectors += sectors_of_copy(request) - sectors.count;
  for (unsigned i = 0; i < sectors.count; ++i) {
    const std::uint64_t sector = sectors.all[i].number;
    if (request.purpose == Purpose::load) {
      load(cta, index, sector);
    } else {
      ask(cta, sector, is_map ? L2Access::store : L2Access::update);
      ++(site.reduces ? counts.reduced_sectors : counts.atomic_sectors);
    }
  }
}

void TrafficCounter::shared(const LaneRequest& request, unsigned wavefronts) {
  SiteCounts& counts = of(request.warp.cta).sites[sites_.index_of(*request.warp.instruction)];
  const Sectors sectors(request);
  ++counts.shared_requests;
  counts.wavefronts += wavefronts;
  counts.least_wavefronts += (sectors.different_bytes + kBankBytes - 1) / kBankBytes;
}

void TrafficCounter::engine(const EngineRun& run) {
  CtaCounts& cta = of(run.cta);
  SiteCounts& counts = cta.sites[sites_.index_of(run.instruction)];
  const std::uint64_t begin = run.address + run.begin, bytes = run.end - run.begin;
  const std::uint64_t existing = sectors_spanned(begin, bytes) * kSectorBytes;
  counts.asked_bytes += bytes;
  if (accesses_ && bytes > 0) accesses_->note(run);
  for (std::uint64_t i = 0; i < existing / kSectorBytes; ++i) {
    const std::uint64_t sector = begin / kSectorBytes + i;
    const std::uint64_t from = std::max(begin, sector * kSectorBytes),
                        to = std::min(begin + bytes, (sector + 1) * kSectorBytes);
    if (run.purpose == Purpose::store) touched_.cover(sector, bits_of(from % kSectorBytes, to - from));
    ask(cta, sector,
        run.purpose == Purpose::load    ? L2Access::load
        : run.purpose == Purpose::store ? L2Access::store
                                        : L2Access::update);
  }
  if (run.purpose != Purpose::load) {
    (run.purpose == Purpose::store ? counts.engine_write_bytes : counts.engine_reduced_bytes) += existing;
    return;
  }
  const std::uint64_t crossing = sectors_of_row(begin, run.end - run.begin, run.bytes) * kSectorBytes;
  counts.engine_read_bytes += crossing;
  counts.engine_beyond_bytes += crossing - existing;
  if (run.again) counts.engine_again_bytes += crossing;
}

SourceLine source_of(const ptx::Module& module, const ptx::Instruction& instruction) {
  const auto path = [&](const ptx::SourcePlace& place) {
    const auto file = module.files.find(place.file);
    return file == module.files.end() ? std::string() : file->second;
  };
  ptx::SourcePlace place = instruction.source;
  for (const ptx::SourcePlace& caller : instruction.inlined_at) {
    if (!is_toolkit_header(path(place))) break;
    place = caller;
  }
  if (place.line == 0) return {"", 0, instruction.line};
  return {path(place), place.line, instruction.line};
}

void TrafficCounter::find_hits_of_neighbours() {
  if (kept_fetches_ > kMostKeptFetches || sites_.size() > kMostSites) return;
  const std::vector<std::uint64_t> hits = fetches_.hits(residency_, sites_.size());
  for (std::size_t i = 0; i < hits.size(); ++i) {
    total_[i].l1_hits += hits[i];
    total_[i].read_sectors -= hits[i];
  }
}

KernelCounts TrafficCounter::counts(const ptx::Module& module, const Report& report) {
  find_hits_of_neighbours();
  KernelCounts counts;
  std::map<std::tuple<std::string, int, int>, LineCounts> lines;
  const auto line_of = [&](const ptx::Instruction& instruction) -> LineCounts& {
    const SourceLine place = source_of(module, instruction);
    LineCounts& line = lines[{place.file, place.line, place.line > 0 ? 0 : place.ptx_line}];
    if (line.place.ptx_line == 0) {
      line.place = place;
      line.text = instruction.text;
    }
    return line;
  };
  for (std::size_t i = 0; i < report.executed.size(); ++i) {
    line_of(launch_.kernel->instructions[i]).instructions += report.executed[i];
  }
  for (std::size_t i = 0; i < total_.size(); ++i) {
    const SiteCounts& site = total_[i];
    if (sites_[i].route == Route::constant) {
      counts.constant_bytes += site.asked_bytes;
      continue;
    }
    LineCounts& line = line_of(sites_.instruction(i));
    line.requests += site.requests;
    line.asked_bytes += site.asked_bytes;
    line.sectors += site.sectors;
    line.least_sectors += site.least_sectors;
    line.read_bytes += site.read_bytes();
    line.write_bytes += site.write_bytes();
    line.least_write_bytes +=
        site.write_bytes() - (site.merged_sectors - site.least_sectors_stored) * kSectorBytes;
    line.l1_hit_bytes += site.l1_hits * kSectorBytes;
    line.beyond_tensor_bytes += site.engine_beyond_bytes;
    line.shared_requests += site.shared_requests;
    line.wavefronts += site.wavefronts;
    line.least_wavefronts += site.least_wavefronts;
  }
  for (auto& [key, line] : lines) {
    if (line.asked_bytes + line.read_bytes + line.write_bytes + line.shared_requests > 0)
      counts.lines.push_back(std::move(line));
  }
  counts.must_read_bytes = touched_.must_read_bytes();
  counts.must_write_bytes = touched_.must_write_bytes();
  counts.filled_bytes = touched_.filled_bytes();
  add_metrics(counts, report);
  add_notes(counts);
  return counts;
}

}  // namespace tilescope::gpu::emulator
