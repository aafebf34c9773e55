// SPDX-License-Identifier: Apache-2.0
// The model's commands for Python: records go in and come out as the JSON text of their schemas.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "python/native/arrays.hpp"
#include "python/native/watched.hpp"

namespace tilescope::python {

/// Several problems on several kernels.
struct ModelRequest {
  std::vector<std::string> argv;  // of the record
  std::vector<AttentionProblem> problems;
  std::vector<KernelUse> kernels;
  std::string machine;
  std::string passes;  // "fwd", "bwd" or "fwd+bwd"
  std::string pages;   // "contiguous" or "random"
  bool replay = true;  // without: closed forms alone
  bool l2_curve = false;
  bool predict = true;  // times too
};

/// A record of a run for each problem and kernel. All are refused or none.
/// @throws BadInput, MachineLacks
std::string simulate(const ModelRequest& request, const nanobind::object& progress);

/// A record of the best choice, the runner-up and the kernel's own, of each direction.
/// @throws BadInput, MachineLacks
std::string advise(const std::vector<std::string>& argv, const AttentionProblem& problem,
                   const KernelUse& use, const std::string& machine, const std::string& passes);

/// One problem on several GPUs.
struct RankRequest {
  std::vector<std::string> argv;  // of the record
  AttentionProblem problem;
  std::vector<int> gpus;
  std::vector<std::string> schedules;
  int ulysses = 0;  // 0: the most that divide GPUs and heads
  std::string machine, passes;
  std::optional<double> link_bytes_per_second, flops_per_second;  // in place of the machine's
};
/// The record of every schedule on every number of GPUs, and of those that cannot split the problem why.
std::pair<std::string, std::vector<std::string>> simulate_gpus(const RankRequest& request);

/// The record of a study. @param machine "" for the study's own
std::string study(const std::vector<std::string>& argv, const std::string& name, const std::string& machine,
                  const nanobind::object& progress);

/// A table of Nsight Compute as a record of kernels.
std::string record_of_csv(const std::string& source, const std::string& text);
/// A record of kernels, explained by a problem. @param count -1: all
std::string explain(const std::vector<std::string>& argv, const std::string& source,
                    const std::string& record, const AttentionProblem& problem, const std::string& passes,
                    const std::string& filter, std::int64_t skip, std::int64_t count);

/// What moved between two records, as JSON, and whether a gate lets it pass.
/// @param budgets "dram_read_bytes=5%"
std::pair<std::string, bool> diff(const std::string& base_source, const std::string& base,
                                  const std::string& new_source, const std::string& now,
                                  const std::vector<std::string>& budgets, bool allow_gone);

/// Path and contents of the files of a report on records, each (source, text).
std::vector<std::pair<std::string, std::string>> report(
    const std::vector<std::pair<std::string, std::string>>& records);

/// The record as its writers write it. @throws BadInput naming source and field where it is damaged
std::string checked(const std::string& source, const std::string& record);

/// What `list WHAT` lists, with numbers as numbers: kernels, machines, metrics, counters, models, presets or
/// studies.
std::string catalogue(const std::string& what);

/// The same of `counters`, as a chip counts them: with the times that a kernel must run for them, and the
/// formula of its counters, null where it has none. Asks libcupti: no device is needed.
/// @param chip CUPTI's name of it @throws MachineLacks without libcupti, UnknownName
std::string counters_of(const std::string& chip);

/// Versions, and what this build and this machine can.
std::string info();

}  // namespace tilescope::python
