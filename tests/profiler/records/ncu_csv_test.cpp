// SPDX-License-Identifier: Apache-2.0
// Reading what Nsight Compute writes, and the committed records of an H200 held against it.
#include "profiler/records/ncu_csv.hpp"

#include <doctest/doctest.h>
#include <zlib.h>

#include <algorithm>
#include <cmath>

#include "common/errors.hpp"
#include "profiler/records/kernel_record.hpp"
#include "profiler/records/launch_rounds.hpp"
#include "tests/paths.hpp"

using namespace tilescope;

namespace {

constexpr const char* kTable =
    "==PROF== Connected\n"
    "\"ID\",\"Kernel Name\",\"Block Size\",\"Grid Size\",\"dram__bytes_read.sum\",\"note\"\r\n"
    "\"\",\"\",\"\",\"\",\"byte\",\"\"\n"
    "\"0\",\"f<\"\"a\"\", 1>(int, float)\",\"(128, 1, 1)\",\"(32, 2, 16)\",\"103,895,296\",\"x\"\n"
    "checksum 1.5\n"
    "\"1\",\"g()\",\"(1, 1, 1)\",\"(1, 1, 1)\",\"0\",\"\"\n";

/// Compressed or not.
std::string committed(const std::string& name) {
  const gzFile file = gzopen((std::string(TILESCOPE_SOURCE_DIR) + "/reports/profiler/" + name).c_str(), "rb");
  REQUIRE(file != nullptr);
  std::string text;
  char buffer[1 << 16];
  for (int got; (got = gzread(file, buffer, sizeof buffer)) > 0;)
    text.append(buffer, static_cast<std::size_t>(got));
  gzclose(file);
  return text;
}

KernelRecord record(const std::string& name) { return parse_kernel_record(name, committed(name)); }

std::vector<LaunchRounds> our_rounds() {
  std::vector<std::vector<KernelMeasurement>> runs;
  for (const char* run : {"1", "2", "3", "4"}) {
    runs.push_back(record(std::string("h200-rounds-") + run + ".json.gz").kernels);
  }
  return gather_rounds(runs);
}

std::vector<LaunchRounds> ncu_rounds() {
  std::vector<std::vector<KernelMeasurement>> runs;
  for (const char* run : {"1", "2", "3"}) {
    const std::string name = std::string("h200-rounds-ncu-") + run + ".csv";
    runs.push_back(parse_ncu_csv(name, committed(name)));
  }
  return gather_rounds(runs);
}

/// |ours - ncu's| / ncu's of the medians, ascending.
std::vector<double> deviations(const std::string& metric, const std::string& counter) {
  const std::vector<LaunchRounds> ours = our_rounds(), ncu = ncu_rounds();
  std::vector<double> result;
  REQUIRE(ours.size() == ncu.size());
  for (std::size_t i = 0; i < ncu.size(); ++i) {
    CHECK(ours[i].first.launch.grid == ncu[i].first.launch.grid);
    CHECK(ours[i].first.launch.block == ncu[i].first.launch.block);
    CHECK(ours[i].all.size() >= 5);
    CHECK(ncu[i].all.size() >= 5);
    const double theirs = spread_of(ncu[i], "", counter)->median;
    result.push_back(std::abs(spread_of(ours[i], metric, "")->median - theirs) / theirs);
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

TEST_CASE("Nsight Compute's page for people is read too, unless it is rounded") {
  const std::string page =
      "==PROF== Connected to process 2153\n"
      "[2153] python3@127.0.0.1\n"
      "  void f<128, g(int)>(Params) (32, 2, 16)x(128, 1, 1), Context 1, Stream 7, Device 0, CC 9.0\n"
      "    Metric Name                     Metric Unit Metric Value\n"
      "    dram__bytes_read.sum                   byte  103,895,296\n"
      "    launch__registers_per_thread register/thread           255\n"
      "    smsp__average_ratio.pct                            12.50\n"
      "  h() (1, 1, 1)x(32, 1, 1), Context 1, Stream 7, Device 0, CC 9.0\n"
      "    dram__bytes_read.sum                   byte            0\n";
  REQUIRE(is_ncu_text(page));
  const std::vector<KernelMeasurement> kernels = parse_ncu_text("page", page);
  REQUIRE(kernels.size() == 2);
  CHECK(kernels[0].name == "void f<128, g(int)>(Params)");
  CHECK(kernels[0].launch.grid == std::array<std::int64_t, 3>{32, 2, 16});
  CHECK(kernels[0].launch.block == std::array<std::int64_t, 3>{128, 1, 1});
  CHECK(kernels[0].counters == std::map<std::string, double>{{"dram__bytes_read.sum", 103895296},
                                                             {"launch__registers_per_thread", 255},
                                                             {"smsp__average_ratio.pct", 12.5}});
  CHECK(kernels[1].counters.at("dram__bytes_read.sum") == 0);
  std::string rounded = page;
  rounded.replace(rounded.find("  byte  103,895,296"), 19, " Mbyte       103.90");
  CHECK_THROWS_WITH_AS(parse_ncu_text("page", rounded), doctest::Contains("--print-units base"), BadInput);
  CHECK_THROWS_WITH_AS(parse_ncu_text("page", "Metric Name\n"), doctest::Contains("without kernels"),
                       BadInput);
}

TEST_CASE("the page and the table that Nsight Compute 2025.3 wrote of a launch on an H200 say the same") {
  const auto text_of = [](const char* name) {
    std::ifstream file(std::string(TILESCOPE_SOURCE_DIR) + "/tests/profiler/records/" + name);
    return std::string(std::istreambuf_iterator(file), {});
  };
  const auto page = parse_ncu_text("page", text_of("ncu_raw_page.txt"));
  const auto table = parse_ncu_csv("table", text_of("ncu_raw_page.csv"));
  REQUIRE(page.size() == 1);
  REQUIRE(table.size() == 1);
  CHECK(page[0].name == table[0].name);
  CHECK(page[0].name.ends_with("0, 1, 0, 0, 1, 1, 0, 0>(Flash_fwd_params)"));
  CHECK(page[0].launch.grid == std::array<std::int64_t, 3>{16, 1, 8});
  CHECK(page[0].launch.block == table[0].launch.block);
  CHECK(page[0].counters == table[0].counters);
  CHECK(page[0].counters.at("l1tex__m_xbar2l1tex_read_bytes.sum") == 37748736);
  CHECK(page[0].counters.at("launch__shared_mem_per_block") == 50176);
}

TEST_CASE("a table of Nsight Compute says what launches had, and is refused where it is rounded") {
  std::string table = kTable;
  const auto replace = [&table](const char* what, const char* by) {
    for (std::size_t at; (at = table.find(what)) != std::string::npos;) {
      table.replace(at, std::char_traits<char>::length(what), by);
    }
  };
  replace("\"note\"", "\"launch__registers_per_thread\"");
  replace("\"x\"", "\"255\"");
  CHECK(parse_ncu_csv("table", table)[0].counters.at("launch__registers_per_thread") == 255);
  replace("\"byte\"", "\"Mbyte\"");
  CHECK_THROWS_WITH_AS(parse_ncu_csv("table", table), doctest::Contains("must be exact"), BadInput);
}

TEST_CASE("on an H200 our counters of PyTorch's attention kernels agree with Nsight Compute's") {
  CHECK(deviations("sm_l2_read_bytes", "l1tex__m_xbar2l1tex_read_bytes.sum").back() < 0.01);
  CHECK(deviations("sm_l2_write_bytes", "l1tex__m_l1tex2xbar_write_bytes.sum").back() < 0.01);
  CHECK(deviations("warp_instructions", "smsp__inst_executed.sum").back() < 0.001);
  // Three kernels read another amount from DRAM in each launch and session, under ncu too: the
  // memory-efficient backward at head_dim 128, twice, and the causal forward of FlashAttention-2.
  const auto reads = deviations("dram_read_bytes", "dram__bytes_read.sum");
  REQUIRE(reads.size() == 30);
  CHECK(reads[26] < 0.01);
  CHECK(reads.back() < 0.2);
}

TEST_CASE(
    "kernels that store parts of sectors ask for the same in each launch, and send what has not met in L1") {
  for (const LaunchRounds& launch : gather_rounds({record("h200-partial-sectors.json.gz").kernels})) {
    CAPTURE(launch.first.name);
    CHECK(launch.all.size() == 2);
    const auto of = [&](const char* metric) { return *spread_of(launch, metric, ""); };
    CHECK(of("global_store_bytes").relative() == 0);
    CHECK(of("stored_data_bytes").relative() == 0);
    CHECK(of("store_bytes").relative() > 0);
    CHECK(of("store_bytes").relative() < 0.03);
    CHECK(of("store_bytes").min > of("stored_data_bytes").median);
    CHECK(of("store_bytes").max < of("global_store_bytes").median);
  }
}

TEST_CASE("on an H200 DRAM writes of a pass that stores each byte once are the bytes that it stores") {
  const KernelRecord once = record("h200-traffic.json.gz");
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
