// SPDX-License-Identifier: Apache-2.0
#include "analysis/model/replay/traffic_simulator.hpp"

#include <omp.h>

#include <algorithm>
#include <cmath>
#include <exception>
#include <mutex>
#include <optional>

#include "analysis/model/replay/cache/lru_of_one_size.hpp"
#include "analysis/model/replay/launch_replay.hpp"
#include "common/memory_budget.hpp"
#include "common/statistics.hpp"

namespace tilescope {
namespace {

/// Replays all accesses of a pass through a cache.
template <typename Cache>
void replay(const TileProgram& program, const CtaSchedule& schedule, const TileNumbering& numbers,
            const std::function<void()>& on_retired, SmTraffic& traffic, Cache& cache) {
  CoResidentCtas ctas(program, schedule, on_retired);
  RunTiles tiles(program, numbers);
  CtaRun run;
  while (ctas.next(run)) {
    tiles.set(run);
    traffic.add(tiles);
    cache.access(tiles);
  }
  traffic.begin_sums(cache.begun_tiles(), cache.begun_bytes());
  traffic.add_words(program);
}

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
  TileLines* lines;                  // of all launches, where they are placed at once
  const StepLines* steps;            // of such lines
  bool keeps_all;                    // the L2 of any launch
  std::function<void()> on_retired;  // from several threads
};

L2Traffic replay_launch(const PassOnSplitL2& pass, std::size_t number) {
  // Launches begin that many groups of SMs apart: four of them at four of eight groups, eight at each.
  constexpr std::size_t kGroupsBetween = 3;
  std::optional<TileLines> own_lines;
  if (pass.lines == nullptr) {
    own_lines.emplace(pass.program, pass.numbers, pass.shape, static_cast<std::uint32_t>(number));
  }
  CtaSchedule schedule = pass.schedule;
  schedule.sm_groups = pass.shape.sm_groups;
  schedule.launch = kGroupsBetween * number;
  LaunchReplay launch(pass.program, pass.numbers, own_lines ? *own_lines : *pass.lines, pass.steps,
                      pass.shape, pass.keeps_all);
  CoResidentCtas ctas(pass.program, schedule, pass.on_retired);
  CtaRun run;
  while (ctas.next(run)) launch.access(run, ctas.partition());
  L2Traffic traffic{launch.asked()};
  traffic.add_words(pass.program);
  // No line is fetched or written back more often than it was asked for or written; bytes that a sample of
  // the sets stands for may be a little more.
  traffic.dram_read_bytes = std::min(launch.dram_read_bytes(), traffic.looked_up_bytes());
  traffic.dram_write_bytes = std::min(launch.dram_write_bytes(), traffic.written_bytes());
  return traffic;
}

/// act(0) ... act(count - 1) as tasks of the team; `failure` is the first one.
void act_in_tasks(std::size_t count, const std::function<void(std::size_t)>& act,
                  std::exception_ptr& failure) {
#pragma omp taskloop grainsize(1) default(shared)
  for (std::size_t i = 0; i < count; ++i) {
    try {
      act(i);
    } catch (...) {
#pragma omp critical(failure_of_a_task)
      if (!failure) failure = std::current_exception();
    }
  }
}

/// Calls act(0) ... act(count - 1), by as many threads as there are; the first failure is thrown on when all
/// have ended. As tasks: where the caller simulates several passes side by side, threads that have done
/// theirs help.
void for_each_side_by_side(std::size_t count, const std::function<void(std::size_t)>& act) {
  std::exception_ptr failure;
  if (omp_in_parallel()) {
    act_in_tasks(count, act, failure);
  } else {
#pragma omp parallel
#pragma omp single
    act_in_tasks(count, act, failure);
  }
  if (failure) std::rethrow_exception(failure);
}

SplitL2Traffic traffic_of(const std::vector<L2Traffic>& launches, PagePlacement pages) {
  std::vector<double> reads, writes;
  for (const L2Traffic& launch : launches) {
    reads.push_back(static_cast<double>(launch.dram_read_bytes));
    writes.push_back(static_cast<double>(launch.dram_write_bytes));
  }
  SplitL2Traffic traffic;
  static_cast<SmTraffic&>(traffic) = launches.front();  // every launch asks the same
  const bool random = pages == PagePlacement::random;
  traffic.dram_read_bytes = std::llround(random ? median_of(reads) : mean_of(reads));
  traffic.dram_write_bytes = std::llround(random ? median_of(writes) : mean_of(writes));
  const auto range_of = [](const std::vector<double>& bytes) {
    const auto [least, largest] = std::minmax_element(bytes.begin(), bytes.end());
    return std::array{std::int64_t{std::llround(*least)}, std::int64_t{std::llround(*largest)}};
  };
  if (random) {
    traffic.dram_read_range = range_of(reads);
    traffic.dram_write_range = range_of(writes);
  }
  return traffic;
}

}  // namespace

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
  const TileNumbering numbers(program);
  require_memory_for_replay(ReuseStack::memory_bytes(numbers.num_tiles()) +
                            std::int64_t{8} * numbers.num_written_tiles());
  LruOfEverySize cache(numbers);
  PassTraffic traffic;
  replay(program, schedule, numbers, on_retired, traffic, cache);
  traffic.cold_read_bytes = cache.cold_read_bytes();
  traffic.flush_write_bytes = cache.flush_write_bytes();
  traffic.histogram = cache.histogram();
  return traffic;
}

L2Traffic simulate_lru(const TileProgram& program, const CtaSchedule& schedule, std::int64_t l2_bytes,
                       const std::function<void()>& on_retired) {
  const TileNumbering numbers(program);
  require_memory_for_replay(LruOfOneSize::memory_bytes(numbers.num_tiles()));
  LruOfOneSize cache(numbers, l2_bytes);
  L2Traffic traffic;
  replay(program, schedule, numbers, on_retired, traffic, cache);
  traffic.dram_read_bytes = cache.read_bytes();
  traffic.dram_write_bytes = cache.write_bytes();
  return traffic;
}

SplitL2Traffic simulate_split_l2(const TileProgram& program, const CtaSchedule& schedule,
                                 const SplitL2Shape& shape, PagePlacement pages,
                                 const std::function<void()>& on_retired) {
  const bool random = pages == PagePlacement::random;
  const std::size_t num_launches = random ? 8 : kLaunchesReplayed;
  const TileNumbering numbers(program);
  const std::int64_t at_once =
      std::min<std::int64_t>(static_cast<std::int64_t>(num_launches), omp_get_max_threads());
  const std::int64_t of_lines = TileLines::memory_bytes(program, numbers, shape);
  require_memory_for_replay(at_once * LaunchReplay::memory_bytes(numbers.num_tiles()) +
                            (random ? at_once * of_lines : of_lines));
  std::optional<TileLines> lines;
  std::optional<StepLines> steps;
  if (!random) {
    lines.emplace(program, numbers, shape, std::nullopt);
    steps.emplace(program, numbers, *lines);
  }
  PassOnSplitL2 pass{program,
                     schedule,
                     shape,
                     pages,
                     numbers,
                     lines ? &*lines : nullptr,
                     steps ? &*steps : nullptr,
                     lines && lines->all_fit(shape),
                     on_retired};
  if (pass.keeps_all) return traffic_of({replay_launch(pass, 0)}, pages);  // as all others
  std::size_t retired = 0;
  std::mutex one_at_a_time;  // not a critical section, which no exception may leave
  if (on_retired) {
    pass.on_retired = [&] {
      const std::lock_guard<std::mutex> lock(one_at_a_time);
      if (++retired % num_launches == 0) on_retired();
    };
  }
  std::vector<L2Traffic> launches(num_launches);
  for_each_side_by_side(num_launches, [&](std::size_t i) { launches[i] = replay_launch(pass, i); });
  return traffic_of(launches, pages);
}

}  // namespace tilescope
