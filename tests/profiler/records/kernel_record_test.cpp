// SPDX-License-Identifier: Apache-2.0
// The record of kernels: what is written comes back, and damage is named.
#include "profiler/records/kernel_record.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "common/errors.hpp"

using namespace tilescope;

namespace {

KernelMeasurement measured_kernel() {
  KernelMeasurement kernel;
  kernel.name = "void f<float, 128>(int*) \"quoted\"";
  kernel.launch = {{7, 2, 1}, {128, 1, 1}, {{2, 1, 1}}, 168, 49152, 0};
  kernel.counters = {{"dram__bytes_read.sum", 4362730000.0}, {"lts__t_sector_hit_rate.pct", 73.25}};
  kernel.measured = {{"dram_read_bytes", 4362730000.0}};
  kernel.time = KernelTime{{3e-3, 1e-3, 2e-3}};
  return kernel;
}

KernelRecord some_record() {
  KernelRecord record;
  record.argv = {"tilescope", "profile", "--", "python3", "x.py"};
  record.when = "2026-01-31T23:59:59Z";
  record.metrics = "traffic";
  record.exit_code = 3;
  record.complete = true;
  record.collections = {{"NVIDIA H200", "GH100", "13.0", "kernel", 2}};
  record.messages = {"something"};
  record.kernels = {measured_kernel(), {}};
  return record;
}

KernelMeasurement timed_launch(const std::string& name, std::int64_t grid, double time_s) {
  KernelMeasurement kernel;
  kernel.name = name;
  kernel.launch.grid[0] = grid;
  if (time_s > 0) kernel.time = KernelTime{{time_s}};
  return kernel;
}

}  // namespace

TEST_CASE("a time may come without its samples") {
  KernelRecord record = some_record();
  record.kernels[0].time = KernelTime{{}, KernelTime::Summary{2e-3, 1e-3, 30}};
  const KernelRecord back = parse_kernel_record("here", to_json_text(record));
  CHECK(back == record);
  CHECK(back.kernels[0].time->median_s() == 2e-3);
  CHECK(back.kernels[0].time->min_s() == 1e-3);
}

TEST_CASE("a record comes back as it was written, whole numbers as integers") {
  const KernelRecord record = some_record();
  const std::string text = to_json_text(record);
  CHECK(parse_kernel_record("here", text) == record);
  const auto json = nlohmann::json::parse(text);
  CHECK(json["schema"] == "tilescope.kernels/1");
  CHECK(json["kernels"][0]["counters"]["dram__bytes_read.sum"].is_number_integer());
  CHECK(json["kernels"][0]["time"]["median_s"] == 2e-3);
  CHECK(!json["kernels"][1].contains("time"));
  CHECK(!json["kernels"][1]["launch"].contains("registers"));
}

TEST_CASE("values that JSON has no numbers for survive") {
  KernelRecord record = some_record();
  record.kernels[0].counters = {{"a.ratio", std::nan("")}, {"b.ratio", INFINITY}, {"c.ratio", -INFINITY}};
  const KernelRecord back = parse_kernel_record("here", to_json_text(record));
  CHECK(std::isnan(back.kernels[0].counters.at("a.ratio")));
  CHECK(back.kernels[0].counters.at("b.ratio") == INFINITY);
  CHECK(back.kernels[0].counters.at("c.ratio") == -INFINITY);
}

TEST_CASE("a damaged record is refused by name, wherever it was cut") {
  const std::string text = to_json_text(some_record());
  for (std::size_t length = 0; length + 2 < text.size(); length += 13) {
    CHECK_THROWS_WITH_AS(parse_kernel_record("cut.json", text.substr(0, length)),
                         doctest::Contains("cut.json"), BadInput);
  }
  std::string other = text;
  other.replace(other.find("kernels/1"), 9, "kernels/9");
  CHECK_THROWS_WITH_AS(parse_kernel_record("x", other), doctest::Contains("tilescope.kernels/9"), BadInput);
  CHECK_THROWS_AS(parse_kernel_record("x", R"({"schema": "tilescope.kernels/1"})"), BadInput);
  CHECK_THROWS_AS(parse_kernel_record("x", "[1, 2]"), BadInput);
}

TEST_CASE("runs are joined by the launch of the same name and geometry that comes as often before") {
  std::vector<KernelMeasurement> kernels = {timed_launch("f", 1, 0), timed_launch("g", 1, 0),
                                            timed_launch("f", 1, 0), timed_launch("f", 2, 0),
                                            timed_launch("h", 1, 0)};
  // Two streams may end their kernels in another order.
  const std::vector<KernelMeasurement> traced = {timed_launch("g", 1, 20), timed_launch("f", 2, 30),
                                                 timed_launch("f", 1, 10), timed_launch("f", 1, 11)};
  CHECK(join_runs(kernels, traced) == 1);
  const double expected[] = {10, 20, 11, 30};
  for (std::size_t i = 0; i < 4; ++i) CHECK(kernels[i].time->median_s() == expected[i]);
  CHECK(!kernels[4].time);
}

TEST_CASE("what several runs counted of a launch comes together") {
  std::vector<KernelMeasurement> kernels = {timed_launch("f", 1, 0)}, others = {timed_launch("f", 1, 0)};
  kernels[0].counters = {{"a.sum", 1}};
  others[0].counters = {{"a.sum", 2}, {"b.sum", 3}};
  others[0].measured = {{"bytes", 4}};
  CHECK(join_runs(kernels, others) == 0);
  CHECK(kernels[0].counters == std::map<std::string, double>{{"a.sum", 1}, {"b.sum", 3}});
  CHECK(kernels[0].measured.at("bytes") == 4);
}
