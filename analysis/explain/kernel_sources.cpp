// SPDX-License-Identifier: Apache-2.0
// The records that kernels to be explained come from.
#include <fmt/format.h>

#include "analysis/explain/explain_record.hpp"
#include "analysis/model/counts/measured_bytes.hpp"
#include "analysis/records/record_kinds.hpp"
#include "profiler/records/json_fields.hpp"
#include "profiler/records/ncu_csv.hpp"

namespace tilescope {
namespace {

KernelMeasurement kernel_of(const RunEntry& run, const PassRecord& pass) {
  KernelMeasurement kernel;
  kernel.name = run.kernel + " " + pass.name;
  if (pass.launch) {
    kernel.launch.grid = pass.launch->grid;
    kernel.launch.block = pass.launch->block;
    kernel.launch.registers = pass.launch->registers;
    kernel.launch.shared_bytes = pass.launch->shared_bytes;
  }
  kernel.measured = pass_metrics(pass);
  if (const auto local = kernel.measured.find("local_store_bytes");
      local != kernel.measured.end() && local->second == 0) {
    kernel.launch.local_bytes = 0;
  }
  const auto add = [&kernel](const char* name, const std::optional<std::int64_t>& bytes) {
    if (bytes) kernel.measured[name] = static_cast<double>(*bytes);
  };
  add("sm_l2_read_bytes", pass.measured->sm_l2_read_bytes);
  add("sm_l2_write_bytes", pass.measured->sm_l2_write_bytes);
  add("dram_read_bytes", pass.measured->dram_read_bytes);
  add("dram_write_bytes", pass.measured->dram_write_bytes);
  return kernel;
}

std::vector<KernelsOfProblem> of_runs(const std::string& source, const RunRecord& record) {
  std::vector<KernelsOfProblem> all;
  for (const RunEntry& run : record.runs) {
    KernelsOfProblem kernels{{}, run.problem};
    kernels.kernels.argv = record.argv;
    kernels.kernels.when = record.when;
    if (record.machine.name) {
      kernels.kernels.collections = {{*record.machine.name, record.machine.chip.value_or(""),
                                      record.machine.driver.value_or(""), "none", 1}};
    }
    for (const PassRecord& pass : run.passes) {
      if (pass.measured && pass.measured->sm_l2_read_bytes && pass.measured->sm_l2_write_bytes) {
        kernels.kernels.kernels.push_back(kernel_of(run, pass));
      }
    }
    if (!kernels.kernels.kernels.empty()) all.push_back(std::move(kernels));
  }
  if (all.empty()) {
    throw BadInput(source, fmt::format("{} runs, none with SM<->L2 counters", record.runs.size()),
                   "must be measured: `tilescope profile --metrics traffic,causes --json FILE` counts them");
  }
  return all;
}

/// What Nsight Compute says of launches beside the counters.
void take_launch_columns(KernelMeasurement& kernel) {
  const auto take = [&kernel](const char* name, std::optional<std::int64_t>& into, double unit = 1) {
    const auto found = kernel.counters.find(name);
    if (found != kernel.counters.end()) into = std::llround(unit * found->second);
  };
  take("launch__registers_per_thread", kernel.launch.registers);
  take("launch__shared_mem_per_block", kernel.launch.shared_bytes);
}

KernelRecord of_ncu(const std::string& source, const std::string& text) {
  KernelRecord record;
  record.argv = {"ncu", "--page", "raw"};
  record.complete = true;
  record.kernels = is_ncu_text(text) ? parse_ncu_text(source, text) : parse_ncu_csv(source, text);
  if (record.kernels.empty()) throw BadInput(source, "a header alone", "must have rows of kernels");
  for (KernelMeasurement& kernel : record.kernels) {
    take_launch_columns(kernel);
    PassRecord pass;
    for (const auto& [name, value] : kernel.counters) pass.counters[name] = value;
    kernel.measured = pass_metrics(pass);
  }
  return record;
}

}  // namespace

std::vector<KernelsOfProblem> read_kernels(const std::string& source, const std::string& text) {
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  const bool page =
      is_ncu_text(text) && text[first] != '{';  // which may begin with a process: "[2153] python3"
  const bool json = first != std::string::npos && !page && (text[first] == '{' || text[first] == '[');
  if (!json) {
    if (text.find("\"Kernel Name\"") == std::string::npos && !is_ncu_text(text)) {
      throw BadInput(source, "neither JSON nor a table of Nsight Compute",
                     "must be what `tilescope profile --json FILE -- COMMAND` or `ncu --page raw "
                     "--print-units base` wrote");
    }
    return {{of_ncu(source, text), std::nullopt}};
  }
  const std::string kind = require_kind(source, parse_json(source, text), {kKernelsSchema, kRunSchema});
  if (kind == kRunSchema) return of_runs(source, parse_run_record(source, text));
  return {{parse_kernel_record(source, text), std::nullopt}};
}

}  // namespace tilescope
