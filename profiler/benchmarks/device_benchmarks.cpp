// SPDX-License-Identifier: Apache-2.0
#include "profiler/benchmarks/device_benchmarks.hpp"

#include <iterator>
#include <memory>
#include <span>
#include <thread>

#include "gpu/launch/pass_runner.hpp"
#include "gpu/registry/kernel_registry.hpp"
#include "profiler/benchmarks/peer_process.hpp"
#include "profiler/timing/cold_timer.hpp"

namespace tilescope {
namespace {

void add_round(DeviceTimes& times, const std::vector<double>& samples_s, int throttled) {
  times.samples_s.insert(times.samples_s.end(), samples_s.begin(), samples_s.end());
  times.throttled += throttled;
}

/// The BadInput or MachineLacks that `attempt` throws, else null.
template <typename Attempt>
std::exception_ptr refusal_of(Attempt&& attempt) {
  try {
    attempt();
  } catch (const BadInput&) {
    return std::current_exception();
  } catch (const MachineLacks&) {
    return std::current_exception();
  }
  return nullptr;
}

/// One problem and direction, on every kernel that the cases name and on every peer.
class Group {
 public:
  Group(const ColdTimer& timer, const DeviceBenchmarkSettings& settings)
      : timer_(timer), settings_(settings) {}

  /// Whether all rounds were timed.
  bool run(std::span<const BenchmarkCase> cases, std::span<DeviceTimes> times, std::vector<PeerTimes>& peers,
           PeerProcess* process) {
    std::vector<std::unique_ptr<PassRunner>> prepared(cases.size());
    for (std::size_t i = 0; i < cases.size(); ++i) {
      const BenchmarkCase& c = cases[i];
      times[i].refusal = refusal_of([&] {
        prepared[i] =
            std::make_unique<PassRunner>(find_gpu_kernel(c.kernel->name), c.problem, c.direction, c.options);
      });
    }
    for (int round = 0; round < settings_.rounds; ++round) {
      for (std::size_t i = 0; i < cases.size(); ++i) {
        announce(std::string(cases[i].kernel->name));
        if (settings_.stopped()) return false;
        if (times[i].refusal) continue;
        std::this_thread::sleep_for(settings_.rest);
        times[i].refusal = refusal_of([&] { time_case(*prepared[i], times[i]); });
      }
      for (PeerTimes& peer : peers) {
        announce(peer.peer);
        if (settings_.stopped()) return false;
        if (peer.times.refusal) continue;
        std::this_thread::sleep_for(settings_.rest);
        const PeerAnswer answer = process->time(peer.peer, peer.problem, peer.direction, settings_.timing);
        add_round(peer.times, answer.samples_s, 0);
        if (answer.samples_s.empty())
          peer.times.refusal = std::make_exception_ptr(MachineLacks(answer.lacks));
        peer.times.sm_clock_hz = answer.sm_clock_hz;
      }
    }
    for (const auto& one : prepared) {
      if (one) one->check();
    }
    return !settings_.stopped();  // which may have ended a peer's process
  }

 private:
  void announce(const std::string& what) const {
    if (settings_.on_sample) settings_.on_sample(what);
  }
  void time_case(PassRunner& prepared, DeviceTimes& times) const {
    const auto all_passes = [&prepared](CUstream stream) {
      for (std::size_t pass = 0; pass < prepared.programs().size(); ++pass) prepared.launch(pass, stream);
    };
    const TimedSamples round = timer_.time(all_passes, settings_.timing);
    add_round(times, round.samples_s, round.throttled);
    times.sm_clock_hz = round.mean_sm_clock_hz;
  }

  const ColdTimer& timer_;
  const DeviceBenchmarkSettings& settings_;
};

}  // namespace

DeviceBenchmarkResults run_device_benchmarks(const std::vector<BenchmarkCase>& cases,
                                             const DeviceBenchmarkSettings& settings, PeerProcess* peers) {
  if (const auto lack = device_lack()) throw MachineLacks(*lack);
  const DeviceContext device;
  const ColdTimer timer(device);
  DeviceBenchmarkResults results;
  results.device = device.name();
  results.driver = device.driver_version();
  for (const std::span<const BenchmarkCase> group : groups_of(cases)) {
    std::vector<DeviceTimes> times(group.size());
    std::vector<PeerTimes> group_peers;
    if (peers) {
      for (const std::string& name : peers->names()) {
        group_peers.push_back({name, group.front().problem, group.front().direction, {}});
      }
    }
    if (!Group(timer, settings).run(group, times, group_peers, peers)) break;
    std::move(times.begin(), times.end(), std::back_inserter(results.times));
    std::move(group_peers.begin(), group_peers.end(), std::back_inserter(results.peers));
  }
  return results;
}

}  // namespace tilescope
