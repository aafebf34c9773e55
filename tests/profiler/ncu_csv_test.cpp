// SPDX-License-Identifier: Apache-2.0
// Reading what Nsight Compute writes, and the committed records of an H200 held against it.
#include "profiler/ncu_csv.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <fstream>
#include <regex>
#include <sstream>

#include "cpu_ref/errors.hpp"
#include "profiler/kernel_record.hpp"

using namespace tilescope;

namespace {

constexpr const char* kTable =
    "==PROF== Connected\n"
    "\"ID\",\"Kernel Name\",\"Block Size\",\"Grid Size\",\"dram__bytes_read.sum\",\"note\"\r\n"
    "\"\",\"\",\"\",\"\",\"byte\",\"\"\n"
    "\"0\",\"f<\"\"a\"\", 1>(int, float)\",\"(128, 1, 1)\",\"(32, 2, 16)\",\"103,895,296\",\"x\"\n"
    "checksum 1.5\n"
    "\"1\",\"g()\",\"(1, 1, 1)\",\"(1, 1, 1)\",\"0\",\"\"\n";

std::string read(const std::string& name) {
  std::ifstream file(std::string(TILESCOPE_SOURCE_DIR) + "/reports/profiler/" + name);
  REQUIRE(file);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

KernelRecord record(const std::string& name) { return parse_kernel_record(name, read(name)); }

/// |ours - ncu's| / ncu's, over the attention kernels.
std::vector<double> deviations(const KernelRecord& ours, const std::vector<KernelMeasurement>& ncu,
                               const std::string& metric, const std::string& counter) {
  static const std::regex attention("flash|fmha|cudnn");
  std::vector<double> result;
  REQUIRE(ours.kernels.size() == ncu.size());
  for (std::size_t i = 0; i < ncu.size(); ++i) {
    CHECK(ours.kernels[i].launch.grid == ncu[i].launch.grid);
    CHECK(ours.kernels[i].launch.block == ncu[i].launch.block);
    if (!std::regex_search(ours.kernels[i].name, attention)) continue;
    const double theirs = ncu[i].counters.at(counter);
    result.push_back(std::abs(ours.kernels[i].measured.at(metric) - theirs) / theirs);
  }
  std::sort(result.begin(), result.end());
  return result;
}

}  // namespace

TEST_CASE("ncu's CSV is read among other output, with quotes, separators and thousands") {
  const auto kernels = parse_ncu_csv("x.csv", kTable);
  REQUIRE(kernels.size() == 2);
  CHECK(kernels[0].name == "f<\"a\", 1>(int, float)");
  CHECK(kernels[0].launch.grid == std::array<std::int64_t, 3>{32, 2, 16});
  CHECK(kernels[0].launch.block == std::array<std::int64_t, 3>{128, 1, 1});
  CHECK(kernels[0].counters == std::map<std::string, double>{{"dram__bytes_read.sum", 103895296.0}});
}

TEST_CASE("a CSV of another kind is refused by name") {
  const std::string table = kTable;
  for (const auto& [from, to] : {std::pair<std::string, std::string>{"Kernel Name", "Name"},
                                 {"103,895,296", "many"},
                                 {"(32, 2, 16)", "32x2x16"},
                                 {"\"g()\",", ""}}) {
    std::string broken = table;
    broken.replace(broken.find(from), from.size(), to);
    CHECK_THROWS_WITH_AS(parse_ncu_csv("x.csv", broken), doctest::Contains("x.csv"), BadInput);
  }
  CHECK_THROWS_AS(parse_ncu_csv("x.csv", ""), BadInput);
}

TEST_CASE("on an H200 our counters of PyTorch's attention kernels agree with Nsight Compute's") {
  const auto ncu = parse_ncu_csv("h200-ncu.csv", read("h200-ncu.csv"));
  const KernelRecord ours = record("h200-traffic.json");
  CHECK(deviations(ours, ncu, "sm_l2_read_bytes", "l1tex__m_xbar2l1tex_read_bytes.sum").back() < 0.01);
  CHECK(deviations(ours, ncu, "warp_instructions", "smsp__inst_executed.sum").back() < 0.001);
  // Two kernels vary by themselves: cuDNN's conversion of dQ writes partial sectors, and the memory-efficient
  // backward and one forward read another amount from DRAM in each run, under ncu too.
  const auto writes = deviations(ours, ncu, "sm_l2_write_bytes", "l1tex__m_l1tex2xbar_write_bytes.sum");
  CHECK(writes[writes.size() * 8 / 10] < 0.01);
  CHECK(writes.back() < 0.05);
  const auto reads = deviations(ours, ncu, "dram_read_bytes", "dram__bytes_read.sum");
  REQUIRE(reads.size() == 30);
  CHECK(reads[reads.size() * 8 / 10] < 0.01);
  CHECK(reads.back() < 0.1);
}

TEST_CASE("on an H200 DRAM writes of a pass that stores each byte once are the bytes that it stores") {
  const KernelRecord once = record("h200-traffic.json");
  int kernels = 0;
  for (const KernelMeasurement& kernel : once.kernels) {
    // cuDNN's forward of (2, 16, 4096, 128) in fp16: the output and one fp32 row statistic.
    if (kernel.name.find("fprop_wgmma_f16_knob_7_64x128x128") == std::string::npos) continue;
    ++kernels;
    const double stored = 2.0 * 16 * 4096 * (128 * 2 + 4);
    CHECK(kernel.measured.at("dram_write_bytes") == doctest::Approx(stored).epsilon(0.05));
  }
  CHECK(kernels > 0);
}
