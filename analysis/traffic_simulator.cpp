// SPDX-License-Identifier: Apache-2.0
#include "analysis/traffic_simulator.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <compare>
#include <limits>
#include <queue>

#include "analysis/closed_form.hpp"
#include "analysis/reuse_stack.hpp"
#include "analysis/tile_numbering.hpp"
#include "cpu_ref/cta_walk.hpp"
#include "cpu_ref/philox.hpp"

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

void require_memory(const TileNumbering& tiles) {
  const std::int64_t needed =
      ReuseStack::memory_bytes(tiles.num_tiles()) + std::int64_t{8} * tiles.num_written_tiles();
  const std::int64_t available =
      static_cast<std::int64_t>(::sysconf(_SC_PHYS_PAGES)) * ::sysconf(_SC_PAGESIZE);
  if (needed < available) return;
  throw MachineLacks(
      fmt::format("replaying this pass takes up to {:.1f} GB of memory and this machine has {:.1f}: choose "
                  "larger tiles or "
                  "fewer heads",
                  static_cast<double>(needed) / 1e9, static_cast<double>(available) / 1e9));
}

/// The L2 of every size at once.
class CacheModel {
 public:
  CacheModel(const TileProgram& program, const L2Space& space) : tiles_(program) {
    space_.fill(program.whole_head ? space.one_reader : 1);
    // A whole-head CTA is alone with its head's tensors, but for the K and V of several query heads.
    if (program.whole_head && program.problem.group_size() > 1) {
      for (const TensorName name : {TensorName::k, TensorName::v}) space_[static_cast<std::size_t>(name)] = 1;
    }
    for (const TensorTraffic& tensor : tensor_traffic(program)) {
      if (tensor.reduce_bytes > 0 && tensor.load_bytes == 0) {
        space_[static_cast<std::size_t>(tensor.tensor)] = space.reduced;
      }
    }
    require_memory(tiles_);
    stack_.emplace(tiles_.num_tiles());
    largest_distance_.assign(tiles_.num_written_tiles(), kClean);
  }

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
    const double space = space_[static_cast<std::size_t>(operand.tensor)];
    const std::int64_t distance = stack_->touch(
        tile.number, static_cast<std::int64_t>(std::ceil(space * static_cast<double>(tile.bytes))));
    ++traffic_.accesses;
    if (operand.kind != AccessKind::store) {
      if (distance == ReuseStack::kNever) {
        traffic_.cold_read_bytes += tile.bytes;
      } else {
        distances_.at(distance).read_bytes += tile.bytes;
      }
    }
    if (operand.kind == AccessKind::load) traffic_.load_bytes += tile.bytes;
    if (operand.kind == AccessKind::store) traffic_.store_bytes += tile.bytes;
    if (operand.kind == AccessKind::reduce) traffic_.reduce_bytes += tile.bytes;
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

  TileNumbering tiles_;
  std::array<double, kNumTensors> space_;  // that a byte of a tensor takes
  DistanceTable distances_;
  std::optional<ReuseStack> stack_;
  std::vector<std::int64_t> largest_distance_;  // by tile, since it was last written
  PassTraffic traffic_;
};

/// Time of a step, in ticks: normally distributed over the CTAs, as the sum of twelve uniform numbers, whose
/// integers are the same on every machine.
std::int64_t step_ticks(std::int64_t cta, double pace_spread) {
  constexpr std::int64_t kMean = 1 << 20;
  constexpr double kUniformRange = 4294967296.0;
  double sum = 0;
  for (std::uint32_t draw = 0; draw < 3; ++draw) {
    const auto index = static_cast<std::uint64_t>(cta);
    const Philox4 random = philox4x32(
        0, {{static_cast<std::uint32_t>(index), static_cast<std::uint32_t>(index >> 32), draw, 0}});
    for (const std::uint32_t bits : random.x) sum += (bits + 0.5) / kUniformRange;
  }
  const double factor = std::max(0.1, 1 + pace_spread * (sum - 6));
  return static_cast<std::int64_t>(factor * kMean);
}

/// The CTAs that run, as slots of SMs: slot s belongs to SM s modulo their number.
class CoResidentCtas {
 public:
  CoResidentCtas(const TileProgram& program, const CtaSchedule& schedule)
      : program_(program),
        schedule_(schedule),
        num_sms_(static_cast<std::size_t>(
            std::max<std::int64_t>(1, schedule.co_resident_ctas / schedule.ctas_per_sm))) {
    const std::int64_t slots = std::min(schedule.co_resident_ctas, program.num_ctas());
    for (std::size_t slot = 0; slot < static_cast<std::size_t>(slots); ++slot) {
      running_.push_back(issue());
      turns_.push({0, slot});
    }
  }

  /// The accesses of the CTA whose turn it is. @return false when all have retired
  bool next(AccessGroup& group, const std::function<void()>& on_retired) {
    while (!turns_.empty()) {
      const Turn turn = turns_.top();
      turns_.pop();
      Cta& cta = running_[turn.slot];
      bool busy = cta.walk.next(group);
      while (!busy) {
        if (on_retired) on_retired();
        if (next_cta_ == program_.num_ctas()) break;
        cta = issue();
        busy = cta.walk.next(group);
      }
      if (busy) {
        turns_.push({turn.time + (oldest_on_sm(turn.slot) ? cta.ticks : cta.ticks_when_younger), turn.slot});
        return true;
      }
      cta.index = kRetired;
    }
    return false;
  }

 private:
  static constexpr std::int64_t kRetired = std::numeric_limits<std::int64_t>::max();
  struct Cta {
    CtaWalk walk;
    std::int64_t index;  // also its age: CTAs are issued in order
    std::int64_t ticks, ticks_when_younger;
  };
  /// When a slot's CTA makes its next step; at the same time, slot after slot.
  struct Turn {
    std::int64_t time;
    std::size_t slot;
    auto operator<=>(const Turn&) const = default;
  };

  Cta issue() {
    const std::int64_t ticks = step_ticks(next_cta_, schedule_.pace_spread);
    const auto younger = static_cast<std::int64_t>(static_cast<double>(ticks) / schedule_.younger_pace);
    Cta cta{CtaWalk(program_, next_cta_), next_cta_, ticks, younger};
    ++next_cta_;
    return cta;
  }

  bool oldest_on_sm(std::size_t slot) const {
    for (std::size_t other = slot % num_sms_; other < running_.size(); other += num_sms_) {
      if (running_[other].index < running_[slot].index) return false;
    }
    return true;
  }

  const TileProgram& program_;
  const CtaSchedule& schedule_;
  std::size_t num_sms_;
  std::int64_t next_cta_ = 0;
  std::vector<Cta> running_;
  std::priority_queue<Turn, std::vector<Turn>, std::greater<>> turns_;
};

/// What an L2 gives up of the bytes of a histogram; each point is rounded by itself, so that larger L2s never
/// give up more.
std::int64_t evicted_bytes(const std::vector<ReusePoint>& histogram, std::int64_t ReusePoint::*bytes,
                           const L2Capacity& l2) {
  std::int64_t sum = 0;
  for (const ReusePoint& point : histogram) {
    sum += std::llround(l2.evicted_share(point.distance_bytes) * static_cast<double>(point.*bytes));
  }
  return sum;
}

}  // namespace

double L2Capacity::evicted_share(std::int64_t distance) const {
  if (onset_exponent == 0 || bytes <= 0) return distance > bytes ? 1 : 0;
  double odds = 1;  // of being evicted
  const double ratio = static_cast<double>(distance) / static_cast<double>(bytes);
  for (int i = 0; i < onset_exponent; ++i) odds *= ratio;
  return 1 - 1 / (1 + odds);
}

std::int64_t PassTraffic::dram_read_bytes(const L2Capacity& l2) const {
  return cold_read_bytes + evicted_bytes(histogram, &ReusePoint::read_bytes, l2);
}

std::int64_t PassTraffic::dram_write_bytes(const L2Capacity& l2) const {
  return flush_write_bytes + evicted_bytes(histogram, &ReusePoint::write_back_bytes, l2);
}

double PassTraffic::hit_rate(const L2Capacity& l2) const {
  const std::int64_t looked_up = load_bytes + reduce_bytes;
  if (looked_up == 0) return 1.0;
  return 1.0 - static_cast<double>(dram_read_bytes(l2)) / static_cast<double>(looked_up);
}

std::int64_t co_resident_ctas(const TileProgram& program, const Machine& machine,
                              const std::optional<LaunchShape>& launch) {
  std::int64_t per_sm = machine.resident_ctas_per_sm(launch ? launch->shared_bytes : program.shared_bytes());
  if (launch && launch->ctas_per_sm > 0) per_sm = std::min<std::int64_t>(per_sm, launch->ctas_per_sm);
  return machine.sm_count.value * per_sm;
}

PassTraffic simulate_pass(const TileProgram& program, const CtaSchedule& schedule, const L2Space& space,
                          const std::function<void()>& on_retired) {
  CacheModel cache(program, space);
  CoResidentCtas ctas(program, schedule);
  AccessGroup group;
  while (ctas.next(group, on_retired)) cache.access(group);
  PassTraffic traffic = cache.finish();
  traffic.co_resident_ctas = schedule.co_resident_ctas;
  return traffic;
}

}  // namespace tilescope
