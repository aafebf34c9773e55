// SPDX-License-Identifier: Apache-2.0
// The sections of a report and the verdicts that open it. Each is absent when the records hold no data for
// it.
#pragma once

#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "analysis/explain/explain_record.hpp"
#include "analysis/model/counts/run_summary.hpp"
#include "analysis/model/validation/noise_floor_bytes.hpp"
#include "analysis/records/ceilings_record.hpp"
#include "analysis/records/distributed_record.hpp"
#include "analysis/report/document/report_document.hpp"
#include "profiler/records/kernel_record.hpp"

namespace tilescope {

/// What a report opens with: between SMs, L2 and DRAM what each kernel of the most representative problem
/// moves, a panel each, the one that moves most above what it must first.
std::optional<Figure> bytes_picture(const std::vector<RunSummary>& runs);
/// The same of kernels of other commands, which may be held against a problem.
std::optional<Figure> foreign_picture(const std::vector<KernelRecord>& records,
                                      const std::vector<ExplainRecord>& explained);
/// Says of records that an interruption left in part that they are not whole.
std::optional<Finding> missing_verdict(const std::vector<RunRecord>& records);
/// What sweeps went on without; nothing where nothing was refused.
std::optional<Finding> refused_verdict(const std::vector<RunRecord>& records);
/// One problem's kernels: what they must move, what the models say, what counters saw.
std::optional<Section> overview_section(const std::vector<RunSummary>& runs);
/// A row for every run with bytes.
std::optional<Section> summary_section(const std::vector<RunSummary>& runs);
/// Bytes by tensor group, forward and backward, for problems that several kernels ran.
std::optional<Section> tensor_section(const std::vector<RunSummary>& runs);
/// Bytes against seqlen, with bounds; a figure for each problem and direction.
std::optional<Section> seqlen_section(const std::vector<RunSummary>& runs);
/// Bytes against block size.
std::optional<Section> block_section(const std::vector<RunSummary>& runs);
/// DRAM bytes against the size of the L2.
std::optional<Section> l2_section(const std::vector<RunSummary>& runs);
/// Hierarchical rooflines, forward and backward.
std::optional<Section> roofline_section(const std::vector<RunSummary>& runs);
/// FlashAttention's Figure 2 beside our counts.
std::optional<Section> paper_figure2_section(const std::vector<RunSummary>& runs);
/// FlashAttention-3's error experiment beside ours.
std::optional<Section> paper_error_section(const std::vector<RunRecord>& records);
/// Errors against exact attention, from `verify`.
std::optional<Section> error_section(const std::vector<RunRecord>& records);
/// What `verify --repeat` found.
std::optional<Section> repeat_section(const std::vector<RunRecord>& records);
/// Times of CPU kernels, from `bench`.
std::optional<Section> speed_section(const std::vector<RunSummary>& runs);
/// Time and memory of simulations, from `simulate`.
std::optional<Section> simulation_speed_section(const std::vector<RunRecord>& records);
/// Our kernels' rates over those of other libraries in the same run, from `bench --peers`.
std::optional<Section> device_speed_section(const std::vector<RunSummary>& runs);
/// Rates of everything that `bench` timed on a device.
std::optional<Section> device_rate_section(const std::vector<RunSummary>& runs);
/// Every pass of these runs.
std::optional<Section> pass_section(const std::vector<RunSummary>& runs);
/// Simulated against measured DRAM reads of problems that nothing was fitted to, the worst first.
std::optional<Section> holdout_section(const std::vector<RunSummary>& runs);
/// Formula and simulation against what was measured. @param noise_floor of the device that measured
std::optional<Section> measured_section(const std::vector<RunSummary>& runs,
                                        const std::vector<NoiseFloor>& noise_floor = {});
/// What counters say lies beside the closed form.
std::optional<Section> account_section(const std::vector<RunSummary>& runs);
/// What was simulated and then measured, choice beside choice.
std::optional<Section> prediction_section(const std::vector<RunSummary>& runs);
/// Exponents of N in the measured bytes.
std::optional<Section> growth_section(const std::vector<RunSummary>& runs);
/// The constants of FlashAttention's Theorems 2 and 5. @param study of records of study `constants`
std::optional<Section> theorem_section(const std::vector<RunSummary>& study,
                                       const std::vector<RunSummary>& runs);
/// Bytes against the share of visited tiles. @param study of records of study `sparsity`
std::optional<Section> sparsity_section(const std::vector<RunSummary>& study);
/// CTAs and bytes against the number of heads. @param study of records of study `parallelism`
std::optional<Section> parallelism_section(const std::vector<RunSummary>& study);
/// Device memory that runs took, by length.
std::optional<Section> memory_section(const std::vector<RunSummary>& runs);
/// What cutting tiles finer where the mask does saves of products and bytes, by length.
std::optional<Section> diagonal_section(const std::vector<RunSummary>& runs);
/// Operations and shared-memory bytes, by counters.
std::optional<Section> work_section(const std::vector<RunSummary>& runs);
/// What an L2 keeps, how SMs stand round its partitions, and its noise floor, from `ceilings`.
std::optional<Section> residency_section(const std::vector<CeilingsRecord>& records);
/// What several GPUs must move over their links, what moved, and how much of it was hidden.
std::optional<Section> several_gpus_section(const std::vector<DistributedRecord>& records,
                                            const std::vector<DistributedPeers>& peers,
                                            const std::vector<CeilingsRecord>& ceilings);
/// How unevenly SMs share themselves between their CTAs, from `profile --cta-progress`.
std::optional<Section> progress_section(const std::vector<RunRecord>& records);
/// Kernels of other commands, from `profile -- COMMAND`.
std::optional<Section> kernel_section(const std::vector<KernelRecord>& records);
/// The same kernels held against a problem, from `explain`.
std::optional<Section> explain_section(const std::vector<ExplainRecord>& records);
/// What became less and what became more of the runs that both sides hold; nothing without a baseline.
std::optional<Section> changes_section(const std::vector<RunRecord>& base, const std::vector<RunRecord>& now);
std::optional<Finding> changes_verdict(const std::vector<RunRecord>& base, const std::vector<RunRecord>& now);
/// The commands, commits and machines behind the report.
std::optional<Section> record_section(const std::vector<RunRecord>& records);

/// What `verify` judged: cases, those that failed, and of how many kernels.
struct JudgedCases {
  std::int64_t cases = 0, failed = 0;
  std::size_t kernels = 0;
};
JudgedCases judged_cases(const std::vector<RunRecord>& records);
/// Cases within their bound, from `verify`.
std::optional<Finding> error_verdict(const std::vector<RunRecord>& records);
/// DRAM and SM<->L2 bytes of the last algorithm, and of the worst beside it, against what must move, on the
/// most representative problem.
std::optional<Finding> bytes_verdict(const std::vector<RunSummary>& runs);
/// The same of kernels of other commands.
std::optional<Finding> foreign_verdict(const std::vector<KernelRecord>& records,
                                       const std::vector<ExplainRecord>& explained);
/// DRAM reads against the model: of problems that nothing was fitted to where there are any, else of all.
std::optional<Finding> model_verdict(const std::vector<RunSummary>& runs,
                                     const std::vector<RunSummary>& holdout);
/// Rates beside other libraries, else beside a matrix product on the CPU.
std::optional<Finding> speed_verdict(const std::vector<RunSummary>& runs);
/// The share of a matrix product's rate that the fastest CPU kernel reaches.
std::optional<Finding> cpu_speed_verdict(const std::vector<RunSummary>& runs);

/// Adds sweeps over lengths that leave the L2, measured and simulated: a panel each, and their numbers.
void add_dram_sweeps(Section& section, const std::vector<RunSummary>& runs);

/// Adds the exponents of N in DRAM reads, from length to length.
void add_dram_growth(Section& section, const std::vector<RunSummary>& runs,
                     std::vector<std::string>& commands);

/// Least-squares slope of ln y over ln x; with two points, that of the line through both.
/// @param points (x, y), all positive, with two different x or more
double growth_exponent(std::span<const std::pair<double, double>> points);

}  // namespace tilescope
