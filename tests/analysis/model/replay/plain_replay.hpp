// SPDX-License-Identifier: Apache-2.0
// The replay in the fewest words, without regard to time: what the one in use must say as well.
#pragma once

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <tuple>
#include <vector>

#include "analysis/model/replay/ctas/cta_schedule.hpp"
#include "analysis/model/replay/tiles/tile_memory.hpp"
#include "analysis/model/replay/traffic_simulator.hpp"
#include "common/statistics.hpp"
#include "cpu_ref/numeric/philox.hpp"

namespace tilescope::testing {

/// What a CTA accesses in a step, and beside which partition of the L2.
struct PlainStep {
  const Operand* operands;
  int batch, head, m_block, n_block, partition;
  bool operator==(const PlainStep&) const = default;
};

/// All steps of a launch: each is that of the slot with the earliest turn, found by looking at all of them.
class PlainCtas {
 public:
  PlainCtas(const TileProgram& program, const CtaSchedule& schedule)
      : program_(program),
        schedule_(schedule),
        num_sms_(static_cast<std::size_t>(
            std::max<std::int64_t>(1, schedule.co_resident_ctas / schedule.ctas_per_sm))) {
    const auto slots = static_cast<std::size_t>(std::min(schedule.co_resident_ctas, program.num_ctas()));
    places_ = places_of_slots(schedule.sm_groups, slots, schedule.launch, schedule.progress.clock_cv);
    for (std::size_t slot = 0; slot < slots; ++slot) {
      running_.push_back({CtaWalk(program, next_cta_), next_cta_});
      ++next_cta_;
    }
  }

  std::optional<PlainStep> next(AccessGroup& group) {
    while (true) {
      std::size_t slot = running_.size();
      for (std::size_t other = 0; other < running_.size(); ++other) {
        if (running_[other].index == kRetired) continue;
        if (slot == running_.size() || running_[other].turn < running_[slot].turn) slot = other;
      }
      if (slot == running_.size()) return std::nullopt;
      Cta& cta = running_[slot];
      bool busy = true;
      if (cta.waits) {
        group = *cta.waits;
        cta.waits.reset();
      } else {
        busy = cta.walk.next(group);
      }
      while (!busy) {
        const std::int64_t next = number_after(cta);
        if (next >= program_.num_ctas()) break;
        cta = {CtaWalk(program_, next), next, cta.turn};
        busy = cta.walk.next(group);
      }
      if (!busy) {
        cta.index = kRetired;
        continue;
      }
      cta.turn += ticks_of_step(slot);
      if (must_wait(group)) {
        cta.waits = group;
        continue;
      }
      return PlainStep{group.operands.data(), group.batch,   group.head,
                       group.m_block,         group.n_block, places_[slot].partition};
    }
  }

 private:
  static constexpr std::int64_t kRetired = -1;
  struct Cta {
    CtaWalk walk;
    std::int64_t index, turn = 0;
    std::uint32_t steps = 0;
    std::optional<AccessGroup> waits = std::nullopt;
  };

  /// What the slot of a CTA that has retired goes on with; none where that is beyond the last.
  std::int64_t number_after(const Cta& cta) {
    const auto slots = static_cast<std::int64_t>(running_.size());
    switch (program_.hand_out()) {
      case HandOut::there_and_back:
        return (cta.index / slots + 1) * slots + (slots - 1 - cta.index % slots);
      default:
        return next_cta_ < program_.num_ctas() ? next_cta_++ : next_cta_;
    }
  }

  /// Whether the sum that it would add to lacks the part of another kv tile; if not, it is added to.
  bool must_wait(const AccessGroup& group) {
    const auto adds = [](const Operand& operand) {
      return operand.tensor == TensorName::dq_accum && operand.kind != AccessKind::load;
    };
    if (!program_.waits_for_sums() || std::none_of(group.operands.begin(), group.operands.end(), adds)) {
      return false;
    }
    std::set<int>& there = added_[{group.batch, group.head, group.m_block}];
    const TileRuns adders =
        program_.problem.mask_of(group.batch).kv_tiles(program_.access_tile(), group.m_block);
    const bool from_last = program_.ordered && program_.grid.descends();
    const auto adder = [&](int i) { return adders[from_last ? adders.count() - 1 - i : i]; };
    int rank = 0;
    while (adder(rank) != group.n_block) ++rank;
    const DqSlots slots = dq_slots(program_);
    for (int i = slots.slot(rank); i < rank; i += slots.count) {
      if (!there.contains(adder(i)) && (program_.ordered || i == 0)) return true;
    }
    there.insert(group.n_block);
    return false;
  }

  static double about_one(double cv, std::uint64_t number, std::uint32_t launch, std::uint32_t stream) {
    double sum = -2;
    const auto low = static_cast<std::uint32_t>(number), high = static_cast<std::uint32_t>(number >> 32);
    for (const std::uint32_t bits : philox4x32(0, {{low, high, launch, stream}}).x) {
      sum += (bits + 0.5) / 4294967296.0;
    }
    return std::max(0.1, 1 + cv * sum / 0.57735026918962576);
  }

  std::size_t sm_of(std::size_t slot) const {
    return schedule_.sm_groups.empty() ? slot % num_sms_ : places_[slot].sm;
  }

  std::int64_t ticks_of_step(std::size_t slot) {
    Cta& cta = running_[slot];
    bool oldest = true, alone = schedule_.ctas_per_sm > 1;
    for (std::size_t other = 0; other < running_.size(); ++other) {
      if (other == slot || sm_of(other) != sm_of(slot) || running_[other].index == kRetired) continue;
      alone = false;
      oldest = oldest && cta.index < running_[other].index;
    }
    const ProgressRates& progress = schedule_.progress;
    const auto launch = static_cast<std::uint32_t>(schedule_.launch);
    const double of_tpc = about_one(progress.tpc_cv, sm_of(slot) / 2, launch, 2);
    const double rate = alone ? progress.alone_rate : oldest ? 1 : progress.younger_rate;
    auto ticks = static_cast<std::int64_t>((1 << 20) / (places_[slot].clock * of_tpc * rate));
    if (program_.work(cta.index).end_block == program_.num_blocks()) {
      ticks = static_cast<std::int64_t>(schedule_.ragged_pace * static_cast<double>(ticks));
    }
    if (progress.step_cv == 0) return ticks;
    const std::uint64_t step = (static_cast<std::uint64_t>(cta.index) << 32) + cta.steps++;
    return static_cast<std::int64_t>(about_one(progress.step_cv, step, launch, 1) *
                                     static_cast<double>(ticks));
  }

  const TileProgram& program_;
  CtaSchedule schedule_;
  std::size_t num_sms_;
  std::int64_t next_cta_ = 0;
  std::vector<SmPlace> places_;
  std::vector<Cta> running_;
  std::map<std::tuple<int, int, int>, std::set<int>> added_;  // kv tiles, by batch entry, head and q tile
};

/// A line of memory, in the sample: its address, its set and its home.
struct PlainLine {
  std::int64_t address, set;
  int home;
  bool evict_first = false;
  auto operator<=>(const PlainLine&) const = default;
};

/// Those that begin among `bytes` bytes from `address` on: each line of memory is looked at.
inline std::vector<PlainLine> plain_lines(const SplitL2Shape& shape, std::int64_t address,
                                          std::int64_t bytes) {
  constexpr std::int64_t kLine = SplitL2Shape::kLineBytes, kLinesOfRun = SplitL2Shape::kHomeBytes / kLine;
  const auto random_of = [](std::int64_t index, std::uint32_t stream) {
    return philox4x32(
        0, {{static_cast<std::uint32_t>(index), static_cast<std::uint32_t>(index >> 32), stream, 0}});
  };
  const std::int64_t sets = shape.sets(), pairs = sets / kLinesOfRun;
  std::vector<PlainLine> lines;
  for (std::int64_t line = (address + kLine - 1) / kLine; line * kLine < address + bytes; ++line) {
    const std::int64_t run = line / kLinesOfRun, pair = run / 2;
    const Philox4 of_fill = random_of(pair / pairs, 0);
    std::int64_t step = of_fill.x[1] % sets;
    while (std::gcd(step, sets) != 1) step = (step + 1) % sets;
    const std::int64_t home = (run + random_of(pair, 1).x[0] % 2) % 2;
    const std::int64_t place = (pair % pairs ^ home) * kLinesOfRun + line % kLinesOfRun;
    const std::int64_t set = (place * step + of_fill.x[0] % sets) % sets;
    if (set < SplitL2Shape::kLeastSets) lines.push_back({line * kLine, set, static_cast<int>(home)});
  }
  return lines;
}

/// Two partitions of sets of addresses, newest first.
class PlainSplitL2 {
 public:
  PlainSplitL2(std::int64_t ways, std::optional<std::int64_t> dirty_ways)
      : ways_(ways),
        dirty_ways_(dirty_ways.value_or(ways)),
        young_ways_(dirty_ways ? std::max(ways - 2, *dirty_ways) : ways) {}

  /// @return whether the line comes from DRAM
  bool access(AccessKind kind, const PlainLine& line, int partition) {
    bool found = true;
    if (kind == AccessKind::load) {
      found = touch(partition, line) || (line.home != partition && touch(line.home, line));
    } else if (kind == AccessKind::store) {
      touch(partition, line);
      if (line.home != partition) touch(line.home, line);
    } else {
      found = touch(line.home, line);
    }
    if (kind != AccessKind::load) make_dirty(line);
    return !found;
  }
  std::int64_t num_written() const { return written_back_ + static_cast<std::int64_t>(dirty_.size()); }

 private:
  using Set = std::vector<PlainLine>;

  bool touch(int partition, const PlainLine& line) {
    Set& set = sets_[{partition, line.set}];
    const auto place = std::find(set.begin(), set.end(), line);
    const bool held = place != set.end();
    if (held) set.erase(place);
    if (static_cast<std::int64_t>(set.size()) == ways_) {
      auto gone =
          std::find_if(set.rbegin(), set.rend(), [](const PlainLine& one) { return one.evict_first; });
      if (gone == set.rend()) gone = set.rbegin();
      if (gone->home == partition) written_back_ += static_cast<std::int64_t>(dirty_.erase(*gone));
      set.erase(std::next(gone).base());
    }
    set.insert(set.begin(), line);
    if (static_cast<std::int64_t>(set.size()) > young_ways_) {
      const PlainLine& aged = set[static_cast<std::size_t>(young_ways_)];
      if (aged.home == partition) written_back_ += static_cast<std::int64_t>(dirty_.erase(aged));
    }
    return held;
  }
  void make_dirty(const PlainLine& line) {
    if (!dirty_.insert(line).second) return;
    std::int64_t count = 0;
    const PlainLine* oldest = nullptr;
    for (const PlainLine& other : sets_[{line.home, line.set}]) {
      if (!dirty_.contains(other) || other.home != line.home) continue;
      ++count;
      oldest = &other;
    }
    if (count > dirty_ways_) written_back_ += static_cast<std::int64_t>(dirty_.erase(*oldest));
  }

  std::int64_t ways_, dirty_ways_, young_ways_, written_back_ = 0;
  std::map<std::pair<int, std::int64_t>, Set> sets_;
  std::set<PlainLine> dirty_;
};

/// What simulate_split_l2() replays in four launches or eight.
inline SplitL2Traffic plain_split_l2(const TileProgram& program, CtaSchedule schedule,
                                     const SplitL2Shape& shape, PagePlacement pages) {
  const bool random = pages == PagePlacement::random;
  std::vector<double> reads, writes;
  SplitL2Traffic traffic;
  for (std::uint32_t launch = 0; launch < (random ? 8 : 4); ++launch) {
    schedule.sm_groups = shape.sm_groups;
    schedule.launch = 3 * launch;
    traffic = {};
    TileMemory memory(program, random ? std::optional(launch) : std::nullopt);
    PlainSplitL2 l2(shape.ways, shape.dirty_ways);
    struct Tile {
      std::vector<PlainLine> lines;
      bool written = false;
    };
    std::map<std::tuple<TensorName, int, int, int, int>, Tile> tiles;
    std::int64_t first_read = 0, read_again = 0, written = 0, written_lines = 0;
    PlainCtas ctas(program, schedule);
    AccessGroup group;
    while (const std::optional<PlainStep> step = ctas.next(group)) {
      for (const Operand& operand : group.operands) {
        const TileAccess access =
            program.access(operand, group.batch, group.head, group.m_block, group.n_block);
        ++traffic.accesses;
        const auto [entry, first] = tiles.try_emplace(
            {access.tensor, access.batch, access.head, access.m_block, access.n_block}, Tile{});
        Tile& tile = entry->second;
        const AccessKind kind = operand.kind != AccessKind::store_then_reduce ? operand.kind
                                : first                                       ? AccessKind::store
                                                                              : AccessKind::reduce;
        if (kind == AccessKind::load) traffic.load_bytes += access.bytes;
        traffic.add_beside(kind, access.filled_bytes);
        if (operand.kind == AccessKind::store_then_reduce) {
          ++traffic.sums;
          traffic.first_sums += first;
        }
        if (kind == AccessKind::store) traffic.store_bytes += access.bytes;
        if (kind == AccessKind::reduce) traffic.reduce_bytes += access.bytes;
        if (first) {
          memory.for_each_run(operand.tensor, group, [&](std::int64_t address, std::int64_t bytes) {
            for (PlainLine line : plain_lines(shape, address, bytes)) {
              line.evict_first = program.evict_first(operand.tensor);
              tile.lines.push_back(line);
            }
          });
          if (kind != AccessKind::store) first_read += access.bytes;
        }
        if (kind != AccessKind::load && !tile.written) {
          tile.written = true;
          written += access.bytes;
          written_lines += static_cast<std::int64_t>(tile.lines.size());
        }
        for (const PlainLine& line : tile.lines) {
          read_again += l2.access(kind, line, step->partition) && !first;
        }
      }
    }
    traffic.add_words(program);
    const double bytes_per_line = static_cast<double>(SplitL2Shape::kLineBytes * shape.sets()) /
                                  static_cast<double>(SplitL2Shape::kLeastSets);
    const auto bytes_of = [bytes_per_line](std::int64_t lines) {
      return std::round(bytes_per_line * static_cast<double>(lines));
    };
    const auto asked = static_cast<double>(traffic.load_bytes + traffic.reduce_bytes);
    const auto wrote = static_cast<double>(traffic.store_bytes + traffic.reduce_bytes);
    reads.push_back(std::min(asked, static_cast<double>(first_read) + bytes_of(read_again)));
    writes.push_back(
        std::min(wrote, static_cast<double>(written) + bytes_of(l2.num_written() - written_lines)));
  }
  traffic.dram_read_bytes = std::llround(random ? median_of(reads) : mean_of(reads));
  traffic.dram_write_bytes = std::llround(random ? median_of(writes) : mean_of(writes));
  if (random) {
    const auto [least, largest] = std::minmax_element(reads.begin(), reads.end());
    traffic.dram_read_range = {std::llround(*least), std::llround(*largest)};
    const auto [fewest, most] = std::minmax_element(writes.begin(), writes.end());
    traffic.dram_write_range = {std::llround(*fewest), std::llround(*most)};
  }
  return traffic;
}

}  // namespace tilescope::testing
