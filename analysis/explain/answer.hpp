// SPDX-License-Identifier: Apache-2.0
// What somebody wants to know of a kernel: what it must move, what it moved, why, and what would help.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "analysis/explain/explain_record.hpp"
#include "analysis/explain/program_fit.hpp"
#include "analysis/model/machine/machine.hpp"
#include "profiler/records/json_fields.hpp"

namespace tilescope {

enum class Boundary : std::uint8_t { sm_l2, dram };
/// "SM<->L2", "DRAM"
std::string_view to_string(Boundary boundary);

/// Bytes that a kernel moved beyond what it must, or spared it (below 0), and why.
struct AnswerCause {
  std::string name;  // "tiles read again"
  Boundary boundary = Boundary::sm_l2;
  bool reads = false;
  std::int64_t bytes = 0;
  std::string source;  // the metric that counted it, "closed form", or "" for what is left over
};

/// What would make a kernel move less, tried before it is said.
struct NextStep {
  std::string action;  // "tiles of 256 x 32"
  Boundary boundary = Boundary::sm_l2;
  std::int64_t bytes_now = 0, bytes_then = 0;
  std::string tried;  // "by closed form", "by counter", "by replay on h200"
};

struct LaunchAnswer {
  std::string kernel;
  std::int64_t launches = 0;
  std::string verdict;  // "explained: forward, 128 x (64, 128); 0.3 % by chance"
  Agreement agreement = Agreement::unexplained;
  std::string must_from;  // whose operands: "forward", "--reads and --writes"; "" where must is not known
  std::optional<ReadWriteBytes> must;
  ReadWriteBytes sm_l2;                // moved
  std::optional<ReadWriteBytes> dram;  // moved; 0 written where writes were not counted
  bool dram_writes_counted = false;
  ReadWriteBytes left_over;  // moved less what it must and the causes; all of it where neither is known
  std::vector<AnswerCause> causes;   // the largest first
  std::vector<NextStep> next_steps;  // the largest gain first
  std::vector<std::string> remarks;
  /// The ceiling that it meets first, and the part of it that it reached in the run with counters (1.0 =
  /// all); absent where the device or the time is not known.
  std::optional<std::pair<std::string, double>> of_ceiling;

  std::optional<ReadWriteBytes> moved(Boundary boundary) const {
    return boundary == Boundary::sm_l2 ? std::optional(sm_l2) : dram;
  }
  /// Moved over must, of the sides that were counted.
  std::optional<double> multiple(Boundary boundary) const;
};

/// The machine of a device that TileScope knows, by the first of the record's collections.
std::optional<Machine> machine_behind(const ExplainRecord& record);

/// One answer a kernel of the record.
/// @param fits what explain() says of it
std::vector<LaunchAnswer> answers(const ExplainRecord& record, const std::vector<KernelFit>& fits);

/// What would make the kernel move less, each tried on the closed form, the counters or a replay before it is
/// said: what saves at least a hundredth of what is moved at its boundary, the largest gain first.
/// @param machine of the device; without, nothing is replayed
std::vector<NextStep> next_steps(const LaunchAnswer& answer, const KernelGroup& kernel, const KernelFit& fit,
                                 const std::optional<Machine>& machine);

/// Whether no kernel's writes to DRAM were counted, so that its bytes and multiple there are of reads.
bool dram_reads_alone(const std::vector<LaunchAnswer>& answers);

/// Some lines for a terminal, of at most `width` columns.
std::string to_text(const LaunchAnswer& answer, std::size_t width);
/// A table of all and what would help, for a pull request.
std::string to_markdown(const std::vector<LaunchAnswer>& answers);

}  // namespace tilescope
