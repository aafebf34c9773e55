// SPDX-License-Identifier: Apache-2.0
// What the commands with --gpus wrote, schema "tilescope.distributed/1", and what other libraries took on the
// same GPUs, schema "tilescope.distributed-peers/1".
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cpu_ref/schedule/problem.hpp"

namespace tilescope {

inline constexpr std::string_view kDistributedSchema = "tilescope.distributed/1";
inline constexpr std::string_view kDistributedPeersSchema = "tilescope.distributed-peers/1";

/// Bytes on the links of one GPU.
struct LinkRecord {
  double sent_bytes = 0, received_bytes = 0;
};
/// The same as counters saw them.
struct LinkReading {
  LinkRecord data;
  std::optional<double> sent_with_protocol_bytes = std::nullopt, received_with_protocol_bytes = std::nullopt;
};

struct GpuRecord {
  LinkReading link;                                      // by formula, or as counters saw it
  std::optional<LinkRecord> closed_form = std::nullopt;  // beside what was counted
  std::optional<LinkReading> nvml = std::nullopt;        // beside counters
  // Predicted: of `simulate`.
  std::optional<std::int64_t> operand_bytes = std::nullopt, received_buffer_bytes = std::nullopt,
                              state_bytes = std::nullopt, launches = std::nullopt,
                              visible_pairs = std::nullopt;
  std::optional<double> attention_s = std::nullopt, elementwise_s = std::nullopt, link_s = std::nullopt,
                        end_s = std::nullopt;
  std::optional<std::int64_t> memory_bytes = std::nullopt;  // allocated, of `bench`
};

/// Of `simulate`.
struct PredictedTimes {
  double time_s = 0, efficiency = 0;
  std::optional<double> exposed_s = std::nullopt, one_gpu_s = std::nullopt;
  std::map<std::string, double> lost_s = {};  // by cause: "tails_s"
};
/// Of `bench`, from the rate of one GPU.
struct ModelledTimes {
  double time_s = 0, efficiency = 0;
};

struct DistributedPass {
  std::string name;                  // forward, backward
  std::vector<GpuRecord> gpus = {};  // by GPU; of many predicted ones the one that sends most
  std::optional<std::int64_t> steps = std::nullopt;
  std::optional<double> balance = std::nullopt, lock_step_balance = std::nullopt,
                        least_link_bytes = std::nullopt;
  std::optional<PredictedTimes> predicted = std::nullopt;
  std::optional<double> time_s = std::nullopt, launches_s = std::nullopt, link_s = std::nullopt,
                        one_gpu_s = std::nullopt, efficiency = std::nullopt, hidden_share = std::nullopt,
                        flops_per_second_a_gpu = std::nullopt;
  std::optional<ModelledTimes> model = std::nullopt;
  std::optional<std::string> counted_by = std::nullopt;  // counters, NVML
  std::optional<std::int64_t> repetitions = std::nullopt;

  /// The GPU that sends most; null where none is listed.
  const GpuRecord* busiest() const;
};

struct JudgedTensor {
  double max_abs = 0, rmse = 0, bound = 1;
};

struct DistributedRun {
  AttentionProblem problem;
  std::string schedule;
  std::int64_t gpus = 1;
  std::optional<std::int64_t> ulysses = std::nullopt, ring = std::nullopt;  // GPUs that share heads, and keys
  std::string kernel = {};
  std::optional<bool> passed = std::nullopt;        // judged
  std::map<std::string, JudgedTensor> errors = {};  // by tensor, where it was
  std::optional<std::string> failure = std::nullopt;
  std::vector<DistributedPass> passes = {};

  /// The largest error as a share of its bound; 0 where nothing was judged.
  double largest_error_share() const;
};

struct RankMachine {
  std::string name;
  std::optional<std::string> driver = std::nullopt, cuda = std::nullopt;  // measured
  std::optional<double> flops_per_second = std::nullopt, link_bytes_per_second = std::nullopt,
                        link_latency_s = std::nullopt, launch_s = std::nullopt;  // of a prediction
};

struct DistributedRecord {
  std::vector<std::string> argv;
  std::string when;  // as in 2026-11-23T09:31:04Z
  std::optional<RankMachine> machine = std::nullopt;
  std::string transport = {};
  std::vector<DistributedRun> runs = {};
};

/// Another library's times on one problem.
struct DistributedPeerRun {
  std::string peer;
  std::int64_t tokens_a_gpu = 0;
  std::optional<double> forward_s, backward_s, forward_efficiency, backward_efficiency;
  std::optional<double> forward_link_bytes, backward_link_bytes;  // that the GPU sends which sends most
};
struct DistributedPeers {
  std::string torch;
  std::int64_t gpus = 1, heads = 1, heads_kv = 1, head_dim = 1;
  std::vector<DistributedPeerRun> runs;
};

std::string to_json_text(const DistributedRecord& record);
/// @param source  what error messages call the text @throws BadInput on damaged JSON
DistributedRecord parse_distributed_record(const std::string& source, std::string_view text);
DistributedPeers parse_distributed_peers(const std::string& source, std::string_view text);

}  // namespace tilescope
