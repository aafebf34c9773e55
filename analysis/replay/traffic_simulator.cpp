// SPDX-License-Identifier: Apache-2.0
#include "analysis/replay/traffic_simulator.hpp"

#include <omp.h>

#include <algorithm>
#include <cmath>
#include <exception>

#include "analysis/replay/cache/reuse_stack.hpp"
#include "analysis/replay/cache/split_l2.hpp"
#include "analysis/replay/cache/tile_memory.hpp"
#include "analysis/replay/cache/tile_numbering.hpp"
#include "common/memory_budget.hpp"
#include "common/statistics.hpp"

namespace tilescope {
namespace {

/// Bytes by distance: a hash table with linear probing, because most of the time goes into it and the stack.
class DistanceTable {
 public:
  DistanceTable() : entries_(1 << 10) {}

  ReusePoint& at(std::int64_t distance) {
    ReusePoint* entry = &entries_[place(distance)];
    if (entry->distance_bytes == distance) return *entry;
    if (2 * ++used_ > entries_.size()) {
      grow();
      entry = &entries_[place(distance)];
    }
    entry->distance_bytes = distance;
    return *entry;
  }

  std::vector<ReusePoint> sorted() const {
    std::vector<ReusePoint> points;
    for (const ReusePoint& entry : entries_) {
      if (entry.distance_bytes != 0) points.push_back(entry);
    }
    std::sort(points.begin(), points.end(),
              [](const ReusePoint& a, const ReusePoint& b) { return a.distance_bytes < b.distance_bytes; });
    return points;
  }

 private:
  /// Where `distance` stands, or would stand.
  std::size_t place(std::int64_t distance) const {
    constexpr std::uint64_t kGolden =
        0x9E3779B97F4A7C15;  // Fibonacci hashing: distances share their low bits
    const std::size_t mask = entries_.size() - 1;
    std::size_t i = static_cast<std::uint64_t>(distance) * kGolden >> 32 & mask;
    while (entries_[i].distance_bytes != 0 && entries_[i].distance_bytes != distance) i = (i + 1) & mask;
    return i;
  }

  void grow() {
    std::vector<ReusePoint> old(2 * entries_.size());
    old.swap(entries_);
    for (const ReusePoint& entry : old) {
      if (entry.distance_bytes != 0) entries_[place(entry.distance_bytes)] = entry;
    }
  }

  std::vector<ReusePoint> entries_;  // a power of two; distance 0 is an empty place
  std::size_t used_ = 0;
};

/// An LRU cache of every size at once, with whole tiles as lines.
class LruOfEverySize {
 public:
  explicit LruOfEverySize(const TileNumbering& tiles)
      : tiles_(tiles), stack_(tiles.num_tiles()), largest_distance_(tiles.num_written_tiles(), kClean) {}

  void access(const AccessGroup& group) {
    for (const Operand& operand : group.operands) access(operand, tiles_.tile(operand.tensor, group));
  }

  PassTraffic finish() {
    traffic_.histogram = distances_.sorted();
    return std::move(traffic_);
  }

 private:
  static constexpr std::int64_t kClean = -1;

  void access(const Operand& operand, NumberedTile tile) {
    const std::int64_t distance = stack_.touch(tile.number, tile.bytes);
    traffic_.add(operand.kind, tile.bytes);
    if (operand.kind != AccessKind::store) {
      if (distance == ReuseStack::kNever) {
        traffic_.cold_read_bytes += tile.bytes;
      } else {
        distances_.at(distance).read_bytes += tile.bytes;
      }
    }
    if (tile.number < largest_distance_.size()) track_dirty(operand, tile, distance);
  }

  /// A tile stays dirty in the caches that have held it ever since it was written: those as large as its
  /// largest distance since. The others have written it back and hold it clean, or not at all.
  void track_dirty(const Operand& operand, NumberedTile tile, std::int64_t distance) {
    std::int64_t& largest = largest_distance_[tile.number];
    if (largest != kClean) largest = std::max(largest, distance);
    if (operand.kind == AccessKind::load) return;
    if (largest == kClean) {
      traffic_.flush_write_bytes += tile.bytes;  // its last write goes out at the latest with the final flush
    } else {
      distances_.at(largest).write_back_bytes += tile.bytes;
    }
    largest = 0;
  }

  const TileNumbering& tiles_;
  DistanceTable distances_;
  ReuseStack stack_;
  std::vector<std::int64_t> largest_distance_;  // by tile, since it was last written
  PassTraffic traffic_;
};

/// The tiles of a pass as lines of a sample: what every L2 must move of them is counted of all lines, the
/// rest of those in the sample.
class SampledTiles {
 public:
  struct Tile {
    LineSample::Range lines;
    bool touched = false, written = false;
  };

  /// @param layout  of pages at random places
  SampledTiles(const TileProgram& program, std::uint32_t num_tiles, const SplitL2Shape& shape,
               std::optional<std::uint32_t> layout)
      : memory_(program, layout), sample_(shape), tiles_(num_tiles) {}

  /// The lines of the tile that `operand` touches. @return whether it is touched for the first time, too
  std::pair<LineSample::Range, bool> touch(const Operand& operand, const AccessGroup& group,
                                           NumberedTile number) {
    Tile& tile = tiles_[number.number];
    const bool first = !tile.touched;
    if (first) {
      tile.touched = true;
      tile.lines.begin = sample_.size();
      memory_.for_each_run(operand.tensor, group, [this](std::int64_t address, std::int64_t bytes) {
        sample_.place(address, bytes);
      });
      tile.lines.end = sample_.size();
      if (operand.kind != AccessKind::store) first_read_bytes_ += number.bytes;
    }
    if (operand.kind != AccessKind::load && !tile.written) {
      tile.written = true;
      written_bytes_ += number.bytes;
      written_lines_ += tile.lines.count();
    }
    return {tile.lines, first};
  }

  const LineSample& sample() const { return sample_; }
  /// @param read_again, written  lines of the sample
  std::int64_t dram_read_bytes(std::int64_t read_again) const {
    return first_read_bytes_ + bytes_of(read_again);
  }
  std::int64_t dram_write_bytes(std::int64_t written) const {
    return written_bytes_ + bytes_of(written - written_lines_);
  }

 private:
  std::int64_t bytes_of(std::int64_t lines) const {
    return std::llround(sample_.bytes_per_line() * static_cast<double>(lines));
  }

  TileMemory memory_;
  LineSample sample_;
  std::vector<Tile> tiles_;
  std::int64_t first_read_bytes_ = 0, written_bytes_ = 0, written_lines_ = 0;
};

/// A launch of a pass, on an L2 in two partitions.
class LaunchReplay {
 public:
  LaunchReplay(SampledTiles tiles, const SplitL2Shape& shape)
      : tiles_(std::move(tiles)), l2_(tiles_.sample(), shape.dirty_ways) {}
  LaunchReplay(const LaunchReplay&) = delete;  // its L2 points to the tiles' sample
  LaunchReplay& operator=(const LaunchReplay&) = delete;

  /// @param partition  beside which the CTA runs
  void access(const Operand& operand, const AccessGroup& group, NumberedTile number, int partition) {
    const auto [lines, first] = tiles_.touch(operand, group, number);
    if (lines.count() == 0) return;  // none of them in the sample
    const std::int64_t missed = l2_.access(operand.kind, lines, partition);
    if (!first) read_again_ += missed;
  }

  std::int64_t dram_read_bytes() const { return tiles_.dram_read_bytes(read_again_); }
  std::int64_t dram_write_bytes() const { return tiles_.dram_write_bytes(l2_.num_written()); }

 private:
  SampledTiles tiles_;
  SplitL2 l2_;
  std::int64_t read_again_ = 0;  // lines of the sample
};

std::int64_t evicted_bytes(const std::vector<ReusePoint>& histogram, std::int64_t ReusePoint::*bytes,
                           std::int64_t l2_bytes) {
  std::int64_t sum = 0;
  for (const ReusePoint& point : histogram) {
    if (point.distance_bytes > l2_bytes) sum += point.*bytes;
  }
  return sum;
}

void require_memory_for_replay(std::int64_t bytes) {
  require_memory(bytes, "replaying this pass", "larger tiles or fewer heads would fit");
}

/// What the launches of a pass have in common.
struct PassOnSplitL2 {
  const TileProgram& program;
  const CtaSchedule& schedule;
  const SplitL2Shape& shape;
  PagePlacement pages;
  const TileNumbering& numbers;
  std::function<void()> on_retired;  // from several threads
};

struct LaunchTraffic {
  SmTraffic asked;
  std::int64_t dram_read_bytes = 0, dram_write_bytes = 0;
};

LaunchTraffic replay_launch(const PassOnSplitL2& pass, std::size_t number) {
  // Launches begin that many groups of SMs apart: four of them at four of eight groups, eight at each.
  constexpr std::size_t kGroupsBetween = 3;
  const auto layout =
      pass.pages == PagePlacement::random ? std::optional(static_cast<std::uint32_t>(number)) : std::nullopt;
  CtaSchedule schedule = pass.schedule;
  schedule.sm_groups = pass.shape.sm_groups;
  schedule.launch = kGroupsBetween * number;
  CoResidentCtas ctas(pass.program, schedule, pass.on_retired);
  LaunchReplay launch(SampledTiles(pass.program, pass.numbers.num_tiles(), pass.shape, layout), pass.shape);
  LaunchTraffic traffic;
  AccessGroup group;
  while (ctas.next(group)) {
    for (const Operand& operand : group.operands) {
      const NumberedTile tile = pass.numbers.tile(operand.tensor, group);
      traffic.asked.add(operand.kind, tile.bytes);
      launch.access(operand, group, tile, ctas.place().partition);
    }
  }
  traffic.dram_read_bytes = launch.dram_read_bytes();
  traffic.dram_write_bytes = launch.dram_write_bytes();
  return traffic;
}

/// Calls act(0) ... act(count - 1), by as many threads as there are; the first failure is thrown on when all
/// have ended. As tasks: where the caller simulates several passes side by side, threads that have done
/// theirs help.
void for_each_side_by_side(std::size_t count, const std::function<void(std::size_t)>& act) {
  std::exception_ptr failure;
  const auto act_on_all = [&] {
#pragma omp taskloop grainsize(1) default(shared)
    for (std::size_t i = 0; i < count; ++i) {
      try {
        act(i);
      } catch (...) {
#pragma omp critical(failure_of_a_task)
        if (!failure) failure = std::current_exception();
      }
    }
  };
  if (omp_in_parallel()) {
    act_on_all();
  } else {
#pragma omp parallel
#pragma omp single
    act_on_all();
  }
  if (failure) std::rethrow_exception(failure);
}

SplitL2Traffic traffic_of(const std::vector<LaunchTraffic>& launches, PagePlacement pages) {
  std::vector<double> reads, writes;
  for (const LaunchTraffic& launch : launches) {
    reads.push_back(static_cast<double>(launch.dram_read_bytes));
    writes.push_back(static_cast<double>(launch.dram_write_bytes));
  }
  SplitL2Traffic traffic;
  static_cast<SmTraffic&>(traffic) = launches.front().asked;  // every launch asks the same
  const bool random = pages == PagePlacement::random;
  traffic.dram_read_bytes = std::llround(random ? median_of(reads) : mean_of(reads));
  traffic.dram_write_bytes = std::llround(random ? median_of(writes) : mean_of(writes));
  if (random) {
    const auto [least, largest] = std::minmax_element(reads.begin(), reads.end());
    traffic.dram_read_range = {std::llround(*least), std::llround(*largest)};
  }
  return traffic;
}

}  // namespace

void SmTraffic::add(AccessKind kind, std::int64_t bytes) {
  ++accesses;
  if (kind == AccessKind::load) load_bytes += bytes;
  if (kind == AccessKind::store) store_bytes += bytes;
  if (kind == AccessKind::reduce) reduce_bytes += bytes;
}

double SmTraffic::hit_rate(std::int64_t dram_read_bytes) const {
  const std::int64_t looked_up = load_bytes + reduce_bytes;
  if (looked_up == 0) return 1.0;
  return 1.0 - static_cast<double>(dram_read_bytes) / static_cast<double>(looked_up);
}

std::int64_t PassTraffic::dram_read_bytes(std::int64_t l2_bytes) const {
  return cold_read_bytes + evicted_bytes(histogram, &ReusePoint::read_bytes, l2_bytes);
}

std::int64_t PassTraffic::dram_write_bytes(std::int64_t l2_bytes) const {
  return flush_write_bytes + evicted_bytes(histogram, &ReusePoint::write_back_bytes, l2_bytes);
}

std::int64_t co_resident_ctas(const TileProgram& program, const Machine& machine,
                              const std::optional<LaunchShape>& launch) {
  std::int64_t per_sm = machine.resident_ctas_per_sm(launch ? launch->shared_bytes : program.shared_bytes());
  if (launch && launch->ctas_per_sm > 0) per_sm = std::min<std::int64_t>(per_sm, launch->ctas_per_sm);
  return machine.sm_count.value * per_sm;
}

PassTraffic simulate_pass(const TileProgram& program, const CtaSchedule& schedule,
                          const std::function<void()>& on_retired) {
  const TileNumbering tiles(program);
  require_memory_for_replay(ReuseStack::memory_bytes(tiles.num_tiles()) +
                            std::int64_t{8} * tiles.num_written_tiles());
  LruOfEverySize cache(tiles);
  CoResidentCtas ctas(program, schedule, on_retired);
  AccessGroup group;
  while (ctas.next(group)) cache.access(group);
  return cache.finish();
}

SplitL2Traffic simulate_split_l2(const TileProgram& program, const CtaSchedule& schedule,
                                 const SplitL2Shape& shape, PagePlacement pages,
                                 const std::function<void()>& on_retired) {
  const std::size_t num_launches = pages == PagePlacement::random ? 8 : 4;
  const TileNumbering numbers(program);
  const std::int64_t at_once =
      std::min<std::int64_t>(static_cast<std::int64_t>(num_launches), omp_get_max_threads());
  require_memory_for_replay(static_cast<std::int64_t>(sizeof(SampledTiles::Tile)) * numbers.num_tiles() *
                            at_once);
  std::size_t retired = 0;
  const auto on_retired_in_all = [&] {
#pragma omp critical(retired_in_all)
    if (++retired % num_launches == 0) on_retired();
  };
  const PassOnSplitL2 pass{program, schedule,
                           shape,   pages,
                           numbers, on_retired ? std::function<void()>(on_retired_in_all) : nullptr};
  std::vector<LaunchTraffic> launches(num_launches);
  for_each_side_by_side(num_launches, [&](std::size_t i) { launches[i] = replay_launch(pass, i); });
  return traffic_of(launches, pages);
}

}  // namespace tilescope
