// SPDX-License-Identifier: Apache-2.0
// Clocks, memory and guards of a session on a device.
#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <vector>

#include "gpu/launch/device_session.hpp"
#include "gpu/launch/pass_runner.hpp"
#include "tests/gpu/device/device_cases.hpp"

namespace tilescope {
namespace {

using namespace testing;

TEST_CASE("the clocks of SMs and how long each is busy are noted round a pass") {
  const GpuKernel& kernel = find_gpu_kernel("gpu:flash2-simt");
  const AttentionProblem problem{.heads = 16, .heads_kv = 16, .seqlen_q = 8192, .seqlen_k = 8192};
  PassRunner runner(kernel, problem, Direction::forward, kernel.row.default_options(problem));
  const std::vector<double> rates = runner.clock_rates(0);
  const std::map<int, double> busy = runner.busy_cycles(0);
  runner.check();
  CHECK(rates.size() > 1);
  CHECK(busy.size() == rates.size());
  const auto [slowest, fastest] = std::minmax_element(rates.begin(), rates.end());
  CHECK(*slowest > 0.1);  // GHz
  CHECK(*fastest < 1.05 * *slowest);
  // Of many waves: no SM has nothing to do while another has two CTAs to go.
  const auto by_cycles = [](const auto& a, const auto& b) { return a.second < b.second; };
  const auto [first, last] = std::minmax_element(busy.begin(), busy.end(), by_cycles);
  CHECK(first->second > 0.5 * last->second);
}

TEST_CASE("a problem beyond the device's memory is refused with what it needs, and leaves the device clean") {
  const GpuKernel& rung = find_gpu_kernel("gpu:standard");
  const auto open = [&rung](const AttentionProblem& problem) {
    DeviceSession(rung.row, rung.launch, problem, Direction::forward, rung.row.default_options(problem));
  };
  const AttentionProblem small{.seqlen_q = 64, .seqlen_k = 64};
  const AttentionProblem large{
      .batch = 64, .heads = 64, .heads_kv = 64, .seqlen_q = 1 << 17, .seqlen_k = 1 << 17, .head_dim = 64};
  CHECK_NOTHROW(open(small));  // what the first session leaves loaded stays
  // The driver and other processes take and give pages meanwhile: no tensor of the problem may be left, and
  // the smallest has 2 GiB.
  const std::int64_t before = free_device_bytes(), least_leak = tensor_extent(large, TensorName::lse).bytes();
  REQUIRE(least_leak == std::int64_t{2} << 30);
  // S and P of 4096 heads are 2^12 * 2^34 * 4 * 2 bytes, Q, K, V, O and LSE 2^39 + 2^31.
  CHECK_THROWS_WITH_AS(open(large), doctest::Contains("gpu:standard needs 5373972"), MachineLacks);
  CHECK_THROWS_WITH_AS(open(large), doctest::Contains("MiB are free"), MachineLacks);
  CHECK(before - free_device_bytes() < least_leak);
  // The same when the memory is gone between that question and the allocation.
  const std::int64_t too_much = before + (std::int64_t{1} << 30);
  CHECK_THROWS_WITH_AS(DeviceBuffer("too much", too_much),
                       doctest::Contains("out of device memory: too much"), MachineLacks);
  CHECK(before - free_device_bytes() < least_leak);
  CHECK_NOTHROW(open(small));
}

TEST_CASE("a write outside a tensor is refused, with its first byte") {
  DeviceBuffer buffer("out", 1000);
  CHECK_NOTHROW(buffer.check_guards());
  const auto write_at = [&buffer](std::int64_t byte) {
    check_cuda(cudaMemset(static_cast<char*>(buffer.data()) + byte, 0, 3), "writing outside a tensor");
  };
  write_at(1000);
  CHECK_THROWS_WITH_AS(
      buffer.check_guards(),
      "a kernel wrote outside out: its first wrong byte is byte 1000, out has bytes 0 ... 999", DeviceError);
  write_at(-5);
  CHECK_THROWS_WITH_AS(buffer.check_guards(), doctest::Contains("its first wrong byte is byte -5,"),
                       DeviceError);
}

}  // namespace
}  // namespace tilescope
