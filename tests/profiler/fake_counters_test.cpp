// SPDX-License-Identifier: Apache-2.0
// What a profiled command may do without stopping the profiler for ever: devices that wait for each other,
// kernels that never end, graphs that change. On the fakes of fake_cuda/, which stand before any real libcuda
// and libcupti.
#include <dlfcn.h>
#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <thread>

#include "profiler/counters/block_counters.hpp"
#include "profiler/counters/cupti_error.hpp"
#include "profiler/counters/metric_sets.hpp"
#include "profiler/driver/device_context.hpp"
#include "profiler/injection/launch_counters.hpp"
#include "profiler/injection/profiled_command.hpp"
#include "profiler/timing/activity_trace.hpp"
#include "profiler/work_profiler.hpp"
#include "tests/paths.hpp"

using namespace tilescope;

namespace {

constexpr const char* kCollective = "ncclDevKernel_AllReduce_Sum_f32_RING_LL";

/// Sets a variable as long as it lives.
class Variable {
 public:
  Variable(const char* name, const std::string& value) : name_(name) { setenv(name, value.c_str(), 1); }
  ~Variable() { unsetenv(name_); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  const char* name_;
};

CommandOutcome profiled(const char* mode, bool communication = false, int limit_s = 30) {
  ProfileRequest request;
  request.metrics = "fake__bytes.sum";
  request.communication = communication;
  CommandOptions options;
  options.time_limit = std::chrono::seconds(limit_s);
  return run_profiled(request, {TILESCOPE_FAKE_PROGRAM, mode}, options);
}

/// How often each kernel was counted.
std::map<std::string, int> counted(const CommandOutcome& outcome) {
  for (const std::string& message : outcome.events.messages) MESSAGE(message);
  std::map<std::string, int> launches;
  for (const KernelMeasurement& kernel : outcome.events.kernels) {
    CHECK(kernel.counters == CounterValues{{"fake__bytes.sum", 64.0}});
    ++launches[kernel.name];
  }
  return launches;
}

bool names_collective(const CommandOutcome& outcome) {
  const auto& said = outcome.events.messages;
  return std::any_of(said.begin(), said.end(), [](const std::string& message) {
    return message.find(kCollective) != std::string::npos;
  });
}

std::vector<std::string> lines_of(const std::string& path) {
  std::vector<std::string> lines;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  return lines;
}

}  // namespace

TEST_CASE("devices that take turns keep their counters, and each launch is counted") {
  const std::string log = (std::filesystem::temp_directory_path() / "tilescope-fake-log").string();
  std::filesystem::remove(log);
  const Variable logged("TILESCOPE_FAKE_LOG", log);
  const CommandOutcome outcome = profiled("devices");
  CHECK(outcome.exit_code == 5);
  CHECK(counted(outcome) == std::map<std::string, int>{{"fake_kernel", 6}});
  CHECK(lines_of(log) == std::vector<std::string>{"enable 0", "enable 1", "disable 0", "disable 1"});
  std::filesystem::remove(log);
}

TEST_CASE(
    "kernels of several devices that wait for each other are left out by name, and the rest is counted") {
  const CommandOutcome one_thread = profiled("collective");
  CHECK(!one_thread.timed_out);
  CHECK(one_thread.exit_code == 5);
  CHECK(one_thread.events.unfinished == 0);
  CHECK(names_collective(one_thread));
  CHECK(counted(one_thread) == std::map<std::string, int>{{"before", 2}, {"after", 2}});

  const CommandOutcome threads = profiled("collective-threads");
  CHECK(!threads.timed_out);
  CHECK(counted(threads) == std::map<std::string, int>{{"after", 2}});

  const CommandOutcome graph = profiled("collective-graph");
  CHECK(!graph.timed_out);
  CHECK(names_collective(graph));
  CHECK(counted(graph).empty());
}

TEST_CASE("communication is counted when asked for, where each device has a thread of its own") {
  const CommandOutcome threads = profiled("collective-threads", true);
  CHECK(!threads.timed_out);
  CHECK(counted(threads) == std::map<std::string, int>{{"after", 2}, {kCollective, 2}});
}

TEST_CASE("what hangs is ended at the time limit") {
  const CommandOutcome outcome = profiled("hang", false, 2);
  CHECK(outcome.timed_out);
  CHECK(outcome.signal == 15);
  CHECK(outcome.events.unfinished == 1);
  CHECK(profiled("collective", true, 2).timed_out);  // one thread that waits for its first device
}

TEST_CASE("a graph that was updated is measured as what it has become") {
  CHECK(counted(profiled("graphs")) == std::map<std::string, int>{{"alone", 1}, {"graph of 3 kernels", 1}});
}

TEST_CASE("a graph with a node that was given another kernel is measured as what it has become") {
  CHECK(counted(profiled("graph-node")) ==
        std::map<std::string, int>{{"alone", 1}, {"second", 1}, {"third", 1}, {"fourth", 1}});
}

TEST_CASE("counters that were switched on are switched off when their session cannot be made") {
  const std::string log = (std::filesystem::temp_directory_path() / "tilescope-fake-log").string();
  std::filesystem::remove(log);
  const Variable logged("TILESCOPE_FAKE_LOG", log);
  const Variable refused("TILESCOPE_FAKE_REFUSAL", "cuptiRangeProfilerGetCounterDataSize=1");
  CHECK_THROWS_AS(WorkProfiler("fake__bytes.sum", {}), CuptiError);
  CHECK(lines_of(log) == std::vector<std::string>{"enable 0", "disable 0"});
  std::filesystem::remove(log);
}

TEST_CASE("counters that fail while another context launches are lost alone, and no context stays current") {
  const Variable refused("TILESCOPE_FAKE_REFUSAL", "cuptiRangeProfilerStop=7 once");
  const CommandOutcome outcome = profiled("contexts");
  CHECK(outcome.exit_code == 5);
  REQUIRE(outcome.events.kernels.size() == 6);
  const auto& kernels = outcome.events.kernels;
  CHECK(std::count_if(kernels.begin(), kernels.end(),
                      [](const KernelMeasurement& kernel) { return kernel.counters.empty(); }) == 3);
  CHECK(outcome.events.messages.front().find("cuptiRangeProfilerStop") != std::string::npos);
}

TEST_CASE("work is measured on the device that was asked for, whichever is current") {
  const TimerOptions twice{.min_samples = 1, .max_samples = 2, .rest_s = 0};
  const DeviceContext other(1);
  WorkProfiler profiler("fake__bytes.sum", twice, 0);
  const CurrentContext current(other.driver(), other.get());
  const auto device = [&] {
    CUdevice now = -1;
    TILESCOPE_DRIVER_CALL(*other.driver(), cuCtxGetDevice, &now);
    return now;
  };
  std::vector<CUdevice> seen;
  const auto work = [&](CUstream_st*) { seen.push_back(device()); };
  profiler.measure("work", work);
  profiler.count("work", work);
  CHECK(seen.size() > 3);
  CHECK(std::count(seen.begin(), seen.end(), 0) == std::ssize(seen));
  CHECK(device() == 1);
}

TEST_CASE("work that throws leaves counters that can be taken again") {
  WorkProfiler profiler("fake__bytes.sum", {});
  int runs = 0;
  const auto fails_once = [&runs](CUstream_st*) {
    if (++runs == 2) throw std::runtime_error("no memory");
  };
  CHECK_THROWS_WITH(profiler.count("work", fails_once), "no memory");
  CHECK(profiler.count("work", fails_once).counters == CounterValues{{"fake__bytes.sum", 64.0}});
}

TEST_CASE("buffers of activity records may be completed while traces come and go") {
  const auto cupti = CuptiLibrary::load();
  {
    const ActivityTrace first(cupti, [](const KernelMeasurement&) {});
  }  // registers the callbacks
  void* const fakes = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  const auto complete_buffer = reinterpret_cast<void (*)()>(dlsym(fakes, "tilescope_fake_complete_buffer"));
  REQUIRE((complete_buffer != nullptr));
  std::atomic<bool> done = false;
  std::thread of_cupti([&] {
    while (!done) complete_buffer();
  });
  for (int i = 0; i < 20000; ++i) const ActivityTrace trace(cupti, [](const KernelMeasurement&) {});
  done = true;
  of_cupti.join();
}

TEST_CASE("passes that never end are given up") {
  const Variable endless("TILESCOPE_FAKE_ENDLESS", "1");
  WorkProfiler profiler("fake__bytes.sum", {});
  int runs = 0;
  CHECK_THROWS_AS(profiler.count("work", [&runs](CUstream_st*) { ++runs; }), CuptiError);
  CHECK(runs < 10);
}

TEST_CASE("a block is counted once, and its counters are given back") {
  const std::string log = (std::filesystem::temp_directory_path() / "tilescope-fake-log-block").string();
  std::filesystem::remove(log);
  const Variable logged("TILESCOPE_FAKE_LOG", log);
  {
    BlockCounters counters("fake__bytes.sum", 0, L2State::cold);
    for (int block = 0; block < 2; ++block) {
      counters.open();
      CHECK(counters.close("block").counters == CounterValues{{"fake__bytes.sum", 64.0}});
    }
    CHECK(counters.facts().passes == 1);
    counters.open();  // and never closed, as where an exception leaves the block
  }
  CHECK(lines_of(log) == std::vector<std::string>{"enable 0", "disable 0"});
  std::filesystem::remove(log);
}

namespace {

void launch(const DriverLibrary& driver, const char* name) {
  auto* const function = reinterpret_cast<CUfunction>(const_cast<char*>(name));
  TILESCOPE_DRIVER_CALL(driver, cuLaunchKernel, function, 7, 1, 1, 32, 1, 1, 0, nullptr, nullptr, nullptr);
}

}  // namespace

TEST_CASE("a process counts its own kernels, from all threads, and only while it asks to") {
  const DeviceContext device;  // made long before
  const DriverLibrary& driver = *device.driver();
  launch(driver, "before");
  for (int block = 0; block < 2; ++block) {
    LaunchCounters counters("fake__bytes.sum", 0, L2State::cold, "");
    counters.open();
    launch(driver, "first");
    std::thread([&driver, &device] {
      const CurrentContext current(device.driver(), device.get());
      launch(driver, "of another thread");
    }).join();
    const Events events = counters.close();
    launch(driver, "after");
    CHECK(events.messages.empty());
    CHECK(events.unfinished == 0);
    REQUIRE(events.kernels.size() == 2);
    CHECK(events.kernels[0].name == "first");
    CHECK(events.kernels[1].name == "of another thread");
    CHECK(events.kernels[1].counters == CounterValues{{"fake__bytes.sum", 64.0}});
    CHECK(events.collections.size() == 1);
  }
}

TEST_CASE(
    "who has subscribed before keeps his callbacks, and counters by kernel are refused with the reason") {
  const Variable refused("TILESCOPE_FAKE_REFUSAL", "cuptiSubscribe=39");
  LaunchCounters counters("fake__bytes.sum", 0, L2State::cold, "");
  CHECK_THROWS_AS(counters.open(), CountersUnavailable);
  CHECK_THROWS_AS(counters.open(), CountersUnavailable);
}
