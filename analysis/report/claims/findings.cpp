// SPDX-License-Identifier: Apache-2.0
// What is new: a row a finding, with the numbers that the records give for it and where it stops.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "analysis/explain/explain_record.hpp"
#include "analysis/report/claims/judging.hpp"
#include "analysis/report/sections/bytes/dram_growth.hpp"
#include "analysis/report/sections/model/agreement.hpp"
#include "common/number_format.hpp"

namespace tilescope {
namespace {

/// Kernels of other people, by how much of their bytes no program and no cause explains.
std::string foreign_kernels(const Evidence& evidence) {
  constexpr double kSteps[] = {0, 1e-5, 1e-4, kExplained};
  std::array<std::size_t, std::size(kSteps) + 1> histogram{};
  std::size_t kernels = 0, explained = 0, closed = 0;
  double chance = 0;
  for (const ExplainRecord& record : evidence.explained) {
    const std::vector<KernelFit> fits = explain(record);
    for (std::size_t i = 0; i < fits.size(); ++i) {
      const KernelFit& fit = fits[i];
      if (fit.programs.empty() || fit.agreement == Agreement::no_attention) continue;
      ++kernels;
      if (fit.agreement != Agreement::explained) continue;
      ++explained;
      closed += record.kernels[i].name.find("cudnn") != std::string::npos;
      chance = std::max(chance, fit.chance.value_or(0));
      const double left =
          static_cast<double>(std::abs(fit.read_residual_bytes)) /
          static_cast<double>(std::max<std::int64_t>(1, fit.programs.front().bytes.read_bytes));
      const auto step = std::ranges::find_if(kSteps, [left](double most) { return left <= most; });
      ++histogram[static_cast<std::size_t>(step - std::begin(kSteps))];
    }
  }
  if (kernels == 0) return "";
  return fmt::format(
      "{} of {} kernels of PyTorch, cuDNN and Triton are explained, {} of them closed source. Of their reads "
      "nothing at all is left over in {}, up to {:g} of them in {}, up to {:g} in {}, up to {:g} in {}, more "
      "in {}. "
      "Made-up counts would be explained in at most {:.1f} %",
      explained, kernels, closed, histogram[0], 100 * kSteps[1], histogram[1], 100 * kSteps[2], histogram[2],
      100 * kSteps[3], histogram[3], histogram[4], 100 * chance);
}

/// The pass whose reads depend most on where its pages lie.
std::string page_placement(const Evidence& evidence) {
  const RunSummary* found = nullptr;
  const PassRecord* of = nullptr;
  double most = 1;
  for (const RunSummary& run : evidence.runs) {
    if (run.run->pages != PagePlacement::random) continue;
    for (const PassRecord* pass : run.passes) {
      if (!pass->measured || !pass->measured->dram_read_range) continue;
      const auto [low, high] = *pass->measured->dram_read_range;
      const double ratio = static_cast<double>(high) / static_cast<double>(std::max<std::int64_t>(1, low));
      if (ratio <= most) continue;
      most = ratio;
      found = &run;
      of = pass;
    }
  }
  if (found == nullptr) return "";
  const auto [low, high] = *of->measured->dram_read_range;
  return fmt::format("{} {}, {}: {} to {} of DRAM reads, by where its 2 MiB pages lie alone",
                     found->run->kernel, to_string(found->direction), problem_text(*found),
                     format_bytes(static_cast<double>(low)), format_bytes(static_cast<double>(high)));
}

/// Two orders of one problem in one record, both timed and counted.
std::string longest_first(const Evidence& evidence) {
  std::size_t pairs = 0, more = 0, faster = 0;
  double most = 0, change = 0;
  const RunSummary* at = nullptr;
  for (const RunSummary& a : evidence.runs) {
    if (a.run->order.value_or(TileOrder::row_major) != TileOrder::row_major || !a.measured_dram ||
        !a.median_seconds || !a.problem().causal)
      continue;
    for (const RunSummary& b : evidence.runs) {
      if (b.record != a.record || b.run->order != TileOrder::longest_first || b.problem() != a.problem() ||
          b.direction != a.direction || b.run->kernel != a.run->kernel || b.tile != a.tile ||
          !b.median_seconds) {
        continue;
      }
      ++pairs;
      const double reads =
          static_cast<double>(b.measured_dram->read_bytes) / static_cast<double>(a.measured_dram->read_bytes);
      if (reads < 2) continue;
      ++more;
      const bool less_time = *b.median_seconds < *a.median_seconds;
      faster += less_time;
      if (less_time && reads > most) {
        most = reads;
        change = *b.median_seconds / *a.median_seconds - 1;
        at = &b;
      }
    }
  }
  if (at == nullptr) return "";
  return fmt::format(
      "of {} passes under a causal mask {} read twice as much or more from DRAM longest-first than "
      "row-major, and {} of these take less time. Most: {} times the reads and {:+.1f} % of time, {}",
      pairs, more, faster, format_number(most), 100 * change, problem_text(*at));
}

std::string capacity(const Evidence& evidence) {
  for (const CeilingsRecord& record : evidence.ceilings) {
    std::string text;
    std::vector<std::string> seen;
    for (const L2Residency& one : record.measured.l2) add_new(seen, std::string(one.access));
    for (const std::string& access : seen) {
      text += fmt::format("{}{} {:.0f} %", text.empty() ? "" : ", ", access,
                          100.0 * static_cast<double>(half_kept_bytes(record.measured.l2, access)) /
                              static_cast<double>(record.measured.l2_bytes));
    }
    if (!text.empty())
      return fmt::format("{}: half of a footprint is kept up to, of the L2's size: {}",
                         record.measured.device, text);
  }
  return "";
}

std::string predicted_orders(const Evidence& evidence) {
  const PredictedChanges found = predicted_changes(evidence.runs);
  if (found.changed == 0) return "";
  return fmt::format("{} of {} changes by more than {:.0f} % went the way that was recorded before",
                     found.right, found.changed, 100 * kChange);
}

std::string simulated_exponents(const Evidence& evidence) {
  std::vector<double> off;
  for (const DramSweep& sweep : dram_sweeps(evidence.runs)) {
    const std::vector<double> measured = sweep.local_exponents(false), model = sweep.local_exponents(true);
    for (std::size_t i = 0; i < model.size(); ++i) off.push_back(std::abs(model[i] - measured[i]));
  }
  if (off.empty()) return "";
  std::ranges::sort(off);
  return fmt::format(
      "{} local exponents of N in DRAM reads, from under 1 to {:.1f}: half are simulated within "
      "{:.3f}, nine of ten within {:.2f}",
      off.size(),
      [&evidence] {
        double most = 0;
        for (const DramSweep& sweep : dram_sweeps(evidence.runs))
          most = std::max(most, std::ranges::max(sweep.local_exponents(false)));
        return most;
      }(),
      off[off.size() / 2], off[off.size() * 9 / 10]);
}

/// What the judgement of that place and text in `claims` says.
std::string judgement_of(std::span<const Claim> claims, std::string_view place, int nth,
                         const Evidence& evidence) {
  for (const Claim& claim : claims) {
    if (claim.place != place || nth-- > 0) continue;
    const Judgement judgement = claim.judge(evidence);
    return judgement.verdict == Verdict::not_tested ? "" : judgement.sentence;
  }
  return "";
}

}  // namespace

Section findings_section(const Evidence& evidence) {
  Table table{"", {{"finding"}, {"what the records say"}, {"where it stops"}, {"evidence"}}, {}};
  const auto add = [&table](const char* finding, const std::string& numbers, const char* stops,
                            const char* evidence_links) {
    if (!numbers.empty()) table.rows.push_back({finding, numbers, stops, evidence_links});
  };
  add("Bytes between SMs and L2 of kernels whose source is closed follow from a tile program, and from "
      "causes that counters name",
      foreign_kernels(evidence), "a few problems on one device",
      "[explained](report.md#explained-kernels), [beside Nsight Compute](profiler/README.md)");
  add("The same holds of our kernels", judgement_of(own_claims(), "Closed form", 0, evidence),
      "the kernels that the table names, causal masks and windows; shares counted where all counters were "
      "asked for",
      "[every byte](report.md#account)");
  add("Where pages lie in physical memory decides DRAM reads of a working set as large as the L2",
      page_placement(evidence), "medians over placements are what a model can say",
      "[measured](report.md#measured)");
  add("An L2 keeps another share of its size for each kind of access", capacity(evidence),
      "an H100's stands [in its record](data/drawn-2026-11-25/ceilings-h100.json.gz)",
      "[what the L2 keeps](report.md#residency)");
  add("Order of change: a replay tells which order reads less before either is run",
      predicted_orders(evidence), "the sizes predicted with grouped heads backward were far off",
      "[predictions](report.md#predictions), [drawn passes](prediction/README.md)");
  add("Fewer bytes are not less time: longest-first reads more and is still faster", longest_first(evidence),
      "kernels that wait for tensor cores; energy was not measured", "[predictions](report.md#predictions)");
  add("DRAM reads have a local law: N while K and V fit the L2, N² over the rows in flight beyond, steeper "
      "between",
      simulated_exponents(evidence),
      "no length of these meets M <= N d for the chip; longer ones, counted alone, stand with "
      "[Theorem 2](io_complexity.md)",
      "[growth](report.md#growth)");
  add("Where N d exceeds all that a chip holds, DRAM reads outgrow N²: CTAs that share what the L2 keeps "
      "drift apart",
      judgement_of(flash1_claims(), "Theorem 2", 3, evidence),
      "one kernel on two cards; the replay foresees the turn and makes it too steep",
      "[records](data/claims/README.md)");
  add("The constant of Theorem 2, M < d² among them", judgement_of(flash1_claims(), "Theorem 2", 1, evidence),
      "by formula, a number of 4 bytes being two accesses", "[constants](report.md#constants)");
  add("The same by counters, at several budgets of M",
      judgement_of(flash1_claims(), "Theorem 2", 2, evidence),
      "kernels that keep fp32 in shared memory have twice the constant in fp16",
      "[records](data/claims/README.md)");
  add("Two warpgroups hide the softmax by themselves: ping-pong and overlap within a warpgroup, one switch "
      "at a "
      "time, are worth a few hundredths",
      judgement_of(flash3_claims(), "Section 3.2, Figure 2", 0, evidence),
      "one problem, at the power limit; rescaling is conditional in all of them",
      "[records](data/claims/README.md)");
  add("Not the bytes that FlashAttention's order saves make it fast on these cards: at one tile it takes "
      "standard "
      "attention's time, and FlashAttention-2's order a small part of it",
      judgement_of(flash1_claims(), "Figure 2, left; Section 3.2", 0, evidence),
      "one tile of 128 keys; FlashAttention's order gains with wider ones",
      "[Figure 2 on tensor cores](io_complexity.md#time-and-bytes-the-order-alone)");
  add("FlashAttention-2's forward pass under FlashAttention's block rule does not fall as 1/M",
      judgement_of(own_claims(), "Constants", 0, evidence),
      "the rule, not the order: larger blocks of queries do", "[constants](report.md#constants)");
  add("FlashAttention-3's error table, in level, fp16 and fp8",
      judgement_of(flash3_claims(), "Table 3", 1, evidence), "on CPU kernels; the paper prints no shape",
      "[errors of the paper](report.md#paper-errors)");
  return Section{"findings", "What is new", {std::move(table)}};
}

}  // namespace tilescope
