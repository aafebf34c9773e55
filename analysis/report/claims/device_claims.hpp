// SPDX-License-Identifier: Apache-2.0
// Claims that measurements made for them alone can speak of: kernels at blocks, windows and lengths, or
// without techniques, that nobody would choose.
#pragma once

#include <string>
#include <vector>

#include "analysis/report/claims/claim.hpp"
#include "analysis/report/sections/speed/rate_ratios.hpp"

namespace tilescope {

/// A kernel's accesses of one head at one tile, by counters.
struct BlockPoint {
  const RunSummary* run = nullptr;
  double fast = 0;      // M: the shared memory of its CTA [elements of the inputs' width]
  double accesses = 0;  // [elements of the inputs' width]
  /// min(Bc, d) queries by Bc keys, as Algorithm 1 has it, or fewer queries.
  bool by_rule() const;
  bool within_hypotheses() const;  // d <= M <= N d
  double constant() const;         // of Theorem 2
};
/// Of gpu: kernels with FlashAttention's order, at all tiles that were counted.
std::vector<BlockPoint> block_points(const std::vector<RunSummary>& runs);

/// A kernel's rate over that of the same kernel as `without` says, all else the same, on one device.
struct Worth {
  std::string device;
  const RunSummary *own = nullptr, *other = nullptr;  // of one of the records
  RateRatio ratio;
};
/// One for each device and problem, in the order of the records.
std::vector<Worth> worth_of(const std::vector<RunSummary>& runs, const std::string& kernel, Variant with,
                            Variant without);

/// "PyTorch's ... 25.1 GB": what Figure 2's baseline moves at DRAM, of counted commands; "" without one.
std::string unfused_bytes(const Evidence& evidence);
/// "forward 3.1 times": Figure 2's baseline by PyTorch over FlashAttention's order, both on tensor cores.
std::string unfused_time(const Evidence& evidence);

/// ". The order alone, on tensor cores ...": gpu:standard-mma's DRAM bytes of GPT-2 medium over
/// gpu:flash2-mma's, and likewise times; "" without records.
std::string order_bytes(const Evidence& evidence);
std::string order_times(const Evidence& evidence);

/// What `ceilings` saw a copy reach on a device; 0: nobody looked. [byte/s]
double dram_copy_rate(const Evidence& evidence, const std::string& device);
/// Null where nobody looked.
const MeasuredCeiling* find_ceiling(const CeilingsRecord& record, std::string_view name);
/// "3.16 +- 0.02 TB/s": the fastest run, and how far runs lie apart.
std::string ceiling_text(const MeasuredCeiling& ceiling);

// FlashAttention
Judgement order_alone(const Evidence&);
Judgement figure1_right(const Evidence&);
Judgement figure3_left(const Evidence&);
Judgement training_time(const Evidence&);
Judgement training_gains(const Evidence&);
Judgement flash_on_device_forward(const Evidence&);
Judgement flash_on_device_backward(const Evidence&);
Judgement flash_at_dram(const Evidence&);
Judgement figure2_middle_time(const Evidence&);
Judgement figure2_right_time(const Evidence&);
Judgement block_sparse_gain(const Evidence&);
// FlashAttention-2
Judgement flash2_over_standard(const Evidence&);
Judgement normalised_once(const Evidence&);
Judgement few_heads_time(const Evidence&);
// FlashAttention-3
Judgement flash3_over_standard(const Evidence&);
Judgement memories_of_h100(const Evidence&);
Judgement table2_rates(const Evidence&);
Judgement table2_techniques(const Evidence&);
Judgement ping_pong(const Evidence&);
Judgement overlap(const Evidence&);
Judgement exponential_share(const Evidence&);
Judgement errors_fp16(const Evidence&);
Judgement errors_fp8(const Evidence&);
Judgement errors_fp8_ratio(const Evidence&);

}  // namespace tilescope
