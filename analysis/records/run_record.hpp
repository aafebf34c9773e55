// SPDX-License-Identifier: Apache-2.0
// The record, schema "tilescope.run/1": what every measuring or modelling command writes and every analysing
// command reads. Plain data; an absent part is std::nullopt and is left out of the JSON, never written as
// zero.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "analysis/records/git_state.hpp"
#include "analysis/records/progress_rates.hpp"
#include "cpu_ref/kernels/math_unit.hpp"
#include "cpu_ref/numeric/random_inputs.hpp"
#include "cpu_ref/schedule/problem.hpp"
#include "cpu_ref/schedule/tile_program.hpp"

namespace tilescope {

inline constexpr std::string_view kRunSchema = "tilescope.run/1";

/// Where the command ran. The GPU parts are absent on a machine without one.
struct MachineInfo {
  std::optional<std::string> name, chip, driver, cuda;
  std::optional<std::string> source;     // where the GPU's facts came from
  std::optional<std::string> libraries;  // versions of those that were timed beside ours
  std::optional<std::string> cpu;        // model name
  std::optional<std::int64_t> threads;
  bool operator==(const MachineInfo&) const = default;
};

/// Bytes of a pass by formula: what its tiles move between SMs and L2, where a reduction counts as written,
/// and what it must move at least (compulsory).
struct ClosedFormBytes {
  std::int64_t sm_l2_read_bytes = 0;
  std::int64_t sm_l2_write_bytes = 0;
  std::int64_t compulsory_read_bytes = 0;  // each tile that the pass needs from outside, once
  std::int64_t compulsory_write_bytes = 0;
  /// Part of those at SM<->L2: words by which CTAs agree, a sector each.
  std::int64_t word_read_bytes = 0;
  std::int64_t word_write_bytes = 0;
  std::int64_t sm_l2_bytes() const { return sm_l2_read_bytes + sm_l2_write_bytes; }
  std::int64_t compulsory_bytes() const { return compulsory_read_bytes + compulsory_write_bytes; }
  bool operator==(const ClosedFormBytes&) const = default;
};

/// DRAM traffic at one size of an LRU L2, read off the stack-distance histogram.
struct L2CurvePoint {
  std::int64_t l2_bytes = 0;
  std::int64_t dram_read_bytes = 0;
  std::int64_t dram_write_bytes = 0;
  bool operator==(const L2CurvePoint&) const = default;
};

/// Bytes of a pass replayed through the cache model of a machine.
struct SimulatedBytes {
  std::string machine;        // the model's name, "h200"
  std::int64_t l2_bytes = 0;  // capacity that was simulated
  std::int64_t co_resident_ctas = 0;
  std::int64_t sm_l2_read_bytes = 0;
  std::int64_t sm_l2_write_bytes = 0;
  std::int64_t dram_read_bytes = 0;
  std::int64_t dram_write_bytes = 0;
  double hit_rate = 0;                 // bytes found in L2 / bytes that looked there, 1.0 = 100 %
  std::vector<L2CurvePoint> l2_curve;  // of LRU; ascending l2_bytes; may be empty
  /// Least and largest DRAM reads of the layouts whose median dram_read_bytes is; only with pages at random
  /// places.
  std::optional<std::array<std::int64_t, 2>> dram_read_range = std::nullopt;
  std::optional<std::array<std::int64_t, 2>> dram_write_range = std::nullopt;  // the same of writes
  /// What DRAM reads, and writes, are said to lie between in nine of ten launches, with what is not known of
  /// the machine; of a prediction.
  std::optional<std::array<std::int64_t, 2>> dram_read_interval = std::nullopt;
  std::optional<std::array<std::int64_t, 2>> dram_write_interval = std::nullopt;
  std::int64_t dram_bytes() const { return dram_read_bytes + dram_write_bytes; }
  bool operator==(const SimulatedBytes&) const = default;
};

/// Bytes from hardware counters.
struct MeasuredBytes {
  std::optional<std::int64_t> sm_l2_read_bytes, sm_l2_write_bytes, dram_read_bytes, dram_write_bytes;
  /// Least and largest DRAM reads of the launches, or of the random placements, whose median
  /// dram_read_bytes is; absent with one.
  std::optional<std::array<std::int64_t, 2>> dram_read_range = std::nullopt;
  /// Code and constants that L2 had to fetch from DRAM: part of dram_read_bytes.
  std::optional<std::int64_t> instruction_fetch_bytes = std::nullopt;
  bool operator==(const MeasuredBytes&) const = default;
};

/// What a model of the SMs says that a pass takes: no bound, which is the least that it can take.
struct PredictedTime {
  double seconds = 0;
  std::array<double, 2> interval{};  // in which nine of ten measured times should lie
  double sm_clock_hz = 0;            // that was reckoned with; 0: of a pass that waits for memory alone
  bool operator==(const PredictedTime&) const = default;
};

struct TimeRecord {
  double median_s = 0;
  double min_s = 0;
  double noise = 0;                                      // relative standard deviation, 1.0 = 100 %
  std::vector<double> samples_s;                         // empty where only what they come to was kept
  std::optional<std::int64_t> throttled = std::nullopt;  // samples dropped because the clock was low
  std::optional<double> sm_clock_hz = std::nullopt;      // mean over the samples
  std::optional<std::int64_t> samples = std::nullopt;    // how many there were, where they were not kept
  bool operator==(const TimeRecord&) const = default;
};

struct LaunchRecord {
  std::array<std::int64_t, 3> grid{1, 1, 1};
  std::array<std::int64_t, 3> block{1, 1, 1};
  std::optional<std::int64_t> registers, shared_bytes;  // per thread; per CTA
  bool operator==(const LaunchRecord&) const = default;
};

/// A counter's value: integers stay integers.
using CounterValue = std::variant<std::int64_t, double>;

inline constexpr TileShape kUnknownTile{0, 0};

/// What a pass was told, where neither its name nor its tile shows it. In the file fields of the pass.
struct PassChoices {
  /// Parts a side of a tile that the mask cuts, where there are several.
  std::optional<std::int64_t> diagonal_slices = std::nullopt;
  std::optional<std::string> fp8_sums = std::nullopt;    // to_string(Fp8Sums), where not in fp32
  std::optional<std::string> variant = std::nullopt;     // to_string(Variant), where not the kernel's own
  std::optional<BackwardOrder> backward = std::nullopt;  // of a pass that computes gradients
  std::optional<std::int64_t> warps = std::nullopt, stages = std::nullopt;  // where not the kernel's own
  std::optional<std::string> dq_start = std::nullopt;  // to_string(DqStart), where the sums are not cleared
  std::optional<SplitPolicy> splits = std::nullopt;  // of the keys, where there are several: number or fixed
  std::optional<std::int64_t> query_splits = std::nullopt;  // CTAs that share a kv tile, where several do
  bool pack_gqa = false;                                    // a group's query heads in one tile
  bool operator==(const PassChoices&) const = default;
};

/// One kernel launch.
struct PassRecord {
  std::string name;
  Direction direction = Direction::forward;
  TileShape tile;          // kUnknownTile for another library's kernel
  std::int64_t flops = 0;  // matrix products over the visible (query, key) pairs, 2 a multiply-add
  std::int64_t executed_flops =
      0;                          // the same over all that is computed: whole visited tiles, or parts of them
  std::int64_t exponentials = 0;  // of P: one for each visible pair where it is computed from the scores
  PassChoices choices = {};
  std::optional<ClosedFormBytes> closed_form;
  std::optional<SimulatedBytes> simulated;
  std::optional<MeasuredBytes> measured;
  std::optional<MeasuredProgress> progress = std::nullopt;
  std::optional<TimeRecord> time;
  std::optional<PredictedTime> predicted = std::nullopt;
  std::map<std::string, CounterValue> counters;
  std::optional<LaunchRecord> launch;
  bool operator==(const PassRecord&) const = default;
};

/// How far one tensor lies from the exact result, or from another kernel's. Non-finite figures are written as
/// "nan", "inf", "-inf".
struct TensorErrorRecord {
  double max_abs = 0;
  double rmse = 0;
  double max_ulp = 0;
  std::int64_t non_finite = 0;  // elements
  double bound = 0;             // what max_abs was held to; the largest, where rows have bounds of their own
  std::optional<double> rmse_bound = std::nullopt;  // what rmse was held to, if to anything
  std::optional<double> share =
      std::nullopt;  // the largest error / bound, where rows have bounds of their own
  bool operator==(const TensorErrorRecord&) const = default;
};

/// One tensor over many runs of the same problem.
struct RepeatRecord {
  std::int64_t runs = 0;
  std::int64_t runs_that_differ = 0;  // in any bit, from the first
  double spread = 0;                  // largest difference of an element from the first run's
  double bound = 0;                   // of its error against the exact result, to compare the spread with
  bool may_differ = false;            // sums of atomic adds have no fixed order
  bool operator==(const RepeatRecord&) const = default;
};

/// The derivative of sum(dout * out) along a random direction, in two ways.
struct GradientRecord {
  std::string tensor;      // whose gradient: dq, dk or dv
  double by_gradient = 0;  // the direction times the gradient
  double by_difference = 0;
  double bound = 0;  // of their difference
  bool operator==(const GradientRecord&) const = default;
};

/// How a run's tensors lie in physical memory: each in one piece, as allocators of fresh memory place them,
/// or every page at a random place. The sets of an L2 go by physical addresses, so that a working set near
/// the L2's capacity overflows more of them in one place than in another.
enum class PagePlacement : std::uint8_t { contiguous, random };
std::string_view to_string(PagePlacement pages);
/// @throws BadInput
PagePlacement parse_page_placement(std::string_view text);

/// One problem on one kernel.
struct RunEntry {
  AttentionProblem problem;
  std::string kernel;
  std::vector<PassRecord> passes;
  std::map<std::string, TensorErrorRecord> error;  // by tensor: o, lse, dq, dk, dv
  std::optional<TileOrder> order = std::nullopt;   // of the grid, where it was chosen
  std::optional<Scan> scan = std::nullopt;         // of the inner tiles, where it was chosen
  std::optional<InputKind> inputs = std::nullopt;  // what was computed on
  std::optional<std::string> l2 = std::nullopt;    // "cold" or "warm": before each pass was measured
  /// Rows of each output that were judged right before anything was measured; 0: none, `false` in the file.
  std::optional<std::int64_t> verified = std::nullopt;
  /// Where its tensors lay, measured and simulated.
  PagePlacement pages = PagePlacement::contiguous;
  /// By direction, "forward" or "backward": device memory that its tensors took.
  std::map<std::string, std::int64_t> device_bytes = {};
  std::map<std::string, TensorErrorRecord> mirror_error = {};  // `error`, against the kernel's CPU mirror
  std::map<std::string, RepeatRecord> repeats = {};            // by tensor
  std::vector<GradientRecord> gradients = {};
  // Where an entry stands for many problems: their number, those that failed; the errors are their largest.
  std::optional<std::int64_t> cases = std::nullopt, failed = std::nullopt;
  // Of this program's kernels, as their rows have it: what they execute, what multiplies, "cpu" or "gpu",
  // their rung of the ladder if they have one.
  std::optional<Algorithm> algorithm = std::nullopt;
  std::optional<MathUnit> math_unit = std::nullopt;
  std::optional<std::string> runs_on = std::nullopt;
  std::optional<std::int64_t> rung = std::nullopt;
  bool operator==(const RunEntry&) const = default;

  /// The pass of that direction with a time, or null.
  const PassRecord* timed_pass(Direction direction) const;
};

/// What making a record took.
struct RecordCost {
  double elapsed_s = 0;
  std::int64_t peak_memory_bytes = 0;  // resident, of the process
  bool operator==(const RecordCost&) const = default;
};

/// The measurement that a record of simulations was made for, and the model that made it.
struct SimulationSource {
  std::string path;               // of the measured record, as it was given
  std::vector<std::string> argv;  // of the measured record; with `when` they tell it from all others
  std::string when;
  GitState git;
  std::string machine_file;  // of the machine that was simulated, as it was given
  /// SHA-256 of the measured record's text, of the machine as to_json_text has it, and of the model's
  /// sources.
  std::optional<std::string> record_sha256 = {}, machine_sha256 = {}, model_sha256 = {};
  bool operator==(const SimulationSource&) const = default;
};

struct RunRecord {
  std::vector<std::string> argv;
  GitState git;
  std::string when;  // ISO 8601, UTC
  MachineInfo machine;
  std::optional<RecordCost> cost = std::nullopt;  // of simulations
  std::optional<SimulationSource> simulation_of = std::nullopt;
  std::optional<std::string> shard = std::nullopt;  // "I/N": one of N parts of a sweep
  /// Kernel, direction and problem of what an interruption left unmeasured.
  std::vector<std::string> missing = {};
  /// What a sweep went on without: kernel, direction and problem, with the reason.
  std::vector<std::string> refused = {};
  std::vector<RunEntry> runs;
  bool operator==(const RunRecord&) const = default;
};

/// CPU model and thread count of this machine.
MachineInfo this_machine();
/// Of this process, since `start`.
RecordCost cost_since(std::chrono::steady_clock::time_point start);
/// "2025-01-31T23:59:59Z"
std::string utc_now();
/// An empty record of this command, now, on this machine.
RunRecord start_record(std::vector<std::string> argv);

std::string to_json_text(const RunRecord& record);
/// `record` with the number of samples in place of the samples of each time: what it says does not depend on
/// them.
RunRecord without_samples(RunRecord record);
/// @param source what error messages call the text, usually its path
/// @throws BadInput naming source, field and value on damaged JSON, another schema, or a wrong value
RunRecord parse_run_record(const std::string& source, std::string_view text);

/// Writes the record to `path`, whole or not at all; "-" is standard output.
/// @throws BadInput if the file cannot be written
void write_run_record(const RunRecord& record, const std::string& path);
/// Reads a record from `path`; "-" is standard input.
/// @throws BadInput as parse_run_record, or if the file cannot be read
RunRecord read_run_record(const std::string& path);

}  // namespace tilescope
