// SPDX-License-Identifier: Apache-2.0
#include "emulator/counts/global_accesses.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <set>

namespace tilescope::gpu::emulator {
namespace {

constexpr std::uint64_t kKnown = 1ull << 63, kMostAccountBytes = 4ull << 30;
constexpr std::uint32_t kMostPlaceBytes = 4;

/// The narrowest access of the kernel's ordinary instructions: no place is shared by two of them.
std::uint32_t place_bytes_of(const ptx::Kernel& kernel) {
  std::uint32_t least = kMostPlaceBytes;
  for (const ptx::Instruction& instruction : kernel.instructions) {
    const std::string_view word = instruction.word();
    if (word != "ld" && word != "st" && word != "atom" && word != "red") continue;
    if (instruction.has_any({"b8", "u8", "s8"})) return 1;
    if (instruction.has_any({"b16", "u16", "s16", "f16", "bf16"})) least = 2;
  }
  return least;
}

void lower(std::atomic<std::uint64_t>& least, std::uint64_t to) {
  for (std::uint64_t now = least.load(std::memory_order_relaxed);
       to < now && !least.compare_exchange_weak(now, to, std::memory_order_relaxed);) {
  }
}
void raise(std::atomic<std::uint64_t>& most, std::uint64_t to) {
  for (std::uint64_t now = most.load(std::memory_order_relaxed);
       to > now && !most.compare_exchange_weak(now, to, std::memory_order_relaxed);) {
  }
}

constexpr std::uint64_t cluster_of(std::uint64_t who) { return who >> 32; }

}  // namespace

bool may_order_ctas(const ptx::Kernel& kernel) {
  return std::ranges::any_of(kernel.instructions, [](const ptx::Instruction& instruction) {
    const std::string_view word = instruction.word();
    if (word == "fence") return instruction.has_any({"gpu", "sys"});
    if (word == "membar") return instruction.has_any({"gl", "sys"});
    if (word != "ld" && word != "st" && word != "atom" && word != "red") return false;
    if (instruction.has_any({"shared", "shared::cta", "shared::cluster"})) return false;
    const bool waits = word == "ld" && instruction.has_any({"relaxed", "volatile"});
    return waits || instruction.has_any({"acquire", "release", "acq_rel"});
  });
}

bool GlobalAccesses::fits(const Launch& launch, const Memory& memory) {
  std::uint64_t bytes = 0;
  for (const auto& [base, allocation] : memory.allocations()) bytes += allocation.bytes;
  return bytes / place_bytes_of(*launch.kernel) <= kMostAccountBytes / sizeof(Place);
}

GlobalAccesses::GlobalAccesses(const Launch& launch, const Memory& memory)
    : launch_(launch), place_bytes_(place_bytes_of(*launch.kernel)) {
  for (const auto& [base, allocation] : memory.allocations()) {
    const std::uint64_t count = (allocation.bytes + place_bytes_ - 1) / place_bytes_;
    regions_.push_back({&allocation, count, std::make_unique<Place[]>(count)});
  }
}

std::uint64_t GlobalAccesses::who(const Cta& cta, const ptx::Instruction& instruction) const {
  const Extent &grid = launch_.grid, &cluster = launch_.cluster;
  const std::uint64_t x = cta.index.x / cluster.x, y = cta.index.y / cluster.y, z = cta.index.z / cluster.z;
  const std::uint64_t number =
      x + std::uint64_t{grid.x / cluster.x} * (y + std::uint64_t{grid.y / cluster.y} * z);
  return number << 32 | static_cast<std::uint64_t>(&instruction - launch_.kernel->instructions.data());
}

void GlobalAccesses::touch(Place& place, Way way, std::uint64_t who, std::optional<std::uint64_t> value) {
  lower(place.first[way], who);
  raise(place.last[way], who);
  if (way == kRead && place.first[kWrite] == ~0ull && place.first[kAtomic] == ~0ull)
    place.unwritten_read = static_cast<std::uint32_t>(who) + 1;
  if (way != kWrite) return;
  std::uint64_t before = 0;
  const std::uint64_t now = value.value_or(0) | kKnown;
  if (!value || (!place.value.compare_exchange_strong(before, now) && before != now))
    place.values_differ = true;
}

void GlobalAccesses::touch(std::uint64_t address, std::uint32_t bytes, Way way, std::uint64_t who,
                           const std::byte* value) {
  auto region = std::ranges::upper_bound(regions_, address, {},
                                         [](const Region& each) { return each.allocation->base; });
  if (region == regions_.begin()) return;
  --region;
  for (std::uint32_t at = 0; at < bytes; at += place_bytes_) {
    const std::uint64_t index = (address + at - region->allocation->base) / place_bytes_;
    if (index >= region->count) return;
    std::optional<std::uint64_t> of_place;
    if (value) std::memcpy(&of_place.emplace(0), value + at, std::min(place_bytes_, bytes - at));
    touch(region->places[index], way, who, of_place);
  }
}

void GlobalAccesses::note(const LaneRequest& request) {
  const std::uint64_t who = this->who(request.warp.cta, *request.warp.instruction);
  const Way way = request.purpose == Purpose::load    ? kRead
                  : request.purpose == Purpose::store ? kWrite
                                                      : kAtomic;
  for_lanes(request.lanes, [&](int lane) {
    std::byte stored[16];
    const bool known = way == kWrite && stored_bytes(request.warp, lane, request.bytes, stored);
    touch(request.addresses[lane], request.bytes, way, who, known ? stored : nullptr);
  });
}

void GlobalAccesses::note(const EngineRun& run) {
  const Way way = run.purpose == Purpose::load ? kRead : run.purpose == Purpose::store ? kWrite : kAtomic;
  touch(run.address + run.begin, run.end - run.begin, way, who(run.cta, run.instruction), nullptr);
}

std::optional<GlobalAccesses::Pair> GlobalAccesses::race_at(const Place& place) {
  const auto touched = [&](Way way) { return place.first[way] != ~0ull; };
  if (!touched(kWrite)) {
    if (!touched(kRead) || !touched(kAtomic)) return {};
  } else if (cluster_of(place.first[kWrite]) != cluster_of(place.last[kWrite]) && place.values_differ) {
    return Pair{kWrite, kWrite, place.first[kWrite], place.last[kWrite]};
  }
  for (const auto& [one, other] : {std::pair(kWrite, kRead), {kWrite, kAtomic}, {kAtomic, kRead}}) {
    if (!touched(one) || !touched(other)) continue;
    for (const std::uint64_t first : {place.first[one].load(), place.last[one].load()}) {
      for (const std::uint64_t second : {place.first[other].load(), place.last[other].load()}) {
        if (cluster_of(first) != cluster_of(second)) return Pair{one, other, first, second};
      }
    }
  }
  return {};
}

int GlobalAccesses::line_of(std::uint64_t who) const {
  return launch_.kernel->instructions[static_cast<std::uint32_t>(who)].line;
}

Race GlobalAccesses::described(const Region& region, std::uint64_t index, const Pair& pair) const {
  const auto words = [&](Way way, std::uint64_t who) {
    constexpr const char* kVerbs[] = {"reads", "writes", "updates atomically"};
    return fmt::format("{} {} {} at PTX line {}", launch_.cluster.count() > 1 ? "cluster" : "CTA",
                       cluster_of(who), kVerbs[way], line_of(who));
  };
  return {fmt::format("{}, {} B from its beginning: {}, {}, and nothing orders the two",
                      region.allocation->name, index * place_bytes_, words(pair.first_way, pair.first),
                      words(pair.second_way, pair.second)),
          line_of(pair.first), line_of(pair.second)};
}

std::vector<Race> GlobalAccesses::races() const {
  if (may_order_ctas(*launch_.kernel)) return {};
  std::vector<Race> races;
  std::set<std::pair<int, int>> told;
  for (const Region& region : regions_) {
    for (std::uint64_t i = 0; i < region.count; ++i) {
      const std::optional<Pair> pair = race_at(region.places[i]);
      if (pair && told.insert({line_of(pair->first), line_of(pair->second)}).second)
        races.push_back(described(region, i, *pair));
    }
  }
  return races;
}

std::vector<Race> GlobalAccesses::unwritten_reads() const {
  std::vector<Race> reads;
  std::set<int> told;
  for (const Region& region : regions_) {
    for (std::uint64_t i = 0; region.allocation->uninitialised && i < region.count; ++i) {
      const std::uint32_t instruction = region.places[i].unwritten_read;
      if (instruction == 0) continue;
      const int line = line_of(instruction - 1);
      if (!told.insert(line).second) continue;
      reads.push_back({fmt::format("{}, {} B from its beginning: line {} reads what nobody wrote",
                                   region.allocation->name, i * place_bytes_, line),
                       line, line});
    }
  }
  return reads;
}

}  // namespace tilescope::gpu::emulator
