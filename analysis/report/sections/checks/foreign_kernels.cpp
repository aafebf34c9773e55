// SPDX-License-Identifier: Apache-2.0
// Kernels of other commands: what `profile -- COMMAND` measured of them, and which programs explain it.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <string>
#include <vector>

#include "analysis/explain/answer.hpp"
#include "analysis/explain/explain_record.hpp"
#include "analysis/model/counts/closed_form.hpp"
#include "analysis/model/counts/run_summary.hpp"
#include "analysis/records/compare/kernel_group.hpp"
#include "analysis/report/sections/checks/emulated_lines.hpp"
#include "analysis/report/sections/report_sections.hpp"
#include "common/number_format.hpp"

namespace tilescope {
namespace {

std::string extent_text(const std::array<std::int64_t, 3>& extent) {
  return fmt::format("{}", fmt::join(extent, "x"));
}

/// Some of the programs that do as well as the first; empty for none.
std::string others_text(const KernelFit& fit) {
  constexpr std::size_t kShown = 2;
  std::string text;
  for (std::size_t i = 1; i < std::min(kShown, fit.programs.size()); ++i) {
    text += (i > 1 ? "; " : "") + fit.programs[i].text();
  }
  if (fit.programs.size() > kShown) text += fmt::format("; {} more", fit.programs.size() - kShown);
  return text;
}

std::string best_text(const KernelFit& fit) {
  if (fit.programs.empty()) return "none";
  return (fit.agreement == Agreement::unexplained ? "nearest: " : "") + fit.programs.front().name_text();
}

/// "+27.52 kB, +0.001 %"; "+256 B" where the share would show as nothing
std::string residual_text(std::int64_t residual, double measured) {
  if (residual == 0) return "0 B";
  const double bytes = static_cast<double>(residual);
  const std::string amount = fmt::format("{}{}", residual > 0 ? "+" : "-", format_bytes(std::abs(bytes)));
  constexpr double kLeastShown = 0.0005;  // percent
  const double percent = measured > 0 ? 100 * bytes / measured : 0;
  return std::abs(percent) >= kLeastShown ? fmt::format("{}, {:+.3f} %", amount, percent) : amount;
}

std::vector<std::string> causes_of(const KernelFit& fit) {
  std::vector<std::string> causes;
  for (const NamedCause& cause : fit.causes) {
    const std::string bytes = format_bytes(static_cast<double>(cause.bytes));
    causes.push_back(cause.kind == CauseKind::spills
                         ? fmt::format("{} of spills {}", bytes, cause.reads ? "read back" : "written")
                         : fmt::format("{} {} {}", cause.name, bytes, cause.reads ? "read" : "written"));
  }
  return causes;
}

/// "32 heads over the batch fit better: forward, 128 x any"; empty where none do.
std::string other_heads_text(const KernelFit& fit) {
  if (!fit.other_heads) return "";
  return fmt::format("{} heads over the batch fit better: {}", fit.other_heads->heads,
                     fit.other_heads->program.text());
}

/// The best program with its tile and the others; what is not wholly explained says so first.
std::string programs_text(const KernelFit& fit) {
  if (fit.agreement == Agreement::no_attention) return std::string(to_string(fit.agreement));
  std::string text =
      fit.agreement == Agreement::explained ? "" : fmt::format("**{}**: ", to_string(fit.agreement));
  text += best_text(fit);
  if (!fit.programs.empty() && !fit.programs.front().tiles.empty()) {
    text += fmt::format(", **{}**", fit.programs.front().tile_text());
  }
  if (const std::string others = others_text(fit); !others.empty()) text += "; as good: " + others;
  constexpr double kWorthSaying = 1e-3;
  if (fit.chance >= kWorthSaying) text += fmt::format("; {} by chance", chance_text(*fit.chance));
  return fit.other_heads ? text + "; " + other_heads_text(fit) : text;
}

std::string multiple_text(const LaunchAnswer& answer, Boundary boundary) {
  const std::optional<double> multiple = answer.multiple(boundary);
  return multiple ? format_ratio(*multiple) : "-";
}

/// "tiles of 256 x 64: 1.619 GB", which are bytes at SM<->L2, or "-"
std::string advice_text(const LaunchAnswer& answer) {
  if (answer.next_steps.empty()) return "-";
  const NextStep& step = answer.next_steps.front();
  return fmt::format("{}: {}{}", step.action, format_bytes(static_cast<double>(step.bytes_then)),
                     step.boundary == Boundary::dram ? " at DRAM" : "");
}

/// A row a kernel: the program with its tile, what it moves over what it must, the bytes of both sides with
/// what is left over, the causes, and what would help.
Table explanation_table(const ExplainRecord& record) {
  const std::vector<KernelFit> fits = explain(record);
  const std::vector<LaunchAnswer> all = answers(record, fits);
  Table table{"",
              {{"kernel"},
               {"program, block_m x block_n"},
               {"SM<->L2 x must", true},
               {dram_reads_alone(all) ? "DRAM read x must" : "DRAM x must", true},
               {"read", true},
               {"left over"},
               {"written", true},
               {"left over"},
               {"counted causes"},
               {"would help, SM<->L2"}},
              {}};
  for (std::size_t i = 0; i < fits.size(); ++i) {
    const KernelGroup& kernel = record.kernels[i];
    const KernelFit& fit = fits[i];
    const double read = kernel.measured.at("sm_l2_read_bytes");
    const double written = kernel.measured.at("sm_l2_write_bytes");
    std::string causes = fmt::format("{}", fmt::join(causes_of(fit), ", "));
    for (const std::string& hint : fit.hints) causes += (causes.empty() ? "" : "; ") + hint;
    table.rows.push_back(
        {fmt::format("`{}` {}", short_kernel_name(kernel.name), extent_text(kernel.launch.grid)),
         programs_text(fit), multiple_text(all[i], Boundary::sm_l2), multiple_text(all[i], Boundary::dram),
         format_bytes(read), residual_text(fit.read_residual_bytes, read), format_bytes(written),
         residual_text(fit.write_residual_bytes, written), causes.empty() ? "-" : causes,
         advice_text(all[i])});
  }
  return table;
}

}  // namespace

std::optional<Section> explain_section(const std::vector<ExplainRecord>& records) {
  if (records.empty()) return std::nullopt;
  Section section{
      "explained-kernels",
      "Other people's kernels, explained",
      {Paragraph{
          "Which tile program reads and writes the bytes that the counters saw at SM<->L2 of kernels "
          "that TileScope did not write. Block sizes are found, not given. Candidates are tiles from "
          "16 to 256 rows of every way in which attention kernels are made that the launch allows by its "
          "grid, shared memory, registers and name; the one whose closed form "
          "comes nearest is named, and \"any\" stands for a block size on which the bytes do not "
          "depend. Left over: the measured bytes minus the counted causes minus the closed form. "
          "Explained: at most 0.02 % is left over on both sides (0.1 % by passes that touch each element "
          "once), and "
          "of counts times random factors from 0.5 to 2 at most 2 % would be explained as well (by chance; "
          "under 0.1 % is not said). At DRAM a launch moves less than it must where the one before it left "
          "inputs in the L2."}}};
  for (const ExplainRecord& record : records) {
    std::string facts = describe(record.problem);
    for (const CollectionFacts& collection : record.collections) {
      facts += fmt::format("; {} ({})", collection.device, collection.chip);
    }
    std::string must;
    for (const Direction direction : record.directions) {
      must +=
          fmt::format("{}{} {}", must.empty() ? "" : ", ",
                      format_bytes(static_cast<double>(compulsory_bytes(record.problem, direction).total())),
                      to_string(direction));
    }
    section.blocks.push_back(Paragraph{fmt::format("**{}**. Must move: {}.", facts, must)});
    section.blocks.push_back(explanation_table(record));
    section.blocks.push_back(CommandLines{{command_text(record.command), command_text(record.argv)}});
  }
  return section;
}

namespace {

constexpr std::array<const char*, 4> kTrafficMetrics = {"sm_l2_read_bytes", "sm_l2_write_bytes",
                                                        "dram_read_bytes", "dram_write_bytes"};

Table kernel_table(const KernelRecord& record) {
  Table table{"Bytes are means over the launches.",
              {{"kernel"},
               {"launches", true},
               {"grid"},
               {"block"},
               {"registers", true},
               {"SM<->L2 read", true},
               {"SM<->L2 written", true},
               {"DRAM read", true},
               {"DRAM written", true},
               {"median", true}},
              {}};
  for (const KernelGroup& group : group_launches(record.kernels)) {
    const LaunchFacts& launch = group.launch;
    std::vector<std::string> row = {fmt::format("`{}`", short_kernel_name(group.name)),
                                    std::to_string(group.launches), extent_text(launch.grid),
                                    extent_text(launch.block),
                                    launch.registers ? std::to_string(*launch.registers) : "-"};
    for (const char* metric : kTrafficMetrics) row.push_back(mean_bytes_text(group, metric));
    const auto seconds = median_seconds(record.kernels, group);
    row.push_back(seconds ? format_seconds(*seconds) : "-");
    table.rows.push_back(std::move(row));
  }
  return table;
}

}  // namespace

std::optional<Section> kernel_section(const std::vector<KernelRecord>& records) {
  if (records.empty()) return std::nullopt;
  Section section{"kernels", "Kernels of other commands", {}};
  for (const KernelRecord& record : records) {
    section.blocks.push_back(CommandLines{{command_text(record.argv)}});
    std::string facts;
    for (const CollectionFacts& collection : record.collections) {
      facts += fmt::format("{} ({}). ", collection.device, collection.chip);
    }
    if (!record.complete)
      facts += "**Not complete**: the record holds what was measured until the command ended.";
    if (!facts.empty()) facts.front() = static_cast<char>(std::toupper(facts.front()));
    if (!facts.empty()) section.blocks.push_back(Paragraph{facts});
    if (!record.messages.empty()) section.blocks.push_back(Bullets{record.messages});
    section.blocks.push_back(kernel_table(record));
    for (const KernelMeasurement& kernel : record.kernels) {
      if (!kernel.emulated) continue;
      for (Block& block : emulated_blocks(kernel)) section.blocks.push_back(std::move(block));
    }
  }
  return section;
}

}  // namespace tilescope
