// SPDX-License-Identifier: Apache-2.0
// What a report of other people's kernels opens with: their bytes between SMs, L2 and DRAM, and where
// `explain` knows the problem how often that is what must move.
#include <fmt/format.h>

#include <algorithm>

#include "analysis/explain/answer.hpp"
#include "analysis/model/counts/closed_form.hpp"
#include "analysis/model/counts/run_summary.hpp"
#include "analysis/report/figures/charts.hpp"
#include "analysis/report/sections/bytes/multiples.hpp"
#include "analysis/report/sections/report_sections.hpp"

namespace tilescope {
namespace {

/// A kernel of somebody's, what it moves in a launch, and what must move in that, where that is known.
struct ForeignKernel {
  std::string name;
  FlowChart flows;
  std::optional<double> dram_multiple, sm_l2_multiple;
  bool dram_reads_alone = false;  // writes were not counted: the multiple is that of the reads

  double bytes() const {
    return flows.sm_l2 ? flows.sm_l2->read.value_or(0) + flows.sm_l2->written.value_or(0) : 0;
  }
};

std::optional<double> metric(const KernelGroup& group, const char* name) {
  const auto found = group.measured.find(name);
  return found == group.measured.end() ? std::nullopt : std::optional(found->second);
}

/// Reads and writes over those that must, or reads over reads where writes were not counted.
std::optional<double> add_multiple(FlowBytes& flow, const ReadWriteBytes& must) {
  flow.must_read = static_cast<double>(must.read_bytes);
  flow.must_write = static_cast<double>(must.write_bytes);
  if (!flow.read) return std::nullopt;
  const double multiple = flow.written ? (*flow.read + *flow.written) / (*flow.must_read + *flow.must_write)
                                       : *flow.read / *flow.must_read;
  flow.multiple = format_ratio(multiple);
  flow.outcome = outcome_of_multiple(multiple);
  return multiple;
}

ForeignKernel foreign_kernel(const KernelGroup& group, const std::optional<ReadWriteBytes>& must) {
  ForeignKernel kernel{short_kernel_name(group.name), {}, {}, {}};
  const auto flow = [&](const char* read, const char* written) {
    const FlowBytes bytes{metric(group, read), metric(group, written)};
    return bytes.read || bytes.written ? std::optional(bytes) : std::nullopt;
  };
  kernel.flows.color = Color::amber;  // of what is no algorithm that the report knows
  kernel.flows.sm_l2 = flow("sm_l2_read_bytes", "sm_l2_write_bytes");
  kernel.flows.dram = flow("dram_read_bytes", "dram_write_bytes");
  if (!must) return kernel;
  if (kernel.flows.sm_l2) kernel.sm_l2_multiple = add_multiple(*kernel.flows.sm_l2, *must);
  if (kernel.flows.dram) {
    kernel.dram_multiple = add_multiple(*kernel.flows.dram, *must);
    kernel.dram_reads_alone = !kernel.flows.dram->written;
  }
  return kernel;
}

/// Those that `explain` knows the problem of, or else all; those that move most first.
std::vector<ForeignKernel> foreign_kernels(const std::vector<KernelRecord>& records,
                                           const std::vector<ExplainRecord>& explained) {
  std::vector<ForeignKernel> kernels;
  for (const ExplainRecord& record : explained) {
    const std::vector<LaunchAnswer> found = answers(record, explain(record));
    for (std::size_t i = 0; i < found.size(); ++i)
      kernels.push_back(foreign_kernel(record.kernels[i], found[i].must));
  }
  for (const KernelRecord& record : records) {
    if (!explained.empty()) break;
    for (const KernelGroup& group : group_launches(record.kernels))
      kernels.push_back(foreign_kernel(group, std::nullopt));
  }
  std::erase_if(kernels, [](const ForeignKernel& kernel) { return kernel.bytes() == 0; });
  std::ranges::stable_sort(kernels, [](const ForeignKernel& a, const ForeignKernel& b) {
    return std::pair(a.dram_multiple.has_value(), a.bytes()) >
           std::pair(b.dram_multiple.has_value(), b.bytes());
  });
  return kernels;
}

FindingLine foreign_line(const ForeignKernel& kernel) {
  FindingLine line{{}, fmt::format("`{}`", kernel.name)};
  const auto amount = [](const char* boundary, const FlowBytes& flow, const std::optional<double>& multiple) {
    return multiple ? multiple_amount(boundary, *multiple)
                    : Amount{format_bytes(flow.read.value_or(0) + flow.written.value_or(0)), boundary};
  };
  if (kernel.flows.dram) {
    const char* const boundary = kernel.flows.dram->written ? "DRAM" : "DRAM read";
    line.amounts.push_back(amount(boundary, *kernel.flows.dram, kernel.dram_multiple));
  }
  line.amounts.push_back(amount("SM<->L2", *kernel.flows.sm_l2, kernel.sm_l2_multiple));
  return line;
}

/// Who counted: a device's counters, or an emulated device.
const char* counted_by(const std::vector<KernelRecord>& records,
                       const std::vector<ExplainRecord>& explained) {
  const bool emulated = std::ranges::any_of(records,
                                            [](const KernelRecord& record) {
                                              return std::ranges::any_of(
                                                  record.kernels, &std::optional<EmulatedKernel>::has_value,
                                                  &KernelMeasurement::emulated);
                                            }) ||
                        std::ranges::any_of(explained, [](const ExplainRecord& record) {
                          return std::ranges::find(record.command, "emulate") != record.command.end();
                        });
  return emulated ? "by emulation" : "by counters";
}

}  // namespace

std::optional<Finding> foreign_verdict(const std::vector<KernelRecord>& records,
                                       const std::vector<ExplainRecord>& explained) {
  const std::vector<ForeignKernel> kernels = foreign_kernels(records, explained);
  if (kernels.empty()) return std::nullopt;
  const bool known = kernels.front().dram_multiple || kernels.front().sm_l2_multiple;
  Finding finding{known ? "Do they move more than they must?" : "What do they move?",
                  {},
                  "",
                  Outcome::informational,
                  explained.empty() ? "kernels" : "explained-kernels"};
  constexpr std::size_t kMostLines = 3;
  for (const ForeignKernel& kernel : kernels) {
    if (finding.lines.size() < kMostLines) finding.lines.push_back(foreign_line(kernel));
  }
  if (!known) {
    finding.sentence = fmt::format(
        "Bytes of a launch, {}; the kernels that move most stand first. What they must move depends on their "
        "problem: `tilescope explain RECORD --batch B --heads H --seqlen N --head-dim D` says it.",
        counted_by(records, explained));
    return finding;
  }
  const AttentionProblem& problem = explained.front().problem;
  const auto must = [&problem](Direction direction) {
    return format_bytes(static_cast<double>(compulsory_bytes(problem, direction).total()));
  };
  finding.sentence = fmt::format(
      "{}: its forward pass must move {}, its backward pass {}. A launch must move the operands of the pass "
      "that explains it, each once.",
      describe(problem), must(Direction::forward), must(Direction::backward));
  finding.outcome = finding.lines.front().amounts.front().outcome;
  return finding;
}

std::optional<Figure> foreign_picture(const std::vector<KernelRecord>& records,
                                      const std::vector<ExplainRecord>& explained) {
  std::vector<ForeignKernel> kernels = foreign_kernels(records, explained);
  if (kernels.empty()) return std::nullopt;
  constexpr std::size_t kMost = 8;  // beyond, a reader chooses no longer
  if (kernels.size() > kMost) kernels.resize(kMost);
  std::vector<FlowChart> charts;
  for (const ForeignKernel& kernel : kernels) charts.push_back(kernel.flows);
  share_width(charts);
  Figure figure{"bytes-flow", "What moves between SMs, L2 and DRAM"};
  figure.caption = fmt::format(
      "Bytes of a launch, {}. Arrows are as wide as bytes are many{}.", counted_by(records, explained),
      explained.empty()
          ? ""
          : fmt::format("; the line within is what must move, every input read once and every "
                        "output written once. Red is {:g}x and more, when half of the bytes are "
                        "the schedule's doing and not the problem's; green is up to {:g}x",
                        kBadMultiple, kGoodMultiple));
  for (std::size_t i = 0; i < kernels.size(); ++i)
    figure.panels.push_back({kernels[i].name, draw(charts[i])});
  for (const ExplainRecord& record : explained) add_new(figure.commands, command_text(record.argv));
  for (const KernelRecord& record : records) {
    if (explained.empty()) add_new(figure.commands, command_text(record.argv));
  }
  return figure;
}

}  // namespace tilescope
