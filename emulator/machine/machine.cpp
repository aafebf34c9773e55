// SPDX-License-Identifier: Apache-2.0
// A launch: clusters are begun in order, some are resident at once, and which of their warps goes on next is
// drawn.
#include <fmt/format.h>

#include <algorithm>

#include "emulator/machine/happens_before.hpp"
#include "emulator/machine/warp_turn.hpp"

namespace tilescope::gpu::emulator {
namespace {

constexpr std::uint32_t kMostSharedBytes = 227 * 1024;  // of a CTA, beside what the system keeps
constexpr std::size_t kParameterAlign = 128;

class Machine {
 public:
  Machine(const Launch& launch, const Memory& memory, const Options& options, const HandlerTable& table)
      : memory_(memory),
        run_{launch, memory_, options, {}, nullptr, Random(options.seed), {}, {}},
        table_(table),
        program_(*launch.kernel, table) {}

  Report execute();

 private:
  void check() const;
  void copy_parameters();
  std::uint64_t make_cooperative();
  void begin_cluster();
  std::unique_ptr<Cta> make_cta(Cluster& cluster, unsigned rank, const Extent& index);
  void end_cluster(Cluster& cluster);
  void turn();
  void remove(std::size_t place);
  /// Has an asynchronous operation of any resident CTA take effect; false where there is none.
  bool finish_something();
  [[noreturn]] void fail(const std::string& reason) const;

  const Launch& launch() const { return run_.launch; }

  Memory memory_;
  Run run_;
  const HandlerTable& table_;
  Program program_;
  std::vector<std::unique_ptr<Cluster>> resident_;
  std::vector<Warp*> warps_;  // of resident clusters, that are not done
  std::uint64_t next_cluster_ = 0;
  std::uint64_t idle_turns_ = 0;  // since something happened
};

void Machine::fail(const std::string& reason) const {
  constexpr std::size_t kMost = 64;
  std::string words = fmt::format("kernel {}: {}", program_.kernel.name, reason);
  for (std::size_t i = 0; i < std::min(warps_.size(), kMost); ++i)
    words += "\n  " + place_of(*warps_[i], program_);
  throw DeviceError(words);
}

void Machine::check() const {
  const Extent &grid = launch().grid, &block = launch().block, &cluster = launch().cluster;
  if (grid.count() == 0 || block.count() == 0 || cluster.count() == 0) fail("nothing to launch");
  if (block.count() > std::min(1024u, program_.kernel.max_threads))
    fail(fmt::format("{} threads a CTA; {} are allowed", block.count(),
                     std::min(1024u, program_.kernel.max_threads)));
  if (grid.x % cluster.x != 0 || grid.y % cluster.y != 0 || grid.z % cluster.z != 0)
    fail("the grid is no multiple of the cluster");
  if (launch().parameters.size() < program_.kernel.parameter_bytes)
    fail(fmt::format("{} bytes of parameters; the kernel has {}", launch().parameters.size(),
                     program_.kernel.parameter_bytes));
  const std::uint64_t shared =
      std::uint64_t{program_.kernel.dynamic_shared_begin} + launch().dynamic_shared_bytes;
  if (shared > ptx::kSharedBegin + kMostSharedBytes)
    fail(fmt::format("{} bytes of shared memory; {} are allowed", shared - ptx::kSharedBegin,
                     kMostSharedBytes));
}

void Machine::copy_parameters() {
  run_.parameters.resize(launch().parameters.size() + kParameterAlign);
  void* base = run_.parameters.data();
  std::size_t space = run_.parameters.size();
  run_.parameter_base =
      static_cast<std::byte*>(std::align(kParameterAlign, launch().parameters.size(), base, space));
  std::copy(launch().parameters.begin(), launch().parameters.end(), run_.parameter_base);
}

/// How many clusters go on side by side: all of a grid that has a barrier of its own, whose count is made here.
std::uint64_t Machine::make_cooperative() {
  constexpr std::uint64_t kMostWarps = kMultiprocessors * kMaxWarps;
  const auto& specials = program_.kernel.specials;
  const bool cooperative = std::any_of(specials.begin(), specials.end(),
                                       [](const auto& special) { return special.name.starts_with("envreg"); });
  if (!cooperative) return static_cast<std::uint64_t>(std::max(run_.options.resident_clusters, 1));
  if (launch().grid.count() * ((launch().block.count() + kLanes - 1) / kLanes) > kMostWarps)
    fail(fmt::format("a cooperative grid of more than the {} warps that a device holds", kMostWarps));
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
  // Clocks are a CTA's: of clusters, in which others reach its memory, no races are told.
  if (run_.options.races && launch().cluster.count() == 1) {
    cta->order = std::make_shared<HappensBefore>((threads + kLanes - 1) / kLanes * kLanes, cta->shared_end);
  }
  if (table_.on_cta_begin) table_.on_cta_begin(*cta);
  return cta;
}

void Machine::begin_cluster() {
  const Extent &grid = launch().grid, &size = launch().cluster;
  const Extent clusters{grid.x / size.x, grid.y / size.y, grid.z / size.z};
  const auto number = static_cast<unsigned>(next_cluster_);
  const Extent first{number % clusters.x * size.x, number / clusters.x % clusters.y * size.y,
                     number / clusters.x / clusters.y * size.z};
  Cluster& cluster = *resident_.emplace_back(std::make_unique<Cluster>());
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
    if (cta->order) {
      auto& races = run_.report.races;
      for (const std::string& race : cta->order->races()) {
        if (std::find(races.begin(), races.end(), race) == races.end()) races.push_back(race);
      }
    }
  }
  resident_.erase(std::find_if(resident_.begin(), resident_.end(),
                               [&](const auto& one) { return one.get() == &cluster; }));
}

void Machine::remove(std::size_t place) {
  Cluster& cluster = warps_[place]->cta.cluster;
  warps_[place] = warps_.back();
  warps_.pop_back();
  const bool lives = std::any_of(warps_.begin(), warps_.end(),
                                 [&](const Warp* warp) { return &warp->cta.cluster == &cluster; });
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
  const bool any_group = (drawn >> 24) % 16 == 0;  // lanes that spin must not hold up others of their warp
  Warp& warp = *warps_[place];
  const TurnEnd end = take_turn(warp, program_, most, any_group ? (drawn >> 28) % warp.groups.size() : 0);
  // Late ones too, now and then: a warp whose spin holds other instructions is never idle.
  if ((drawn >> 20) % 4 == 0) warp.cta.async.draw(run_.random, (drawn >> 40) % 64 == 0);
  idle_turns_ = end == TurnEnd::idle ? idle_turns_ + 1 : 0;
  if (end == TurnEnd::done) remove(place);
  // What is under way comes before it can be said that nobody goes on.
  if (idle_turns_ > 8 * warps_.size() && finish_something()) idle_turns_ = 0;
  if (idle_turns_ > 1000 + 64 * warps_.size()) fail("deadlock: every warp waits for another");
}

Report Machine::execute() {
  check();
  copy_parameters();
  const std::uint64_t most_resident = make_cooperative();
  const std::uint64_t clusters = launch().grid.count() / launch().cluster.count();
  while (next_cluster_ < clusters || !warps_.empty()) {
    while (next_cluster_ < clusters &&
           resident_.size() < most_resident)
      begin_cluster();
    try {
      turn();
    } catch (const Fault& fault) {  // of what takes effect on its own, or of a CTA's end
      fail(fault.what());
    }
    if (run_.report.steps > run_.options.step_limit)
      fail(fmt::format("{} instructions and no end", run_.report.steps));
  }
  for (std::size_t i = 0; i < program_.steps.size(); ++i) {
    if (program_.executed[i] > 0)
      run_.report.instructions[std::string(program_.steps[i].instruction->opcode)] += program_.executed[i];
  }
  return run_.report;
}

}  // namespace

Report run(const Launch& launch, const Memory& memory, const Options& options, const HandlerTable& table) {
  return Machine(launch, memory, options, table).execute();
}

}  // namespace tilescope::gpu::emulator
