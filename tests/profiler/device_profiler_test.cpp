// SPDX-License-Identifier: Apache-2.0
// The profiler on a device: counters, times, timelines, and the ways in which other processes launch. Exits
// with 77 (skipped) where there is no device that may be counted on.
#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "common/errors.hpp"
#include "profiler/calibration/self_test.hpp"
#include "profiler/injection/profiled_command.hpp"
#include "profiler/timing/timeline.hpp"
#include "profiler/work_profiler.hpp"
#include "tests/profiler/device_kernels.hpp"

using namespace tilescope;
using namespace tilescope::testing;

namespace {

class Buffer {
 public:
  explicit Buffer(std::int64_t bytes) {
    REQUIRE(cudaMalloc(&data_, static_cast<std::size_t>(bytes)) == cudaSuccess);
    REQUIRE(cudaMemset(data_, 0, static_cast<std::size_t>(bytes)) == cudaSuccess);
  }
  ~Buffer() { cudaFree(data_); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  void* get() const { return data_; }

 private:
  void* data_ = nullptr;
};

bool within(double value, double expected, double relative) {
  return value >= (1 - relative) * expected && value <= (1 + relative) * expected;
}

/// Runs the program beside this one in a mode of its own.
CommandOutcome profiled(const std::string& mode, const std::string& metrics, ProfileRequest request = {}) {
  std::error_code failed;
  const auto folder = std::filesystem::read_symlink("/proc/self/exe", failed).parent_path();
  request.metrics = metrics;
  CommandOptions options;
  options.time_limit = std::chrono::seconds(60);
  return run_profiled(request, {(folder / "profiled_program").string(), mode}, options);
}

/// What each touch_kernel writes is known to the byte.
void check_touches(const CommandOutcome& outcome, std::size_t launches) {
  for (const std::string& message : outcome.events.messages) MESSAGE(message);
  CHECK(!outcome.timed_out);
  REQUIRE(outcome.events.kernels.size() == launches);
  for (const KernelMeasurement& kernel : outcome.events.kernels) {
    CHECK(kernel.name.find("touch_kernel") != std::string::npos);
    CHECK(kernel.launch.grid[0] * kernel.launch.block[0] * 16 == kTouchBytes);
    REQUIRE(kernel.measured.count("sm_l2_write_bytes") == 1);
    CHECK(kernel.measured.at("sm_l2_write_bytes") == kTouchBytes);
  }
}

}  // namespace

TEST_CASE("kernels that move known bytes by every path are counted right") {
  const SelfTest test = run_self_test();
  CHECK(test.checks.size() >= 5);
  for (const CalibrationCheck& check : test.checks) {
    CHECK_MESSAGE(check.holds, check.kernel, " ", check.metric, ": ", check.measured);
  }
}

TEST_CASE("a copy that fits L2 reads and writes DRAM from a cold L2, and hardly at all in a warm one") {
  constexpr std::int64_t kBytes = 16 << 20;
  const Buffer source(kBytes), target(kBytes);
  const auto copy = [&](cudaStream_t stream) { launch_copy(source.get(), target.get(), kBytes, stream); };
  for (const L2State l2 : {L2State::cold, L2State::warm}) {
    CAPTURE(to_string(l2));
    WorkProfiler profiler("traffic", {.l2 = l2, .max_samples = 20});
    const WorkMeasurement work = profiler.measure("copy", copy);
    const auto& bytes = work.kernel.measured;
    CHECK(work.launches == 1);
    CHECK(work.kernel.name.find("copy_kernel") != std::string::npos);
    CHECK(work.kernel.launch.grid[0] == kBytes / (16 * 16 * 256));
    CHECK(work.kernel.launch.registers.value_or(0) > 0);
    CHECK(within(bytes.at("sm_l2_read_bytes"), kBytes, 0.0002));
    CHECK(within(bytes.at("sm_l2_write_bytes"), kBytes, 0.0001));
    if (l2 == L2State::cold) {
      CHECK(within(bytes.at("dram_read_bytes"), kBytes, 0.02));
      CHECK(within(bytes.at("dram_write_bytes"), kBytes, 0.02));
    } else {
      CHECK(bytes.at("dram_read_bytes") < 0.05 * kBytes);
    }
    CHECK(work.time.l2 == l2);
    CHECK(work.time.median_s() > 1e-6);
  }
}

TEST_CASE("counters that need several passes are the same in each measurement") {
  const Buffer target(kTouchBytes);
  WorkProfiler profiler("warp", {.max_samples = 10});
  CHECK(profiler.passes() > 1);
  const auto touch = [&](cudaStream_t stream) { launch_touch(target.get(), stream); };
  const WorkMeasurement first = profiler.measure("touch", touch), second = profiler.measure("touch", touch);
  CHECK(first.kernel.measured.at("threads_per_instruction") == doctest::Approx(32).epsilon(0.01));
  CHECK(first.kernel.measured.at("local_store_bytes") == 0);
  CHECK(first.kernel.measured.at("threads_per_instruction") ==
        second.kernel.measured.at("threads_per_instruction"));
}

TEST_CASE("counters taken several times are kept one by one beside their median") {
  const Buffer target(kTouchBytes);
  const auto touch = [&](cudaStream_t stream) { launch_touch(target.get(), stream); };
  WorkProfiler profiler("traffic", {.max_samples = 10});
  const WorkMeasurement work = profiler.measure("touch", touch, 3);
  CHECK(work.launches == 1);
  REQUIRE(work.counted.size() == 3);
  for (const KernelMeasurement& once : work.counted) {
    CHECK(once.measured.at("sm_l2_write_bytes") == kTouchBytes);
  }
  CHECK(work.kernel.measured.at("sm_l2_write_bytes") == kTouchBytes);
}

TEST_CASE("a kernel that lasts a known time is timed so") {
  constexpr std::int64_t kNanoseconds = 300000;
  WorkProfiler profiler("sm_clock", {.min_samples = 20, .max_samples = 50});
  const TimedSamples time =
      profiler.measure("spin", [](cudaStream_t stream) { launch_spin(kNanoseconds, stream); }).time;
  CHECK(time.samples_s.size() >= 20);
  CHECK(time.min_s() >= 0.99e-9 * kNanoseconds);
  CHECK(time.median_s() <= 1.05e-9 * kNanoseconds);
  CHECK(time.mean_sm_clock_hz > 1e8);
}

TEST_CASE("the device rests before each sample, as long as is asked for") {
  constexpr double kRest = 0.02;
  const auto seconds = [](double rest) {
    WorkProfiler profiler("sm_clock",
                          {.min_samples = 20, .max_samples = 20, .min_time_s = 0, .rest_s = rest});
    const auto began = std::chrono::steady_clock::now();
    profiler.measure("spin", [](cudaStream_t stream) { launch_spin(1000, stream); });
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  };
  CHECK(seconds(kRest) >= seconds(0) + 10 * kRest);
}

TEST_CASE("a timeline sees the bytes of the work under it") {
  constexpr std::int64_t kBytes = std::int64_t{1} << 30;
  constexpr int kCopies = 50;
  const Buffer source(kBytes), target(kBytes);
  const Timeline timeline = sample_timeline(1e-4, [&] {
    for (int i = 0; i < kCopies; ++i) launch_copy(source.get(), target.get(), kBytes, nullptr);
    cudaDeviceSynchronize();
  });
  CHECK(!timeline.overflowed);
  CHECK(timeline.samples.size() > 100);
  double read_bytes = 0, busiest = 0;
  for (const TimelineSample& sample : timeline.samples) {
    read_bytes += sample.dram_read_bytes;
    busiest = std::max(busiest, sample.dram_read_share + sample.dram_write_share);
  }
  CHECK(within(read_bytes, double{kCopies} * kBytes, 0.05));
  CHECK(busiest > 0.5);
  CHECK(busiest <= 1.05);
}

TEST_CASE("launches are counted whichever way they come") {
  const std::pair<const char*, std::size_t> modes[] = {
      {"plain", 5}, {"many", 200}, {"streams", 32}, {"contexts", 7}, {"fork", 4}};
  for (const auto& [mode, launches] : modes) {
    CAPTURE(mode);
    const CommandOutcome outcome = profiled(mode, "sm_l2_write_bytes,dram_write_bytes");
    CHECK(outcome.exit_code == 0);
    CHECK(outcome.events.unfinished == 0);
    check_touches(outcome, launches);
  }
}

TEST_CASE("kernel replay counts launches too, and says that it cannot count those inside a graph") {
  check_touches(profiled("plain", "sm_l2_write_bytes,l2_hit_rate"), 5);
  const CommandOutcome graph = profiled("graph", "sm_l2_write_bytes,l2_hit_rate");
  CHECK(graph.exit_code == 0);
  double written = 0;
  for (const KernelMeasurement& kernel : graph.events.kernels) {
    const auto bytes = kernel.measured.find("sm_l2_write_bytes");
    if (bytes != kernel.measured.end()) written += bytes->second;
  }
  if (written == 6 * kTouchBytes) return;  // a libcupti that can
  CHECK(written == 0);
  CHECK(graph.events.kernels.size() == 6);  // their names and launches
  CHECK(graph.events.unfinished == 1);
  const auto& said = graph.events.messages;
  CHECK(std::any_of(said.begin(), said.end(), [](const std::string& message) {
    return message.find("--replay application") != std::string::npos;
  }));
}

TEST_CASE("a graph in one pass, or in one part of several, is one piece of work") {
  for (const std::int64_t part : {ProfileRequest::kWhole, std::int64_t{0}}) {
    CAPTURE(part);
    ProfileRequest request;
    request.part = part;
    const CommandOutcome outcome =
        profiled("graph", part < 0 ? "sm_l2_write_bytes" : "sm_l2_write_bytes,l2_hit_rate", request);
    CHECK(outcome.exit_code == 0);
    REQUIRE(outcome.events.kernels.size() == 2);
    for (const KernelMeasurement& kernel : outcome.events.kernels) {
      CHECK(kernel.name == "graph of 3 kernels");
      CHECK(kernel.measured.at("sm_l2_write_bytes") == 3 * kTouchBytes);
    }
  }
}

TEST_CASE("a command that crashes keeps what was measured, and the record says that it is not whole") {
  const CommandOutcome outcome = profiled("crash", "sm_l2_write_bytes");
  CHECK(outcome.exit_code == 128 + 6);
  CHECK(outcome.events.unfinished == 1);
  CHECK(outcome.events.kernels.size() >= 8);
  CHECK(outcome.events.kernels.size() <= 40);
}

TEST_CASE("filters by name, number and NVTX range") {
  ProfileRequest request;
  request.skip = 1;
  request.count = 2;
  check_touches(profiled("plain", "sm_l2_write_bytes", request), 2);
  request = {};
  request.kernel_filter = "no such kernel";
  CHECK(profiled("plain", "sm_l2_write_bytes", request).events.kernels.empty());
  request = {};
  for (const auto& [range, launches] : {std::pair<const char*, std::size_t>{"training", 4},
                                        {"^forward$", 4},
                                        {"evaluation", 4},
                                        {"step|eval", 8},
                                        {"nothing", 0}}) {
    CAPTURE(range);
    request.nvtx_filter = range;
    check_touches(profiled("ranges", "sm_l2_write_bytes", request), launches);
  }
}

TEST_CASE("an L2 left as it is shows what the launch before left in it") {
  ProfileRequest request;
  request.l2 = L2State::warm;
  const CommandOutcome outcome = profiled("plain", "sm_l2_write_bytes,dram_read_bytes", request);
  check_touches(outcome, 5);
  REQUIRE(outcome.events.collections.size() == 1);
  CHECK(outcome.events.collections[0].l2 == "warm");
}

TEST_CASE("without the permission to count the command runs to its end and the reason is said") {
  const CommandOutcome outcome = profiled("without-capabilities", "sm_l2_write_bytes");
  CHECK(outcome.exit_code == 0);
  CHECK(!outcome.timed_out);
  REQUIRE(outcome.events.kernels.size() == 2);  // their names and launches need no permission
  if (outcome.events.kernels[0].measured.empty()) {
    REQUIRE(!outcome.events.messages.empty());
    CHECK(outcome.events.messages[0].find("counters") != std::string::npos);
  } else {
    MESSAGE("this machine lets every user count");
  }
}

TEST_CASE("a trace has every launch with its time and costs no counters") {
  ProfileRequest request;
  request.what = ProfileRequest::What::trace;
  const CommandOutcome outcome = profiled("streams", "traffic", request);
  CHECK(outcome.exit_code == 0);
  REQUIRE(outcome.events.kernels.size() == 32);
  for (const KernelMeasurement& kernel : outcome.events.kernels) {
    CHECK(kernel.time.has_value());
    CHECK(kernel.counters.empty());
  }
}

int main(int count, char** arguments) {
  constexpr int kSkipped = 77;
  try {
    WorkProfiler("sm_l2_read_bytes", {});
  } catch (const MachineLacks& lack) {
    std::printf("skipped: %s\n", lack.what());
    return kSkipped;
  }
  return doctest::Context(count, arguments).run();
}
