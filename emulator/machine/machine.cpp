// SPDX-License-Identifier: Apache-2.0
// A launch: clusters are begun in order, some are resident at once, and which of their warps goes on next is
// drawn. Where CTAs know nothing of each other the launch falls into parts, which threads share.
#include <fmt/format.h>

#include <algorithm>

#include "emulator/machine/cta_order.hpp"
#include "emulator/machine/launch_parts.hpp"
#include "emulator/machine/observer.hpp"
#include "emulator/machine/warp_turn.hpp"

namespace tilescope::gpu::emulator {
namespace {

constexpr std::size_t kParameterAlign = 128;

class Machine {
 public:
  Machine(const Launch& launch, const Memory& memory, const Options& options, const HandlerTable& table,
          const Program& program, const LaunchPart& part, Progress& progress)
      : memory_(memory),
        run_{launch, memory_, options, {}, nullptr, Random(part.seed), {}, {}, {}},
        table_(table),
        program_(program),
        progress_(progress),
        next_cluster_(part.begin),
        end_cluster_(part.end) {}

  /// @throws DeviceError with the races up to there
  Report execute();

 private:
  void execute_all();
  void copy_parameters();
  std::uint64_t make_cooperative();
  void begin_cluster();
  std::unique_ptr<Cta> make_cta(Cluster& cluster, unsigned rank, const Extent& index);
  void end_cluster(Cluster& cluster);
  void turn();
  void remove(std::size_t place);
  /// Has an asynchronous operation of any resident CTA take effect; false where there is none.
  bool finish_something();
  [[noreturn]] void fail(const std::string& reason, FindingKind kind, int line = 0) const;

  const Launch& launch() const { return run_.launch; }

  Memory memory_;
  Run run_;
  const HandlerTable& table_;
  Program program_;
  std::vector<std::unique_ptr<Cluster>> resident_;
  std::vector<Warp*> warps_;  // of resident clusters, that are not done
  Progress& progress_;
  std::uint64_t next_cluster_, end_cluster_;
  std::uint64_t idle_turns_ = 0;  // since something happened
};

void Machine::fail(const std::string& reason, FindingKind kind, int line) const {
  constexpr std::size_t kMost = 64;
  std::string words = fmt::format("kernel {}: {}", program_.kernel.name, reason);
  std::vector<int> lines;
  if (line != 0) lines.push_back(line);
  for (std::size_t i = 0; i < std::min(warps_.size(), kMost); ++i) {
    words += "\n  " + place_of(*warps_[i], program_);
    for (const LaneGroup& group : warps_[i]->groups) {
      if (line == 0 && group.pc < program_.steps.size())
        lines.push_back(program_.steps[group.pc].instruction->line);
    }
  }
  std::ranges::sort(lines);
  lines.erase(std::unique(lines.begin(), lines.end()), lines.end());
  throw DeviceError(words, kind, lines);
}

void Machine::copy_parameters() {
  run_.parameters.resize(launch().parameters.size() + kParameterAlign);
  void* base = run_.parameters.data();
  std::size_t space = run_.parameters.size();
  run_.parameter_base =
      static_cast<std::byte*>(std::align(kParameterAlign, launch().parameters.size(), base, space));
  std::copy(launch().parameters.begin(), launch().parameters.end(), run_.parameter_base);
}

/// How many clusters go on side by side: all of a grid that has a barrier of its own, whose count is made
/// here.
std::uint64_t Machine::make_cooperative() {
  if (!is_cooperative(program_.kernel))
    return static_cast<std::uint64_t>(std::max(run_.options.resident_clusters, 1));
  run_.workspace[0] = sizeof(run_.workspace);
  memory_.add(run_.workspace.data(), sizeof(run_.workspace), "the workspace of a cooperative grid");
  return launch().grid.count();
}

std::unique_ptr<Cta> Machine::make_cta(Cluster& cluster, unsigned rank, const Extent& index) {
  auto cta = std::make_unique<Cta>(run_, cluster, index, rank);
  cta->sm = static_cast<std::uint32_t>((next_cluster_ * launch().cluster.count() + rank) % kMultiprocessors);
  cta->shared_end = program_.kernel.dynamic_shared_begin + launch().dynamic_shared_bytes;
  cta->shared.assign(cta->shared_end, std::byte{0xff});  // what was not written reads as NaN
  const auto threads = static_cast<std::uint32_t>(launch().block.count());
  cta->local.assign(std::size_t{program_.kernel.local_bytes} * ((threads + kLanes - 1) / kLanes * kLanes),
                    std::byte{0xff});
  for (std::uint32_t begin = 0; begin < threads; begin += kLanes) {
    const std::uint32_t lanes = std::min(threads - begin, static_cast<std::uint32_t>(kLanes));
    cta->warps.push_back(
        std::make_unique<Warp>(*cta, begin / kLanes, static_cast<LaneMask>((1ull << lanes) - 1)));
  }
  if (cluster.account) {
    cluster.account->watch(rank, cta->shared.data());
    cta->order = std::make_shared<CtaOrder>(cluster.account, rank);
  }
  if (table_.on_cta_begin) table_.on_cta_begin(*cta);
  if (run_.options.observer) run_.options.observer->begin(*cta);
  return cta;
}

void Machine::begin_cluster() {
  const Extent &grid = launch().grid, &size = launch().cluster;
  const Extent clusters{grid.x / size.x, grid.y / size.y, grid.z / size.z};
  const auto number = static_cast<unsigned>(next_cluster_);
  const Extent first{number % clusters.x * size.x, number / clusters.x % clusters.y * size.y,
                     number / clusters.x / clusters.y * size.z};
  Cluster& cluster = *resident_.emplace_back(std::make_unique<Cluster>());
  const auto ctas = static_cast<std::uint32_t>(size.count());
  const auto threads = static_cast<std::uint32_t>(launch().block.count() + kLanes - 1) / kLanes * kLanes;
  if (run_.options.races && std::uint64_t{ctas} * threads <= kMostOrderedThreads) {
    const std::uint32_t shared_end = program_.kernel.dynamic_shared_begin + launch().dynamic_shared_bytes;
    cluster.account = std::make_shared<HappensBefore>(threads, shared_end, &program_.kernel, ctas);
  }
  for (unsigned rank = 0; rank < size.count(); ++rank) {
    const Extent index{first.x + rank % size.x, first.y + rank / size.x % size.y,
                       first.z + rank / size.x / size.y};
    cluster.ctas.push_back(make_cta(cluster, rank, index));
    for (const auto& warp : cluster.ctas.back()->warps) warps_.push_back(warp.get());
  }
  ++next_cluster_;
}

/// What a cluster issued and did not wait for takes effect when it ends.
void Machine::end_cluster(Cluster& cluster) {
  for (const auto& cta : cluster.ctas) {
    if (table_.on_cta_end) table_.on_cta_end(*cta);
    cta->async.finish([](const AsyncOperation&) { return true; });
    if (run_.options.observer) run_.options.observer->end(*cta);
  }
  if (cluster.account) {
    cluster.account->end();
    add_new_races(run_.report.races, cluster.account->races());
    add_new_races(run_.report.unwritten_reads, cluster.account->unwritten_reads());
  }
  progress_.ended();
  resident_.erase(std::ranges::find_if(resident_, [&](const auto& one) { return one.get() == &cluster; }));
}

void Machine::remove(std::size_t place) {
  Cluster& cluster = warps_[place]->cta.cluster;
  warps_[place] = warps_.back();
  warps_.pop_back();
  const bool lives =
      std::ranges::any_of(warps_, [&](const Warp* warp) { return &warp->cta.cluster == &cluster; });
  if (!lives) end_cluster(cluster);
}

bool Machine::finish_something() {
  for (const auto& cluster : resident_) {
    for (const auto& cta : cluster->ctas) {
      if (cta->async.draw(run_.random, true)) return true;
    }
  }
  return false;
}

void Machine::turn() {
  // Turns of all lengths, so that warps run both side by side and far apart.
  constexpr unsigned kLongest = 9;  // 512 instructions
  const std::uint64_t drawn = run_.random.next();
  const std::size_t place = (drawn >> 32) % warps_.size();
  const std::uint64_t most = 1 + drawn % (1ull << (1 + (drawn >> 16) % kLongest));
  Warp& warp = *warps_[place];
  warp.turns_apart = warp.groups.size() > 1 ? warp.turns_apart + 1 : 0;
  // Lanes that spin must not hold up others of their warp. Those that will soon meet again are let do so, as
  // on a device: apart they would ask for sectors twice.
  constexpr std::uint64_t kSoon = 64;
  const bool any_group = warp.turns_apart > kSoon && (drawn >> 24) % 16 == 0;
  const TurnEnd end = take_turn(warp, program_, most, any_group ? (drawn >> 28) % warp.groups.size() : 0);
  // Late ones too, now and then: a warp whose spin holds other instructions is never idle.
  if ((drawn >> 20) % 4 == 0) warp.cta.async.draw(run_.random, (drawn >> 40) % 64 == 0);
  idle_turns_ = end == TurnEnd::idle ? idle_turns_ + 1 : 0;
  if (end == TurnEnd::done) remove(place);
  // What is under way comes before it can be said that nobody goes on.
  if (idle_turns_ > 8 * warps_.size() && finish_something()) idle_turns_ = 0;
  if (idle_turns_ > 1000 + 64 * warps_.size())
    fail("deadlock: every warp waits for another", FindingKind::hang);
}

void Machine::execute_all() {
  copy_parameters();
  const std::uint64_t most_resident = make_cooperative();
  while (next_cluster_ < end_cluster_ || !warps_.empty()) {
    while (next_cluster_ < end_cluster_ && resident_.size() < most_resident) begin_cluster();
    const std::uint64_t steps = run_.report.steps;
    try {
      turn();
    } catch (const Fault& fault) {  // of what takes effect on its own, or of a CTA's end
      fail(fault.what(), fault.kind, fault.line);
    }
    if (progress_.add(run_.report.steps - steps) > run_.options.step_limit)
      fail(fmt::format("{} instructions and no end", progress_.steps()), FindingKind::hang);
  }
  run_.report.executed = program_.executed;
}

Report Machine::execute() {
  try {
    execute_all();
  } catch (DeviceError& error) {
    for (const auto& cluster : resident_) {
      if (cluster->account) add_new_races(run_.report.races, cluster->account->races());
    }
    error.races = run_.report.races;
    throw;
  }
  return run_.report;
}

}  // namespace

Report run(const Launch& launch, const Memory& memory, const Options& options, const HandlerTable& table) {
  require_runnable(launch);
  const Program program(*launch.kernel, table);
  Progress progress(launch, options);
  return run_parts(launch, options, [&](const LaunchPart& part) {
    return Machine(launch, memory, options, table, program, part, progress).execute();
  });
}

}  // namespace tilescope::gpu::emulator
