// SPDX-License-Identifier: Apache-2.0
// What `tilescope profile --kernel` prints of a measured run.
#include "analysis/cli/profile/profile.hpp"

#include <doctest/doctest.h>

#include <sstream>

#include "tests/cli/diff_records.hpp"

namespace tilescope::testing {

TEST_CASE("a command's kernels are printed with the counters that were asked for, within 100 columns") {
  KernelRecord record;
  record.metrics = "traffic,lts__t_sectors.sum";
  KernelMeasurement kernel;
  kernel.name = "void " + std::string(150, 'k') + "<float>(int*)";
  kernel.counters = {{"lts__t_sectors.sum", 12345}};
  kernel.measured = {{"sm_l2_read_bytes", 2e9}};
  record.kernels = {kernel};
  const std::string table = cli::kernel_table(record).text();
  CAPTURE(table);
  CHECK(table.find("lts__t_sectors.sum") != std::string::npos);
  CHECK(table.find("12345") != std::string::npos);
  CHECK(table.find("2 GB") != std::string::npos);
  std::istringstream lines(table);
  for (std::string line; std::getline(lines, line);) CHECK(line.size() <= 100);
}

TEST_CASE("counters that were asked for by name are printed, and those behind metrics are not") {
  RunEntry run = run_of("gpu:a");
  run.passes[0].counters = {{"lts__t_sectors.sum", std::int64_t{12345}}, {"dram__bytes_read.sum", 2.5}};
  const std::string table = cli::counter_table(run, Direction::forward, "traffic,lts__t_sectors.sum").text();
  CHECK(table.find("forward  lts__t_sectors.sum    12345") != std::string::npos);
  CHECK(table.find("dram__bytes_read") == std::string::npos);
  CHECK(cli::counter_table(run, Direction::forward, "traffic").empty());
  CHECK(cli::counter_table(run, Direction::backward, "lts__t_sectors.sum").empty());
}

TEST_CASE("so are those of a command's kernels: their means over the launches that have them") {
  KernelRecord record;
  record.metrics = "traffic,lts__t_sectors.sum";
  for (const double sectors : {10.0, 25.0}) {
    KernelMeasurement kernel;
    kernel.name = "gemm";
    kernel.counters = {{"lts__t_sectors.sum", sectors}, {"dram__bytes_read.sum", 2.5}};
    record.kernels.push_back(kernel);
  }
  record.kernels.push_back({.name = "uncounted", .launch = {}, .counters = {}, .measured = {}, .time = {}});
  const std::string table = cli::kernel_table(record).text();
  CHECK(table.find("gemm       lts__t_sectors.sum  17.5") != std::string::npos);
  CHECK(table.find("dram__bytes_read") == std::string::npos);
  record.metrics = "traffic";
  CHECK(cli::kernel_table(record).text().find("lts__t_sectors") == std::string::npos);
}

}  // namespace tilescope::testing
