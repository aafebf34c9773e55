// SPDX-License-Identifier: Apache-2.0
// What the commands with --gpus wrote, schema "tilescope.distributed/1", and what other libraries took on the
// same GPUs, schema "tilescope.distributed-peers/1".
#pragma once

#include <cstddef>
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

struct DistributedPass {
  std::string name;                                         // forward, backward
  std::vector<LinkRecord> link;                             // by GPU: by formula, or as counters saw it
  std::vector<LinkRecord> link_formula;                     // beside counters
  std::vector<LinkRecord> link_with_protocol;               // likewise
  std::optional<double> predicted_efficiency, predicted_s;  // of `simulate`
  std::optional<double> memory_bytes;                       // likewise, of the GPU that sends most
  std::map<std::string, double> predicted_lost_s;           // likewise, by cause: "tails_s"
  std::optional<double> time_s, launches_s, link_s, one_gpu_s, efficiency, hidden_share,
      flops_per_second_a_gpu;
  std::optional<double> model_efficiency;  // from the rate of one GPU

  /// Of `link`, which is not empty: the GPU that sends most.
  std::size_t busiest() const;
};

struct DistributedRun {
  AttentionProblem problem;
  std::string schedule, kernel;
  std::int64_t gpus = 1;
  std::optional<bool> passed;      // judged
  double largest_error_share = 0;  // of the errors' bounds, where it was
  std::vector<DistributedPass> passes;
};

struct DistributedRecord {
  std::vector<std::string> argv;
  std::string when;  // as in 2026-11-23T09:31:04Z
  std::string machine, transport;
  std::optional<double> link_bytes_per_second;  // of a prediction
  std::vector<DistributedRun> runs;
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

/// @param source  what error messages call the text @throws BadInput on damaged JSON
DistributedRecord parse_distributed_record(const std::string& source, std::string_view text);
DistributedPeers parse_distributed_peers(const std::string& source, std::string_view text);

}  // namespace tilescope
