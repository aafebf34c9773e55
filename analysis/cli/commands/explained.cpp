// SPDX-License-Identifier: Apache-2.0
#include "analysis/cli/commands/explained.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "analysis/cli/text_table.hpp"
#include "analysis/explain/answer.hpp"
#include "common/number_format.hpp"

namespace tilescope::cli {
namespace {

std::int64_t count_of(const std::vector<KernelFit>& fits, Agreement agreement) {
  return std::ranges::count(fits, agreement, &KernelFit::agreement);
}

/// What of the problem the bytes leave open, where they explain kernels by it.
std::string left_open(const ExplainRecord& record, const std::vector<KernelFit>& fits) {
  if (count_of(fits, Agreement::explained) == 0 || record.program) return "";
  const std::int64_t heads = record.problem.batch * record.problem.heads;
  std::string text;
  if (heads > 1) text = fmt::format("another split of the {} heads over batch and heads", heads);
  if (const auto heads_kv = heads_kv_as_good(record, fits); !heads_kv.empty()) {
    text += fmt::format("{}--heads-kv {}", text.empty() ? "" : ", or ", fmt::join(heads_kv, ", "));
  }
  return text.empty() ? "" : "the same bytes have: " + text + "\n";
}

/// What the kernels are held against, in a line.
std::string subject(const ExplainRecord& record) {
  if (!record.must) return describe(record.problem);
  return fmt::format("each must read {} and write {}, as --reads and --writes say",
                     format_bytes(static_cast<double>(record.must->read_bytes)),
                     format_bytes(static_cast<double>(record.must->write_bytes)));
}

/// "14 of 15 kernels explained, the least sure of them 0.7 % by chance; 3 more are no attention"
std::string tally(const ExplainRecord& record, const std::vector<KernelFit>& fits) {
  const std::int64_t others = count_of(fits, Agreement::no_attention);
  const std::int64_t explained = count_of(fits, Agreement::explained);
  if (record.must && explained == 0) return "";  // no tile program is asked for
  double chance = 0;
  for (const KernelFit& fit : fits) {
    if (fit.agreement == Agreement::explained) chance = std::max(chance, fit.chance.value_or(0));
  }
  std::string text =
      fmt::format("{} of {} kernels explained", explained, static_cast<std::int64_t>(fits.size()) - others);
  if (explained > 0) text += ", the least sure of them " + chance_text(chance) + " by chance";
  if (explained == 0 && others == 0) {
    text += "; of kernels that are no attention --reads BYTES and --writes BYTES say what must be moved";
  }
  if (others > 0) {
    text += fmt::format(
        "; {} more {} no attention by {}: --reads BYTES and --writes BYTES say what must be moved", others,
        others == 1 ? "is" : "are", others == 1 ? "its name" : "their names");
  }
  return text + "\n";
}

/// A line, as several where the terminal is narrower.
std::string folded(const std::string& line) {
  return line.empty() ? "" : wrapped(line.substr(0, line.size() - 1));
}

Cell bytes_or_dash(const std::optional<ReadWriteBytes>& bytes) {
  return bytes ? in_bytes(bytes->total()) : Cell("-");
}

Cell multiple_or_dash(const std::optional<double>& multiple) {
  return multiple ? as_ratio(*multiple, 1) : Cell("-");
}

Table bytes_table(const std::vector<LaunchAnswer>& all) {
  const bool reads = dram_reads_alone(all);
  Table table{
      .rows = {{"kernel", "launches", "verdict", "must move", "SM<->L2", "x must",
                reads ? "DRAM read" : "DRAM", reads ? "x must read" : "x must", "left over, SM<->L2"}}};
  for (const LaunchAnswer& answer : all) {
    table.rows.push_back({short_kernel_name(answer.kernel), as_count(answer.launches), answer.verdict,
                          bytes_or_dash(answer.must), in_bytes(answer.sm_l2.total()),
                          multiple_or_dash(answer.multiple(Boundary::sm_l2)), bytes_or_dash(answer.dram),
                          multiple_or_dash(answer.multiple(Boundary::dram)),
                          answer.must ? in_bytes(answer.left_over.total()) : Cell("-")});
  }
  return table;
}

}  // namespace

Output explained(const ExplainRecord& record, TableFormat format) {
  const std::vector<KernelFit> fits = explain(record);
  if (const std::string disagrees = doubt(record, fits); !disagrees.empty()) throw BadInput(disagrees);
  const std::vector<LaunchAnswer> all = answers(record, fits);
  if (format == TableFormat::markdown) {
    return fmt::format("{}: {}\n{}", subject(record), tally(record, fits), to_markdown(all));
  }
  if (format != TableFormat::text) {
    return Output(subject(record) + "\n") + bytes_table(all) + tally(record, fits);
  }
  std::string text = subject(record) + "\n";
  for (std::size_t i = 0; i < all.size(); ++i) {
    const std::int64_t launches = all[i].launches;
    const std::string name = short_kernel_name(all[i].kernel);
    const std::string launched =
        fmt::format("{} launched as {}", launches == 1 ? "once" : fmt::format("{} times", launches),
                    fmt::join(record.kernels[i].launch.grid, "x"));
    const bool fits = name.size() + 2 + launched.size() <= text_width();
    text += fmt::format("\n{}{}  {}\n", name, fits ? "" : "\n", launched);
    text += to_text(all[i], text_width());
  }
  const std::string end = folded(tally(record, fits)) + folded(left_open(record, fits));
  return text + (end.empty() ? "" : "\n") + end;
}

}  // namespace tilescope::cli
