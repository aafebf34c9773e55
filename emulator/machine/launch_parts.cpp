// SPDX-License-Identifier: Apache-2.0
#include "emulator/machine/launch_parts.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <thread>

#include "emulator/machine/cta.hpp"

namespace tilescope::gpu::emulator {
namespace {

constexpr std::uint32_t kMostSharedBytes = 227 * 1024;  // of a CTA, beside what the system keeps
constexpr std::uint64_t kMostParts = 32;                // more than a machine that this runs on has cores
constexpr double kLeastSeconds = 2;                     // before a rate is believed

std::vector<LaunchPart> parts_of(const Launch& launch, const Options& options) {
  const std::uint64_t clusters = launch.grid.count() / launch.cluster.count();
  const auto resident = static_cast<std::uint64_t>(std::max(options.resident_clusters, 1));
  const std::uint64_t count =
      ctas_are_apart(*launch.kernel) ? std::clamp<std::uint64_t>(clusters / resident, 1, kMostParts) : 1;
  std::vector<LaunchPart> parts(count);
  for (std::uint64_t i = 0; i < count; ++i) {
    parts[i] = {clusters * i / count, clusters * (i + 1) / count, options.seed + i * 0x9e3779b97f4a7c15ull};
  }
  return parts;
}

void add(Report& sum, const Report& part) {
  sum.steps += part.steps;
  sum.asking_steps += part.asking_steps;
  sum.global_sectors_read += part.global_sectors_read;
  sum.global_sectors_written += part.global_sectors_written;
  sum.shared_wavefronts += part.shared_wavefronts;
  sum.executed.resize(part.executed.size());
  for (std::size_t i = 0; i < part.executed.size(); ++i) sum.executed[i] += part.executed[i];
  sum.printed += part.printed;
  add_new_races(sum.races, part.races);
  add_new_races(sum.unwritten_reads, part.unwritten_reads);
}

}  // namespace

Progress::Progress(const Launch& launch, const Options& options)
    : most_seconds_(options.most_seconds), clusters_(launch.grid.count() / launch.cluster.count()) {}

std::uint64_t Progress::add(std::uint64_t steps) {
  constexpr int kClockEvery = 20;  // the logarithm of steps
  const std::uint64_t before = steps_.fetch_add(steps), after = before + steps;
  if (before >> kClockEvery != after >> kClockEvery && most_seconds_ > 0 && seconds() > most_seconds_) {
    throw TakesTooLong(
        fmt::format("{} instructions took the {:.1f} s that are allowed, and no end", after, most_seconds_));
  }
  return after;
}

void Progress::ended() {
  const std::uint64_t ended = ++ended_;
  if (most_seconds_ <= 0) return;
  const double seconds = this->seconds();
  const double all = seconds * static_cast<double>(clusters_) / static_cast<double>(ended);
  if (seconds < std::min(kLeastSeconds, most_seconds_ / 2) || all <= most_seconds_) return;
  throw TakesTooLong(
      fmt::format("its {} CTAs or clusters would take about {:.0f} s here, of which {:.1f} are "
                  "allowed: {} took {:.1f} s",
                  clusters_, all, most_seconds_, ended, seconds));
}

void require_runnable(const Launch& launch) {
  const ptx::Kernel& kernel = *launch.kernel;
  const auto fail = [&](const std::string& reason) {
    throw DeviceError(fmt::format("kernel {}: {}", kernel.name, reason));
  };
  const Extent &grid = launch.grid, &block = launch.block, &cluster = launch.cluster;
  if (grid.count() == 0 || block.count() == 0 || cluster.count() == 0) fail("nothing to launch");
  const std::uint64_t most_threads = std::min(1024u, kernel.max_threads);
  if (block.count() > most_threads)
    fail(fmt::format("{} threads a CTA; {} are allowed", block.count(), most_threads));
  if (grid.x % cluster.x != 0 || grid.y % cluster.y != 0 || grid.z % cluster.z != 0)
    fail("the grid is no multiple of the cluster");
  if (launch.parameters.size() < kernel.parameter_bytes)
    fail(fmt::format("{} bytes of parameters; the kernel has {}", launch.parameters.size(),
                     kernel.parameter_bytes));
  const std::uint64_t shared = std::uint64_t{kernel.dynamic_shared_begin} + launch.dynamic_shared_bytes;
  if (shared > ptx::kSharedBegin + kMostSharedBytes)
    fail(fmt::format("{} bytes of shared memory; {} are allowed", shared - ptx::kSharedBegin,
                     kMostSharedBytes));
  constexpr std::uint64_t kMostWarps = std::uint64_t{kMultiprocessors} * kMaxWarps;
  if (is_cooperative(kernel) && grid.count() * ((block.count() + ptx::kLanes - 1) / ptx::kLanes) > kMostWarps)
    fail(fmt::format("a cooperative grid of more than the {} warps that a device holds", kMostWarps));
}

bool is_cooperative(const ptx::Kernel& kernel) {
  return std::ranges::any_of(kernel.specials,
                             [](const auto& special) { return special.name.starts_with("envreg"); });
}

bool ctas_are_apart(const ptx::Kernel& kernel) {
  return std::ranges::none_of(kernel.instructions, [](const ptx::Instruction& instruction) {
    const std::string_view word = instruction.word();
    const bool shared =
        instruction.has("shared") || instruction.has("shared::cta") || instruction.has("shared::cluster");
    if (instruction.opcode.starts_with("cp.reduce")) return true;
    if (word == "atom" || word == "red") return !shared;
    return word == "ld" && !shared &&
           (instruction.has("acquire") || instruction.has("relaxed") || instruction.has("volatile"));
  });
}

Report run_parts(const Launch& launch, const Options& options,
                 const std::function<Report(const LaunchPart&)>& run_part) {
  const std::vector<LaunchPart> parts = parts_of(launch, options);
  std::vector<Report> reports(parts.size());
  std::vector<std::exception_ptr> failures(parts.size());
  std::atomic<std::size_t> next = 0, first_failed = parts.size();
  const auto work = [&] {
    for (std::size_t i = next++; i < parts.size(); i = next++) {
      if (i > first_failed) return;  // parts before one that failed are run, so that the first is told
      try {
        reports[i] = run_part(parts[i]);
      } catch (...) {
        failures[i] = std::current_exception();
        for (std::size_t least = first_failed; i < least && !first_failed.compare_exchange_weak(least, i);) {
        }
      }
    }
  };
  {
    std::vector<std::jthread> helpers;
    for (std::size_t i = 1;
         i < std::min<std::size_t>(parts.size(), static_cast<std::size_t>(std::max(options.threads, 1))); ++i)
      helpers.emplace_back(work);
    work();
  }
  Report sum;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (failures[i]) std::rethrow_exception(failures[i]);
    add(sum, reports[i]);
  }
  for (std::size_t i = 0; i < sum.executed.size(); ++i) {
    if (sum.executed[i] > 0)
      sum.instructions[std::string(launch.kernel->instructions[i].opcode)] += sum.executed[i];
  }
  return sum;
}

void add_new_races(std::vector<Race>& races, const std::vector<Race>& more) {
  for (const Race& race : more) {
    if (std::ranges::find(races, race) == races.end()) races.push_back(race);
  }
}

}  // namespace tilescope::gpu::emulator
