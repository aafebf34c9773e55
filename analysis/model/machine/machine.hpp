// SPDX-License-Identifier: Apache-2.0
// A GPU as the models see it: each number once, as data, with where it came from.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "analysis/records/progress_rates.hpp"
#include "cpu_ref/kernels/math_unit.hpp"
#include "cpu_ref/schedule/problem.hpp"
#include "profiler/calibration/l2/l2_partitions.hpp"

namespace tilescope {

/// The kind of a number that stands where a file has none.
inline constexpr std::string_view kDefaultKind = "default";

/// A number and its evidence.
template <typename T>
struct Fact {
  T value{};
  std::string source;
  /// datasheet, measured, derived, assumed, unverified (from general knowledge, no document at hand),
  /// default.
  std::string kind;
  bool operator==(const Fact&) const = default;
};

/// Whether a document or a measurement states numbers of that kind, or they follow from some that do.
inline bool is_documented(std::string_view kind) {
  return kind != "assumed" && kind != "unverified" && kind != kDefaultKind;
}

inline constexpr int kL2Partitions = 2;

/// An L2 in two partitions: the one beside an SM is near to it, the other far.
struct SplitL2Shape {
  std::int64_t partition_bytes = 0;
  std::int64_t ways = 0;
  std::vector<SmGroup> sm_groups;
  std::optional<std::int64_t> dirty_ways = std::nullopt;  // lines of a set that may be dirty; none: all

  static constexpr std::int64_t kLineBytes = 128;
  static constexpr std::int64_t kHomeBytes = 4096;  // that follow each other and have one home
  static constexpr std::int64_t kLeastSets = 128;   // of a partition: so many are replayed
  /// Sets of a partition, in whole pairs of homes.
  std::int64_t sets() const {
    constexpr std::int64_t kLinesOfPair = kL2Partitions * kHomeBytes / kLineBytes;
    return partition_bytes / (kLineBytes * ways * kLinesOfPair) * kLinesOfPair;
  }
};

/// Files: analysis/model/machine/NAME.json. A CTA is what CUDA calls a thread block.
struct Machine {
  std::string name;   // "h200"
  std::string title;  // "NVIDIA H200 SXM, 141 GB"
  std::string chip;   // "GH100"
  Fact<std::int64_t> sm_count;
  Fact<std::int64_t> shared_bytes_per_sm;   // the most that CTAs can have together
  Fact<std::int64_t> shared_bytes_per_cta;  // the most that one CTA can ask for
  Fact<std::int64_t> on_chip_bytes_per_sm;  // registers, L1 and shared memory: all that can hold an operand
  Fact<std::int64_t> ctas_per_sm;           // the most that the hardware keeps resident
  Fact<std::int64_t> l2_bytes;
  Fact<std::int64_t> l2_effective_bytes;  // of them, what streamed data can use
  /// How CTAs drift apart whose products run on a unit, by to_string(MathUnit); on others, such as that of a
  /// CPU kernel's program, clocks lie apart as on CUDA cores, and nothing else does.
  std::map<std::string, Fact<ProgressRates>> cta_progress;
  /// Lines of a set of the L2, and the groups of SMs in the order in which they are given CTAs, the first one
  /// always first; together they say that the L2 is in two equal partitions (SplitL2). Absent: one partition,
  /// LRU.
  std::optional<Fact<std::int64_t>> l2_ways;
  std::optional<Fact<std::vector<SmGroup>>> sm_groups;
  /// Lines of a set of an L2 in two partitions that may be dirty at once, the oldest being written back where
  /// there would be more; absent: all.
  std::optional<Fact<std::int64_t>> l2_dirty_ways;
  std::optional<Fact<std::int64_t>> dram_bytes;  // all that tensors can take
  Fact<double> dram_bytes_per_second;
  std::optional<Fact<double>> l2_bytes_per_second;  // SM<->L2
  /// To another GPU of the host, in one direction, and what each transfer costs beside its bytes.
  std::optional<Fact<double>> link_bytes_per_second, link_latency_seconds;
  /// From the end of what a kernel waits for until it begins, enqueued long before.
  std::optional<Fact<double>> launch_seconds;
  /// What kernels that do nothing take: one by itself, each further one behind it in its stream, and each
  /// that may begin before the one before it has ended.
  std::optional<Fact<double>> empty_launch_seconds, next_launch_seconds, early_launch_seconds;
  Fact<double> sm_clock_hz;  // at which the peaks below hold
  /// The clock of SMs whose tensor cores rest, and of those whose tensor cores never do: power bounds it.
  std::optional<Fact<double>> boost_clock_hz, tensor_clock_hz;
  /// FLOP of matrix products of 16-bit types that an SM's tensor cores make in a clock, dense; absent: the
  /// peak at sm_clock_hz.
  std::optional<Fact<double>> tensor_flops_per_clock_per_sm;
  /// What of the tensor cores' peak mma.sync reaches, where other instructions reach all; absent: all.
  std::optional<Fact<double>> mma_sync_peak_share;
  /// Results of the special function unit, 2^x among them, of one SM. [results per clock]
  std::optional<Fact<std::int64_t>> exponentials_per_clock_per_sm;
  std::map<std::string, Fact<double>> peak_flops_per_second;  // dense matrix products by element type

  double boost_hz() const { return boost_clock_hz.value_or(sm_clock_hz).value; }
  double tensor_flops_per_clock() const;
  /// By so much sooner than by itself is a launch done behind another one, and where it may begin before that
  /// has ended. [seconds] 0 where the file does not say.
  double next_launch_saves() const { return launch_saves(next_launch_seconds); }
  double early_launch_saves() const { return launch_saves(early_launch_seconds); }
  double mma_sync_share() const { return mma_sync_peak_share ? mma_sync_peak_share->value : 1.0; }
  /// The clock where tensor cores multiply at their full rate for that share of the time.
  double clock_at(double tensor_share) const;
  /// Of CTAs whose products run on that unit.
  ProgressRates progress_on(MathUnit unit) const;
  bool knows_progress_on(std::optional<MathUnit> unit) const;
  /// 90 of a GH100; nothing where the chip is not known.
  std::optional<int> compute_capability() const;
  /// Nothing where the L2 is taken as one.
  std::optional<SplitL2Shape> split_l2() const;
  /// CTAs that an SM keeps resident when each needs `shared_bytes` of shared memory: at least 1, so that a
  /// program that does not fit (see fits) can still be replayed.
  std::int64_t resident_ctas_per_sm(std::int64_t shared_bytes) const;
  bool fits(std::int64_t shared_bytes) const { return shared_bytes <= shared_bytes_per_cta.value; }
  /// Peak for a kernel whose inputs have that type, or nothing if the chip lacks the type.
  std::optional<double> peak_flops(ElementType type) const;
  /// The rate of all SMs together; nothing when the file does not say.
  std::optional<double> exponentials_per_second() const;
  bool operator==(const Machine&) const = default;

 private:
  double launch_saves(const std::optional<Fact<double>>& behind) const {
    return empty_launch_seconds && behind ? empty_launch_seconds->value - behind->value : 0.0;
  }
};

/// The machine called `name_or_path`: one that TileScope ships, also by its chip where that is enough
/// ("h100"), or, when it ends in ".json", that file.
/// @throws BadInput on an unknown name (listing the known ones) or a damaged file (naming file and field)
Machine load_machine(const std::string& name_or_path);
/// Ends the name of a machine whose file `ceilings` made.
inline constexpr std::string_view kMeasuredSuffix = "-measured";
/// `machine` with the ceilings of NAME-measured in place of those stated, where TileScope ships such a file:
/// a verdict rests on what was measured.
Machine with_measured_ceilings(Machine machine);
/// The shipped machine whose title begins with the device's name: "NVIDIA H200" is "NVIDIA H200 SXM, 141 GB".
/// Its figures are those of its makers, not measured ones.
std::optional<Machine> machine_of_device(const std::string& device);
/// A file holds a whole machine or, with a field "base", what it adds to one that TileScope ships. Refused
/// are fields that nothing reads, missing ones that have no default (all in one sentence), and numbers that
/// cannot be in their unit.
/// @param source what error messages call the text
/// @throws BadInput
Machine parse_machine(const std::string& source, std::string_view text);
/// The file of a machine; parse_machine reads it back.
std::string to_json_text(const Machine& machine);
/// The same, of what it adds to a machine that TileScope ships.
std::string to_json_text(const Machine& machine, const Machine& base);
/// A file with every field that a machine may have and none filled in.
std::string machine_template();
/// A number of a machine, as its file has it.
struct MachineNumber {
  std::string field;  // "sm_count", "peak_flops_per_second.fp16"
  std::string value;  // with its unit; of a list how long it is
  std::string kind, source;
};
std::vector<MachineNumber> numbers_of(const Machine& machine);
/// Names of the machines that TileScope ships, sorted.
std::vector<std::string> machine_names();

struct CeilingsRecord;
/// `base` with what was measured in the place of what is said of it, called "base-measured".
Machine measured_machine(Machine base, const CeilingsRecord& record);

}  // namespace tilescope
