// SPDX-License-Identifier: Apache-2.0
// Answers in words: for a terminal, for a pull request, and as JSON.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "analysis/explain/answer.hpp"
#include "common/number_format.hpp"
#include "common/wrap_words.hpp"

namespace tilescope {
namespace {

std::string bytes_text(std::int64_t bytes) { return format_bytes(static_cast<double>(bytes)); }

/// "+477.1 MB written", "-1.343 MB read"
std::string cause_amount(const AnswerCause& cause) {
  const char* verb = cause.reads ? "read" : "written";
  return fmt::format("{}{} {}", cause.bytes < 0 ? "-" : "+", bytes_text(std::abs(cause.bytes)), verb);
}

/// "SM<->L2 +477.1 MB written: spills (local_store_bytes)"
std::string cause_text(const AnswerCause& cause) {
  std::string text = fmt::format("{} {}: {}", to_string(cause.boundary), cause_amount(cause), cause.name);
  return cause.source.empty() ? text : fmt::format("{} ({})", text, cause.source);
}

/// "2.215 GB for 2.692 GB at SM<->L2, 16.4x for 19.9x, by counter"
std::string step_gain(const LaunchAnswer& answer, const NextStep& step) {
  std::string text = fmt::format("{} for {} at {}", bytes_text(step.bytes_then), bytes_text(step.bytes_now),
                                 to_string(step.boundary));
  if (answer.must && answer.must->total() > 0) {
    const auto must = static_cast<double>(answer.must->total());
    text += fmt::format(", {} for {}", format_ratio(static_cast<double>(step.bytes_then) / must),
                        format_ratio(static_cast<double>(step.bytes_now) / must));
  }
  return text + ", " + step.tried;
}

/// "2.181 GB" and "21.6x", or "-" for what is not known.
struct Cell {
  std::string bytes = "-", multiple = "";
};
Cell cell(const std::optional<ReadWriteBytes>& moved, const std::optional<ReadWriteBytes>& must,
          std::int64_t ReadWriteBytes::*side) {
  if (!moved) return {};
  Cell cell{bytes_text((*moved).*side), ""};
  if (must && (*must).*side > 0) {
    cell.multiple = format_ratio(static_cast<double>((*moved).*side) / static_cast<double>((*must).*side));
  }
  return cell;
}

std::string side_line(const LaunchAnswer& answer, const char* name, std::int64_t ReadWriteBytes::*side) {
  const Cell sm = cell(answer.sm_l2, answer.must, side), dram = cell(answer.dram, answer.must, side);
  const bool counted = side == &ReadWriteBytes::read_bytes || answer.dram_writes_counted;
  const std::string must = answer.must ? bytes_text((*answer.must).*side) : "?";
  std::string line = fmt::format("  {:<8} {:>10}  {:>10} {:>6}  {:>10} {:>6}", name, must, sm.bytes,
                                 sm.multiple, counted ? dram.bytes : "-", counted ? dram.multiple : "");
  line.erase(line.find_last_not_of(' ') + 1);
  return line + "\n";
}

constexpr std::size_t kIndent = 11;

/// Words on lines of at most `width` columns, the first behind `label`, the others under it.
std::string labelled(const std::string& label, const std::string& text, std::size_t width) {
  std::string out = fmt::format("  {:<{}}", label, kIndent - 2);
  const std::vector<std::string> lines = wrap_words(text, width - kIndent);
  for (std::size_t i = 0; i < lines.size(); ++i)
    out += (i > 0 ? std::string(kIndent, ' ') : "") + lines[i] + "\n";
  return out;
}

/// A thousandth of what crosses there, or more: a terminal shows no less, but for what is left over.
bool matters(const LaunchAnswer& answer, const AnswerCause& cause) {
  const std::int64_t moved = answer.moved(cause.boundary).value_or(ReadWriteBytes{}).total();
  return !cause.source.empty() && 1000 * std::abs(cause.bytes) >= moved;
}

/// "moves 20.0x what it must at SM<->L2, 1.00x at DRAM (reads), because of tiles read again (2.080 GB),
/// spills (477.1 MB)": causes of a tenth or more of what crosses SM<->L2 beyond what must, and of a hundredth
/// of that. "" where it is not known what must. Nothing but an L2 that held inputs before, or holds outputs
/// afterwards, can bring DRAM below 1.00x.
std::string headline(const LaunchAnswer& answer) {
  const auto sm = answer.multiple(Boundary::sm_l2), dram = answer.multiple(Boundary::dram);
  if (!sm) return "";
  constexpr std::int64_t kTenth = 10;
  const std::int64_t beyond = answer.sm_l2.total() - answer.must->total();
  std::vector<std::string> causes;
  for (const AnswerCause& cause : answer.causes) {
    const bool large = kTenth * cause.bytes >= std::max(beyond, answer.must->total() / kTenth);
    if (cause.boundary == Boundary::sm_l2 && large && matters(answer, cause)) causes.push_back(cause.name);
  }
  std::string text =
      fmt::format("moves {} what it must at {}", format_ratio(*sm), to_string(Boundary::sm_l2));
  if (dram) {
    std::string what = answer.dram_writes_counted ? "" : "reads";
    constexpr double kShownAsLess = 0.995;
    if (*dram < kShownAsLess)
      what += (what.empty() ? "" : "; ") + std::string("the L2 was warm and held the rest");
    text += fmt::format(", {} at {}", format_ratio(*dram), to_string(Boundary::dram));
    if (!what.empty()) text += " (" + what + ")";
  }
  return causes.empty() ? text : text + fmt::format(", because of {}", fmt::join(causes, " and "));
}

/// "+27.52 kB (0.001 %)"; "0 B"
std::string residual_text(std::int64_t residual, std::int64_t measured) {
  if (residual == 0) return "0 B";
  const double share = 100 * std::abs(static_cast<double>(residual)) /
                       static_cast<double>(std::max<std::int64_t>(1, measured));
  return fmt::format("{}{} ({:.{}f} %)", residual > 0 ? "+" : "-", bytes_text(std::abs(residual)), share,
                     share < 1 ? 3 : 1);
}

}  // namespace

std::string to_text(const LaunchAnswer& answer, std::size_t width) {
  const auto labelled_line = [width](const std::string& label, const std::string& text) {
    return labelled(label, text, width);
  };
  const auto line = [&labelled_line](const std::string& words) {
    return words.empty() ? "" : "  " + labelled_line("", words).substr(kIndent);
  };
  std::string text = line(headline(answer)) + line(answer.verdict);
  text += fmt::format("  {:<8} {:>10}  {:>17}  {:>17}\n", "", "must move", "SM<->L2", "DRAM");
  text += side_line(answer, "read", &ReadWriteBytes::read_bytes);
  text += side_line(answer, "written", &ReadWriteBytes::write_bytes);
  std::string label = "why";
  for (const AnswerCause& cause : answer.causes) {
    if (!matters(answer, cause)) continue;
    text += labelled_line(label, cause_text(cause));
    label = "";
  }
  if (answer.must) {
    text += labelled_line(label,
                          fmt::format("left over: {} read, {} written",
                                      residual_text(answer.left_over.read_bytes, answer.sm_l2.read_bytes),
                                      residual_text(answer.left_over.write_bytes, answer.sm_l2.write_bytes)));
  }
  label = "next";
  for (const NextStep& step : answer.next_steps) {
    text += labelled_line(label, step.action + ": " + step_gain(answer, step));
    label = "";
  }
  label = "see";
  for (const std::string& remark : answer.remarks) {
    text += labelled_line(label, remark);
    label = "";
  }
  if (answer.of_ceiling) {
    text += labelled_line(
        "speed", fmt::format("{:.0f} % of what its first ceiling allows ({}), in the run with counters",
                             100 * answer.of_ceiling->second, answer.of_ceiling->first));
  }
  return text;
}

std::string to_markdown(const std::vector<LaunchAnswer>& answers) {
  std::string text = fmt::format(
      "| kernel | must move | SM<->L2 | x must | {} | why |\n|---|---:|---:|---:|---:|---:|---|\n",
      dram_reads_alone(answers) ? "DRAM read | x must" : "DRAM | x must");
  const auto multiple = [](const LaunchAnswer& answer, Boundary boundary) {
    const auto value = answer.multiple(boundary);
    return value ? format_ratio(*value) : "-";
  };
  std::string steps;
  for (const LaunchAnswer& answer : answers) {
    const std::string name = short_kernel_name(answer.kernel);
    std::vector<std::string> causes = {answer.verdict};
    constexpr std::size_t kShown = 3;
    for (std::size_t i = 0; i < std::min(kShown, answer.causes.size()); ++i) {
      causes.push_back(cause_text(answer.causes[i]));
    }
    text +=
        fmt::format("| `{}` | {} | {} | {} | {} | {} | {} |\n", name,
                    answer.must ? bytes_text(answer.must->total()) : "-", bytes_text(answer.sm_l2.total()),
                    multiple(answer, Boundary::sm_l2), answer.dram ? bytes_text(answer.dram->total()) : "-",
                    multiple(answer, Boundary::dram), fmt::join(causes, "; "));
    for (const NextStep& step : answer.next_steps) {
      steps += fmt::format("- `{}`: {}: {}.\n", name, step.action, step_gain(answer, step));
    }
  }
  return steps.empty() ? text : text + "\nWhat would help:\n\n" + steps;
}

}  // namespace tilescope
