// SPDX-License-Identifier: Apache-2.0
// A claim of a paper, or ours, and what records say of it. A verdict is what a rule makes of numbers; none is
// typed by hand. A claim that nothing here can speak of says why, and what would.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "analysis/explain/explain_record.hpp"
#include "analysis/model/counts/run_summary.hpp"
#include "analysis/model/validation/noise_floor_bytes.hpp"
#include "analysis/records/ceilings_record.hpp"
#include "analysis/report/document/report_document.hpp"
#include "analysis/report/sections/bytes/theorem_points.hpp"
#include "profiler/records/kernel_record.hpp"

namespace tilescope {

enum class Verdict : std::uint8_t { holds, in_part, fails, not_comparable, not_tested };
std::string_view to_string(Verdict verdict);

struct Judgement {
  Verdict verdict = Verdict::not_tested;
  std::string sentence;  // inline text: the numbers, or why there are none
};

/// All that the records hold.
struct Evidence {
  std::vector<RunRecord> records;
  std::vector<RunSummary> runs, holdout, constants, sparsity, parallelism;
  std::vector<NoiseFloor> noise_floor;
  std::vector<ExplainRecord> explained = {};
  std::vector<CeilingsRecord> ceilings = {};
  std::vector<RunSummary> on_device = {};            // measured for single claims: ReportRecords::claims
  std::vector<CeilingsRecord> device_ceilings = {};  // the same
  std::vector<KernelRecord> device_commands = {};    // the same, of other programs' kernels
  std::vector<RunRecord> device_records = {};        // what on_device was made from
};

struct Claim {
  const char* place;       // in its paper: "Theorem 2"
  const char* text;        // in its own words, shortened
  const char* boundary;    // of the bytes that it speaks of, or what else is measured
  const char* hypotheses;  // that it asks for
  const char* experiment;
  Judgement (*judge)(const Evidence&);  // null: `evidence` says why it is not tested
  const char* evidence;  // inline text: where to look; or why not, and the command that would test it
};

std::span<const Claim> flash1_claims();
std::span<const Claim> flash2_claims();
std::span<const Claim> flash3_claims();
std::span<const Claim> bound_claims();
std::span<const Claim> own_claims();

/// What cases say that each bear a claim out or do not: all, some or none. Without cases nothing.
Verdict verdict_of_cases(std::size_t agree, std::size_t all);

/// The rule for growth: a quantity over what it is said to grow as stays within a factor of two, over all
/// points that meet the hypotheses. The points' parameters must range over more than that themselves.
inline constexpr double kMostOfConstant = 2;
Verdict verdict_of_constant(const Range& range);

/// What a number depends on beside what it is of.
struct Circumstances {
  std::string device, kernel, boundary;
};
/// The rule for numbers: what was got under other circumstances does not compare; else the number found may
/// be off by `tolerance`, in parts of the printed one.
/// @param found inline text on what was found here
Judgement judge_number(const Circumstances& printed, const Circumstances& here, double claimed, double value,
                       double tolerance, const std::string& found);

/// The table that opens the page of claims: a row a claim, under headings of their papers.
Section claims_matrix(const Evidence& evidence);

/// FlashAttention's Figure 2, left and middle, on kernels that differ in the order alone; nothing without
/// their records.
std::optional<Section> figure2_on_tensor_cores(const Evidence& evidence);

/// gpu:flash3 beside each library, device by device, both ways; nothing without records of both.
std::optional<Section> libraries_by_device(const Evidence& evidence);

/// FlashAttention-3's error experiment on GPU kernels and libraries, each beside the CPU kernel that computes
/// as it does; nothing without records.
std::optional<Section> errors_on_devices(const Evidence& evidence);

/// What is new, a row a finding; those that the records have numbers for.
Section findings_section(const Evidence& evidence);

}  // namespace tilescope
