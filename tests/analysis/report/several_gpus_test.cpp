// SPDX-License-Identifier: Apache-2.0
// What the report says of several GPUs: predicted beside measured, counted beside the closed form.
#include <doctest/doctest.h>

#include "analysis/report/document/report_document.hpp"
#include "analysis/report/report.hpp"
#include "common/errors.hpp"

namespace tilescope {
namespace {

constexpr const char* kProblem =
    R"("problem": {"batch": 1, "heads": 32, "heads_kv": 8, "seqlen_q": 8192, "seqlen_k": 8192, "head_dim": 128,
    "dtype": "bf16", "causal": true, "window": [-1, -1], "scale": 0.1, "dropout": 0, "seed": 0},
    "schedule": "zigzag", "gpus": 2, "kernel": "gpu:flash3")";

std::string record_of(const std::string& run) {
  return std::string(R"({"schema": "tilescope.distributed/1", "argv": ["tilescope", "bench", "--gpus", "2"],
    "when": "2026-01-01T00:00:00Z", "machine": {"name": "NVIDIA H200"}, "transport": "copy-engine", "runs": [{)") +
         kProblem + "," + run + "}]}";
}

std::string report_of(const std::vector<std::string>& texts) {
  ReportRecords records;
  for (const std::string& text : texts) records.add("record.json", text);
  return to_markdown(make_report(records), "figures");
}

bool has(const std::string& text, const std::string& words) { return text.find(words) != std::string::npos; }

TEST_CASE("links: counted beside the closed form, times beside what was predicted, judged runs") {
  const std::string links = record_of(R"("passes": [{"name": "forward", "gpus": [
    {"link_sent_bytes": 16785600, "link_received_bytes": 16777216, "link_sent_with_protocol_bytes": 20000000,
     "link_received_with_protocol_bytes": 20000000,
     "closed_form": {"link_sent_bytes": 16777216, "link_received_bytes": 16777216}}]}])");
  const std::string predicted = record_of(
      R"("passes": [{"name": "forward", "predicted": {"time_s": 1e-3, "efficiency": 0.9375}, "gpus": []}])");
  const std::string measured =
      record_of(R"("passes": [{"name": "forward", "time_s": 1.1e-3, "launches_s": 1e-3,
    "link_s": 2e-4, "one_gpu_s": 2e-3, "efficiency": 0.909, "hidden_share": 0.5, "flops_per_second_a_gpu": 6.5e14,
    "model": {"time_s": 1e-3, "efficiency": 0.95}, "gpus": []}])");
  const std::string judged =
      record_of(R"("passed": true, "error": {"o": {"max_abs": 0.002, "rmse": 0.001, "bound": 0.01}})");
  const std::string page = report_of({links, predicted, measured, judged});
  CHECK(has(page, "several-gpus"));
  CHECK(has(page, "+0.0500 %"));
  CHECK(has(page, "90.9 % | 93.8 % | 0.0 % | 9.1 %"));
  CHECK(has(page, "50.0 %"));
  CHECK(has(page, "1 of 1 runs on GPUs passed"));
  CHECK(has(page, "20.0 % of its bound"));
}

TEST_CASE(
    "predictions that tell what is lost to what stand side by side, the earliest is the one made before") {
  const auto predicted = [](const char* when, const char* schedule, double efficiency) {
    std::string record =
        record_of(R"("passes": [{"name": "forward", "predicted": {"time_s": 1e-3, "efficiency": )" +
                  std::to_string(efficiency) + R"(, "lost": {"tails_s": 2.5e-5, "sums_s": -1e-6}},
      "gpus": []}])");
    const std::string time = "2026-01-01T00:00:00Z", zigzag = "\"zigzag\"";
    record.replace(record.find(time), time.size(), when);
    return record.replace(record.find(zigzag), zigzag.size(), "\"" + std::string(schedule) + "\"");
  };
  const std::string measured = record_of(
      R"("passes": [{"name": "forward", "time_s": 1e-3, "launches_s": 1e-3, "one_gpu_s": 1.9e-3, "efficiency": 0.95,
      "gpus": []}])");
  const std::string page = report_of({predicted("2026-01-02T00:00:00Z", "zigzag", 0.96),
                                      predicted("2025-12-31T00:00:00Z", "zigzag", 0.9),
                                      predicted("2026-01-02T00:00:00Z", "ring", 0.7), measured});
  CHECK(has(page, "| 95.0 % | 90.0 % |"));  // predicted before, not after
  CHECK(has(page, "| 4096 | forward | 70.0 % | 90.0 % (95.0 %) |"));
  CHECK(has(page, "| 4096 | forward | zigzag | 90.0 % | 95.0 % | - | 2.5 % | -0.1 % | - |"));
}

TEST_CASE("of each problem and pass the schedule that comes nearest to one GPU is told") {
  const auto measured = [](const std::string& schedule, double efficiency) {
    std::string record = record_of(R"("passes": [{"name": "forward", "time_s": 1e-3, "launches_s": 9e-4,
      "one_gpu_s": 1.6e-3, "efficiency": )" +
                                   std::to_string(efficiency) + R"(, "gpus": []}])");
    const std::string zigzag = "\"zigzag\"";
    return record.replace(record.find(zigzag), zigzag.size(), "\"" + schedule + "\"");
  };
  const std::string page =
      report_of({measured("ring", 0.7), measured("ulysses", 0.8), measured("striped", 0.75)});
  CHECK(has(page, "| 4096 | forward | ulysses |"));
  CHECK(has(page, "| 80.0 % | 10.0 % | 10.0 % |"));
  CHECK(!has(page, "| 4096 | forward | ring |"));
}

TEST_CASE("links at best, the roofline at the link, what schedules cost at more GPUs, by link rate") {
  const std::string ceilings =
      R"({"schema": "tilescope.ceilings/1", "argv": ["tilescope", "ceilings", "--links"],
    "when": "2026-01-01T00:00:00Z", "machine": {"name": "NVIDIA H200", "architecture": "sm_90", "driver": "13.0"},
    "ceilings": [], "left_out": [], "links": [{"engine": "copy engine", "both_ways": false, "ctas": 0,
    "bytes": 268435456, "per_second": 3.943e11, "median_per_second": 3.9e11}]})";
  // 687 GFLOP of one GPU and 16.78 MB: 40,960 FLOP for each byte.
  const std::string measured =
      record_of(R"("passes": [{"name": "forward", "time_s": 1e-3, "flops_per_second_a_gpu": 6.87e14,
    "gpus": [{"link_sent_bytes": 16777216, "link_received_bytes": 16777216}]}])");
  std::vector<std::string> texts = {ceilings, measured};
  for (const char* const rate : {"390e9", "50e9"}) {
    std::string runs;
    for (const int gpus : {2, 4, 8}) {
      std::string run =
          std::string("{") + kProblem + R"(, "passes": [{"name": "forward", "predicted": {"time_s": 1e-3,
        "efficiency": 0.875}, "gpus": [{"link_sent_bytes": 500, "link_received_bytes": 1000, "operand_bytes": 7000,
        "received_buffer_bytes": 0, "state_bytes": 0}, {"link_sent_bytes": 1000, "link_received_bytes": 1000,
        "operand_bytes": 1000, "received_buffer_bytes": 2000, "state_bytes": 3000}]}]})";
      run.replace(run.find("\"gpus\": 2"), 9, "\"gpus\": " + std::to_string(gpus));
      runs += (runs.empty() ? "" : ",") + run;
    }
    texts.push_back(std::string(R"({"schema": "tilescope.distributed/1", "argv": ["tilescope", "simulate"],
      "when": "2026-01-01T00:00:00Z", "machine": {"name": "h200", "link_bytes_per_second": )") +
                    rate + R"(}, "runs": [)" + runs + "]}");
  }
  const std::string page = report_of(texts);
  CHECK(has(page, "| 256 MiB | - | 394 |"));
  CHECK(has(page, "| zigzag | forward | 4096 | 40948 |"));
  CHECK(has(page, "forward, 390 GB/s"));
  CHECK(has(page, "| zigzag | 8 | 1024 | 1 kB | 6 kB | 87.5 % |"));
  CHECK(has(page, "gpus-efficiency"));
  CHECK(has(page, "link-roofline"));
}

TEST_CASE("others stand beside our fastest schedule, damage is named") {
  const std::string peers = R"({"schema": "tilescope.distributed-peers/1", "torch": "2.11", "gpus": 2,
    "problem": {"heads": 32, "heads_kv": 8, "head_dim": 128}, "runs": [{"peer": "a ring", "tokens_a_gpu": 4096,
    "forward_s": 2.2e-3, "backward_s": 5e-3, "forward_efficiency": 0.7, "backward_efficiency": 0.8}]})";
  const std::string measured = record_of(R"("passes": [{"name": "forward", "time_s": 1.1e-3, "gpus": []}])");
  const std::string page = report_of({peers, measured});
  CHECK(has(page, "a ring"));
  CHECK(has(page, "2.00x"));
  ReportRecords records;
  CHECK_THROWS_AS(records.add("record.json", record_of(R"("passes": [{"name": "forward"}])")), BadInput);
}

}  // namespace
}  // namespace tilescope
