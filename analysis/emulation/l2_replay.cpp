// SPDX-License-Identifier: Apache-2.0
#include "analysis/emulation/l2_replay.hpp"

#include <algorithm>
#include <bit>
#include <functional>
#include <numeric>
#include <queue>
#include <utility>

#include "analysis/model/replay/cache/split_l2.hpp"
#include "analysis/model/replay/ctas/cta_schedule.hpp"

namespace tilescope {

namespace emulator = gpu::emulator;

L2Replay::L2Replay(const SplitL2Shape& shape, std::int64_t sms, const std::vector<Buffer>& buffers)
    : shape_(shape), sms_(sms), sample_(shape) {
  constexpr std::uint64_t kLine = LineSample::kLineBytes, kAlign = 512;
  std::uint64_t on_device = 0;
  for (const Buffer& buffer : buffers) {
    Place place{buffer.address / kLine, (buffer.address + buffer.bytes + kLine - 1) / kLine, {}};
    place.lines.assign(place.end - place.begin, kNone);
    const std::uint64_t bytes = place.lines.size() * kLine;
    sample_.for_each_line(static_cast<std::int64_t>(on_device), static_cast<std::int64_t>(bytes),
                          [&](std::int64_t address, LineSample::Line line) {
                            place.lines[(static_cast<std::uint64_t>(address) - on_device) / kLine] =
                                sample_.size();
                            sample_.append(line);
                          });
    on_device += (bytes + kAlign - 1) / kAlign * kAlign;
    places_.push_back(std::move(place));
  }
  std::ranges::sort(places_, {}, &Place::begin);
  read_sectors_.resize(sample_.size());
  written_sectors_.resize(sample_.size());
}

L2Replay::Number L2Replay::line_of(std::uint64_t sector) const {
  const std::uint64_t line = sector / kSectorsPerLine;
  const auto after = std::ranges::upper_bound(places_, line, {}, &Place::begin);
  if (after == places_.begin()) return kNone;
  const Place& place = *std::prev(after);
  return line < place.end ? place.lines[line - place.begin] : kNone;
}

void L2Replay::add(std::uint32_t cta, std::uint64_t turns, std::vector<emulator::L2Request> requests) {
  Cta& its = ctas_[cta];
  its.turns = turns;
  for (const auto& [sector, turn, access] : requests) {
    const Number line = line_of(sector);
    const auto bit = static_cast<std::uint8_t>(1u << sector % kSectorsPerLine);
    if (access != emulator::L2Access::store) read_sectors_[line] |= bit;
    if (access != emulator::L2Access::load) written_sectors_[line] |= bit;
    const AccessKind kind = access == emulator::L2Access::load    ? AccessKind::load
                            : access == emulator::L2Access::store ? AccessKind::store
                                                                  : AccessKind::reduce;
    its.requests.push_back({turn, line, kind});
  }
}

/// All requests of a launch in the order of their times.
std::vector<L2Replay::Event> L2Replay::events(std::size_t launch) const {
  const auto slots = std::min<std::size_t>(ctas_.size(), static_cast<std::size_t>(sms_) * ctas_per_sm_);
  const std::vector<SmPlace> places = places_of_slots(shape_.sm_groups, slots, launch, 0);
  using Free = std::pair<std::uint64_t, std::size_t>;  // since when, which slot
  std::priority_queue<Free, std::vector<Free>, std::greater<>> free;
  for (std::size_t slot = 0; slot < slots; ++slot) free.emplace(0, slot);
  std::vector<Event> events;
  for (const auto& [number, cta] : ctas_) {
    const auto [begin, slot] = free.top();
    free.pop();
    for (const Request& request : cta.requests)
      events.push_back({begin + request.turn, request.line, request.kind, places[slot].partition});
    free.emplace(begin + cta.turns, slot);
  }
  std::ranges::stable_sort(events, {}, &Event::time);
  return events;
}

L2Replay::Again L2Replay::replayed(std::size_t launch) const {
  SplitL2 l2(sample_, shape_.dirty_ways);
  std::vector<bool> seen(sample_.size());
  std::int64_t again = 0;  // sectors
  for (const Event& event : events(launch)) {
    const std::int64_t missed = l2.access(event.kind, {event.line, event.line + 1}, event.partition);
    if (seen[event.line]) again += missed * std::popcount(read_sectors_[event.line]);
    seen[event.line] = true;
  }
  const auto lines_written =
      std::ranges::count_if(written_sectors_, [](std::uint8_t sectors) { return sectors != 0; });
  const auto sectors_written =
      std::accumulate(written_sectors_.begin(), written_sectors_.end(), std::int64_t{0},
                      [](std::int64_t sum, std::uint8_t sectors) { return sum + std::popcount(sectors); });
  const double of_line =
      lines_written == 0 ? 0 : static_cast<double>(sectors_written) / static_cast<double>(lines_written);
  // Of a sector of the sample, the bytes that it stands for.
  const double bytes = sample_.bytes_per_line() / static_cast<double>(kSectorsPerLine);
  return {static_cast<double>(again) * bytes,
          static_cast<double>(l2.num_written() - lines_written) * of_line * bytes};
}

L2Replay::Again L2Replay::again() const {
  constexpr std::size_t kLaunches = 4, kGroupsBetween = 3;  // as simulate_split_l2() has them
  Again sum;
  for (std::size_t i = 0; i < kLaunches; ++i) {
    const Again one = replayed(kGroupsBetween * i);
    sum.read_bytes += one.read_bytes / kLaunches;
    sum.written_bytes += one.written_bytes / kLaunches;
  }
  return sum;
}

}  // namespace tilescope
