// SPDX-License-Identifier: Apache-2.0
// Rules that claims of several papers share.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "analysis/report/claims/claim.hpp"
#include "analysis/report/sections/speed/rate_ratios.hpp"

namespace tilescope {

/// How many of all cases bear a claim out, and what to say of them.
Judgement judge_cases(std::size_t agree, std::size_t all, const std::string& what);

/// Runs that were timed by `bench` on a device, of one kernel and direction.
std::vector<const RunSummary*> timed_runs(const std::vector<RunSummary>& runs, const std::string& kernel,
                                          Direction direction);
/// Whether the papers' count of operations is of the problem: a full or a causal matrix, without a window.
bool has_paper_count(const AttentionProblem& problem);
/// By the papers' count of operations. [FLOP/s]
double paper_rate_of(const RunSummary& run);

/// "362 (361 ... 363) TFLOP/s", by the papers' count, with what samples leave open.
std::string rate_text(const RunSummary& run);
/// "8.53 ms +- 0.1 %"
std::string time_text(const RunSummary& run);

/// Times of two kernels on each problem that one record times with both and `wanted` keeps.
std::vector<TimedPair> timed_pairs(const std::vector<RunSummary>& runs, const std::string& kernel,
                                   const std::string& peer, Direction direction,
                                   const std::function<bool(const AttentionProblem&)>& wanted = nullptr);
/// "1.55 ... 2.30, geometric mean 1.97 (1.96 ... 1.98), over 36 problems": rates of the first over those of
/// the second.
std::string ratios_text(const std::vector<TimedPair>& pairs);

/// Sum of a metric (profiler/counters) over the passes; nothing where one lacks it.
std::optional<double> counted(const RunSummary& run, const std::string& metric);

/// "an H100", "an H200": as papers name it; another device by its full name.
std::string short_device(const RunSummary& run);

/// The device that timed or counted a run.
std::string device_name(const RunSummary& run);

}  // namespace tilescope
