// SPDX-License-Identifier: Apache-2.0
// What becomes of a user to whom CUPTI refuses the counters. Few machines do, so libcuda and libcupti are
// fakes here (fake_cuda/), on the LD_LIBRARY_PATH of this program and in TILESCOPE_CUPTI.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdlib>

#include "profiler/counters/cupti_error.hpp"
#include "profiler/injection/profiled_command.hpp"
#include "profiler/work_profiler.hpp"
#include "tests/paths.hpp"

using namespace tilescope;

namespace {

struct Refusal {
  const char* call;
  int code;
  const char* advice;  // part of what the user is told to do
};

const Refusal kRefusals[] = {
    {"cuptiProfilerGetCounterAvailability", 35, "NVreg_RestrictProfilingToAdminUsers=0"},
    {"cuptiProfilerGetCounterAvailability", 40, "hypervisor"},
    {"cuptiProfilerGetCounterAvailability", 26, "dcgmi profile --pause"},
    {"cuptiProfilerGetCounterAvailability", 43, "MIG"},
};

/// Lets the fakes refuse as long as it lives.
class Refused {
 public:
  explicit Refused(const Refusal& refusal) {
    setenv("TILESCOPE_FAKE_REFUSAL", (std::string(refusal.call) + "=" + std::to_string(refusal.code)).c_str(),
           1);
  }
  ~Refused() { unsetenv("TILESCOPE_FAKE_REFUSAL"); }
  Refused(const Refused&) = delete;
  Refused& operator=(const Refused&) = delete;
};

bool says(const std::vector<std::string>& messages, const std::string& part) {
  return std::any_of(messages.begin(), messages.end(),
                     [&](const std::string& message) { return message.find(part) != std::string::npos; });
}

CommandOutcome profiled_program(const std::vector<std::string>& arguments = {}) {
  CommandOptions options;
  options.time_limit = std::chrono::seconds(60);
  std::vector<std::string> command = {TILESCOPE_FAKE_PROGRAM};
  command.insert(command.end(), arguments.begin(), arguments.end());
  return run_profiled({}, command, options);
}

}  // namespace

TEST_CASE("in this process a refusal is thrown as what the machine lacks, with what would help") {
  for (const Refusal& refusal : kRefusals) {
    CAPTURE(refusal.code);
    const Refused refused(refusal);
    try {
      WorkProfiler("traffic", {});
      FAIL("nothing was thrown");
    } catch (const CountersUnavailable& error) {
      CHECK(error.code() == refusal.code);
      CHECK(std::string(error.what()).find(refusal.advice) != std::string::npos);
    }
  }
}

TEST_CASE("a command runs to its end without counters, and the record has its launches and the reason") {
  for (const Refusal& refusal : kRefusals) {
    CAPTURE(refusal.code);
    const Refused refused(refusal);
    const CommandOutcome outcome = profiled_program();
    CHECK(outcome.exit_code == 5);
    CHECK(outcome.events.processes == 1);
    CHECK(says(outcome.events.messages, refusal.advice));
    REQUIRE(outcome.events.kernels.size() == 2);
    for (const KernelMeasurement& kernel : outcome.events.kernels) {
      CHECK(kernel.name == "fake_kernel");
      CHECK(kernel.launch.grid == std::array<std::int64_t, 3>{7, 1, 1});
      CHECK(kernel.measured.empty());
    }
  }
}

TEST_CASE("a command that another tool has subscribed in runs to its end, and the tool is what is said") {
  const Refused refused({"cuptiSubscribe", 39, ""});
  const CommandOutcome outcome = profiled_program();
  CHECK(outcome.exit_code == 5);
  CHECK(outcome.events.kernels.empty());
  CHECK(says(outcome.events.messages, "another tool"));
}

TEST_CASE("a command that aborts leaves its launches so far, and the record is not whole") {
  const Refused refused(kRefusals[0]);
  const CommandOutcome outcome = profiled_program({"abort"});
  CHECK(outcome.signal == 6);
  CHECK(outcome.exit_code == 128 + 6);
  CHECK(outcome.events.kernels.size() == 2);
  CHECK(outcome.events.unfinished == 1);
}
