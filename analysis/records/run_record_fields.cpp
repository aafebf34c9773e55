// SPDX-License-Identifier: Apache-2.0
// The record as JSON: one list of fields for each of its parts.
#include <algorithm>

#include "analysis/records/files/text_file.hpp"
#include "analysis/records/record_kinds.hpp"
#include "analysis/records/record_parts.hpp"
#include "analysis/records/record_schemas.hpp"
#include "analysis/records/run_record.hpp"
#include "profiler/records/field_list.hpp"
#include "profiler/records/field_schema.hpp"
#include "profiler/records/json_fields.hpp"
#include "profiler/records/kernel_fields.hpp"

namespace tilescope {
namespace {

// Codecs of the values that only this record has.

constexpr Integer kFlops{0, std::int64_t{1} << 62};  // more than there can be bytes

/// Whether no sum over passes overflows.
bool can_be_summed(const std::vector<PassRecord>& passes) {
  constexpr std::size_t kMostPasses = 256;
  double flops = 0;
  for (const PassRecord& pass : passes)
    flops += static_cast<double>(std::max(pass.flops, pass.executed_flops));
  return passes.size() <= kMostPasses && flops <= static_cast<double>(kFlops.most);
}

/// [least, largest], each as the codec of an end has it.
template <typename End, typename Number>
struct Range {
  static Json schema() { return array_schema(schema_of(End{}), 2); }
  Json write(const std::array<Number, 2>& range) const {
    return {End{}.write(range[0]), End{}.write(range[1])};
  }
  std::array<Number, 2> read(const JsonField& field) const {
    const std::vector<JsonField> ends = field.items();
    if (ends.size() != 2) field.refuse("must be [least, largest]");
    const std::array<Number, 2> range{End{}.read(ends[0]), End{}.read(ends[1])};
    if (range[0] > range[1]) field.refuse("must be [least, largest]");
    return range;
  }
};

struct Count {
  static Json schema() { return schema_of(kCount); }
  Json write(std::int64_t value) const { return value; }
  std::int64_t read(const JsonField& field) const { return field.count(); }
};
constexpr Range<Count, std::int64_t> kByteRange{};
constexpr Range<Positive, double> kSecondsRange{};

struct OneOfTwo {
  const char *one, *other;
  Json schema() const { return {{"enum", {one, other}}}; }
  Json write(const std::string& word) const { return word; }
  std::string read(const JsonField& field) const {
    const std::string word = field.text();
    if (word != one && word != other) field.refuse(std::string("must be ") + one + " or " + other);
    return word;
  }
};

SplitPolicy parse_splits(std::string_view text) { return parse_split_policy("splits", std::string(text)); }

/// A number of rows, or false.
struct RowsOrFalse {
  static Json schema() { return {{"anyOf", {schema_of(Integer{1}), {{"const", false}}}}}; }
  Json write(std::int64_t rows) const { return rows > 0 ? Json(rows) : Json(false); }
  std::int64_t read(const JsonField& field) const {
    if (!field.value().is_boolean()) return field.integer(1);
    if (field.boolean()) field.refuse("must be a number of rows, or false");
    return 0;
  }
};

/// Integers stay integers.
struct Counter {
  static Json schema() { return number_schema(); }
  Json write(const CounterValue& value) const {
    if (const auto* integer = std::get_if<std::int64_t>(&value)) return *integer;
    return json_number(std::get<double>(value));
  }
  CounterValue read(const JsonField& field) const {
    if (field.value().is_number_integer()) return field.integer();
    return field.number();
  }
};

}  // namespace

// The lists, in the order of the file. Found by argument-dependent lookup, so in no unnamed namespace.

template <typename Fields>
static void list(Fields& fields, Of<Fields, MachineInfo>& machine) {
  fields.optional("name", Text{}, machine.name);
  fields.optional("chip", Text{}, machine.chip);
  fields.optional("driver", Text{}, machine.driver);
  fields.optional("cuda", Text{}, machine.cuda);
  fields.optional("source", Text{}, machine.source);
  fields.optional("libraries", Text{}, machine.libraries);
  fields.optional("cpu", Text{}, machine.cpu);
  fields.optional("threads", kCount, machine.threads);
}

template <typename Fields>
static void list(Fields& fields, Of<Fields, ClosedFormBytes>& bytes) {
  fields.required("sm_l2_read_bytes", kCount, bytes.sm_l2_read_bytes);
  fields.required("sm_l2_write_bytes", kCount, bytes.sm_l2_write_bytes);
  fields.required("compulsory_read_bytes", kCount, bytes.compulsory_read_bytes);
  fields.required("compulsory_write_bytes", kCount, bytes.compulsory_write_bytes);
  fields.unless(std::int64_t{0}, "word_read_bytes", kCount, bytes.word_read_bytes);
  fields.unless(std::int64_t{0}, "word_write_bytes", kCount, bytes.word_write_bytes);
}

template <typename Fields>
static void list(Fields& fields, Of<Fields, L2CurvePoint>& point) {
  fields.required("l2_bytes", Integer{1}, point.l2_bytes);
  fields.required("dram_read_bytes", kCount, point.dram_read_bytes);
  fields.required("dram_write_bytes", kCount, point.dram_write_bytes);
}

template <typename Fields>
static void list(Fields& fields, Of<Fields, SimulatedBytes>& bytes) {
  fields.required("machine", Text{}, bytes.machine);
  fields.required("l2_bytes", kCount, bytes.l2_bytes);
  fields.required("co_resident_ctas", kCount, bytes.co_resident_ctas);
  fields.required("sm_l2_read_bytes", kCount, bytes.sm_l2_read_bytes);
  fields.required("sm_l2_write_bytes", kCount, bytes.sm_l2_write_bytes);
  fields.required("dram_read_bytes", kCount, bytes.dram_read_bytes);
  fields.required("dram_write_bytes", kCount, bytes.dram_write_bytes);
  fields.required("hit_rate", Within{.most = 1}, bytes.hit_rate);
  fields.optional("dram_read_range", kByteRange, bytes.dram_read_range);
  fields.optional("dram_write_range", kByteRange, bytes.dram_write_range);
  fields.optional("dram_read_interval", kByteRange, bytes.dram_read_interval);
  fields.optional("dram_write_interval", kByteRange, bytes.dram_write_interval);
  fields.items_if_any("l2_curve", Part<L2CurvePoint>{}, bytes.l2_curve);
  const auto not_larger = [](const L2CurvePoint& a, const L2CurvePoint& b) {
    return a.l2_bytes >= b.l2_bytes;
  };
  fields.check(std::ranges::adjacent_find(bytes.l2_curve, not_larger) == bytes.l2_curve.end(), "l2_curve",
               "must have sizes that ascend");
}

template <typename Fields>
static void list(Fields& fields, Of<Fields, MeasuredBytes>& bytes) {
  fields.optional("sm_l2_read_bytes", kCount, bytes.sm_l2_read_bytes);
  fields.optional("sm_l2_write_bytes", kCount, bytes.sm_l2_write_bytes);
  fields.optional("dram_read_bytes", kCount, bytes.dram_read_bytes);
  fields.optional("dram_write_bytes", kCount, bytes.dram_write_bytes);
  fields.optional("dram_read_range", kByteRange, bytes.dram_read_range);
  fields.optional("instruction_fetch_bytes", kCount, bytes.instruction_fetch_bytes);
}

template <typename Fields>
static void list(Fields& fields, Of<Fields, TimeRecord>& time) {
  fields.required("median_s", Positive{}, time.median_s);
  fields.required("min_s", Positive{}, time.min_s);
  fields.required("noise", Within{.least = 0}, time.noise);
  fields.optional("throttled", kCount, time.throttled);
  fields.optional("sm_clock_hz", Positive{}, time.sm_clock_hz);
  fields.optional("samples", kCount, time.samples);
  fields.items_if_any("samples_s", Positive{}, time.samples_s);
}

template <typename Fields>
static void list(Fields& fields, Of<Fields, PredictedTime>& time) {
  fields.required("time_s", Positive{}, time.seconds);
  fields.required("time_interval_s", kSecondsRange, time.interval);
  fields.unless(0.0, "sm_clock_hz", Positive{}, time.sm_clock_hz);
}

template <typename Fields>
static void list(Fields& fields, Of<Fields, MeasuredProgress>& measured) {
  constexpr std::int64_t kMostCtas = 1024;
  fields.required("ctas_per_sm", Integer{1, kMostCtas}, measured.ctas_per_sm);
  fields.required("step_cycles", Within{.least = 0}, measured.step_cycles);
  fields.required("younger_rate", StepRate{}, measured.rates.younger_rate);
  fields.required("alone_rate", StepRate{}, measured.rates.alone_rate);
  fields.added("step_cv", Within{.least = 0}, measured.rates.step_cv);
  fields.added("tpc_cv", Within{.least = 0}, measured.rates.tpc_cv);
  fields.added("clock_cv", Within{.least = 0}, measured.rates.clock_cv);
}

template <typename Fields>
static void list(Fields& fields, Of<Fields, LaunchRecord>& launch) {
  fields.required("grid", Extent{}, launch.grid);
  fields.required("block", Extent{}, launch.block);
  fields.optional("registers", kCount, launch.registers);
  fields.optional("shared_bytes", kCount, launch.shared_bytes);
}

template <typename Fields>
static void list(Fields& fields, Of<Fields, PassRecord>& pass) {
  fields.required("name", Text{}, pass.name);
  fields.required("direction", DirectionName{}, pass.direction);
  fields.unless(kUnknownTile, "tile", Part<TileShape>{}, pass.tile);
  fields.added("flops", kFlops, pass.flops);
  fields.added("executed_flops", kFlops, pass.executed_flops);
  fields.unless(std::int64_t{0}, "exponentials", kFlops, pass.exponentials);
  fields.optional("diagonal_slices", Integer{2, kMaxDiagonalSlices}, pass.choices.diagonal_slices);
  fields.optional("fp8_sums", Text{}, pass.choices.fp8_sums);
  fields.optional("variant", Text{}, pass.choices.variant);
  fields.optional("backward", Named(parse_backward_order), pass.choices.backward);
  fields.optional("warps", Integer{1, 64}, pass.choices.warps);
  fields.optional("stages", Integer{1, 64}, pass.choices.stages);
  fields.optional("dq_start", Text{}, pass.choices.dq_start);
  fields.optional("splits", Named(parse_splits), pass.choices.splits);
  fields.optional("query_splits", Integer{2, kMaxSplits}, pass.choices.query_splits);
  fields.unless(false, "pack_gqa", Flag{}, pass.choices.pack_gqa);
  fields.optional("closed_form", Part<ClosedFormBytes>{}, pass.closed_form);
  fields.optional("simulated", Part<SimulatedBytes>{}, pass.simulated);
  fields.optional("measured", Part<MeasuredBytes>{}, pass.measured);
  fields.optional("time", Part<TimeRecord>{}, pass.time);
  fields.optional("predicted", Part<PredictedTime>{}, pass.predicted);
  fields.entries("counters", Counter{}, pass.counters);
  fields.optional("cta_progress", Part<MeasuredProgress>{}, pass.progress);
  fields.optional("launch", Part<LaunchRecord>{}, pass.launch);
}

template <typename Fields>
static void list(Fields& fields, Of<Fields, TensorErrorRecord>& error) {
  fields.required("max_abs", Distance{}, error.max_abs);
  fields.required("rmse", Distance{}, error.rmse);
  fields.added("max_ulp", Distance{}, error.max_ulp);
  fields.required("non_finite", kCount, error.non_finite);
  fields.required("bound", Distance{}, error.bound);
  fields.optional("rmse_bound", Distance{}, error.rmse_bound);
  fields.optional("share", Distance{}, error.share);
}

template <typename Fields>
static void list(Fields& fields, Of<Fields, RepeatRecord>& repeat) {
  fields.required("runs", kCount, repeat.runs);
  fields.required("runs_that_differ", kCount, repeat.runs_that_differ);
  fields.required("spread", Distance{}, repeat.spread);
  fields.required("bound", Distance{}, repeat.bound);
  fields.required("may_differ", Flag{}, repeat.may_differ);
}

template <typename Fields>
static void list(Fields& fields, Of<Fields, GradientRecord>& check) {
  fields.required("tensor", Text{}, check.tensor);
  fields.required("by_gradient", Number{}, check.by_gradient);
  fields.required("by_difference", Number{}, check.by_difference);
  fields.required("bound", Distance{}, check.bound);
}

template <typename Fields>
static void list(Fields& fields, Of<Fields, RunEntry>& run) {
  fields.required("problem", ProblemFields{}, run.problem);
  fields.required("kernel", Text{}, run.kernel);
  fields.optional("algorithm", Named(parse_algorithm), run.algorithm);
  fields.optional("math_unit", Named(parse_math_unit), run.math_unit);
  fields.optional("runs_on", OneOfTwo{"cpu", "gpu"}, run.runs_on);
  fields.optional("rung", Integer{1, 64}, run.rung);
  fields.optional("order", Named(parse_tile_order), run.order);
  fields.optional("scan", Named(parse_scan), run.scan);
  fields.optional("inputs", Named(parse_input_kind), run.inputs);
  fields.optional("l2", OneOfTwo{"cold", "warm"}, run.l2);
  fields.optional("verified", RowsOrFalse{}, run.verified);
  fields.unless(PagePlacement::contiguous, "pages", Named(parse_page_placement), run.pages);
  fields.optional("cases", kCount, run.cases);
  fields.optional("failed", kCount, run.failed);
  fields.entries("device_bytes", kCount, run.device_bytes);
  fields.items("passes", Part<PassRecord>{}, run.passes);
  fields.check(can_be_summed(run.passes), "passes", "must not be that many, nor do that many FLOPs together");
  fields.entries("error", Part<TensorErrorRecord>{}, run.error);
  fields.entries("mirror_error", Part<TensorErrorRecord>{}, run.mirror_error);
  fields.entries("repeats", Part<RepeatRecord>{}, run.repeats);
  fields.items_if_any("gradients", Part<GradientRecord>{}, run.gradients);
}

template <typename Fields>
static void list(Fields& fields, Of<Fields, RecordCost>& cost) {
  fields.required("elapsed_s", Positive{}, cost.elapsed_s);
  fields.required("peak_memory_bytes", kCount, cost.peak_memory_bytes);
}

template <typename Fields>
static void list(Fields& fields, Of<Fields, SimulationSource>& source) {
  fields.required("path", Text{}, source.path);
  fields.items("argv", Text{}, source.argv);
  fields.required("git", Part<GitState>{}, source.git);
  fields.required("when", Text{}, source.when);
  fields.required("machine_file", Text{}, source.machine_file);
  fields.optional("record_sha256", Text{}, source.record_sha256);
  fields.optional("machine_sha256", Text{}, source.machine_sha256);
  fields.optional("model_sha256", Text{}, source.model_sha256);
}

template <typename Fields>
static void list(Fields& fields, Of<Fields, RunRecord>& record) {
  fields.items("argv", Text{}, record.argv);
  fields.required("git", Part<GitState>{}, record.git);
  fields.required("when", Text{}, record.when);
  fields.required("machine", Part<MachineInfo>{}, record.machine);
  fields.optional("cost", Part<RecordCost>{}, record.cost);
  fields.optional("simulation_of", Part<SimulationSource>{}, record.simulation_of);
  fields.optional("shard", Text{}, record.shard);
  fields.items_if_any("missing", Text{}, record.missing);
  fields.items_if_any("refused", Text{}, record.refused);
  fields.items("runs", Part<RunEntry>{}, record.runs);
}

Json run_record_schema() { return record_schema<RunRecord>(kRunSchema); }

std::string to_json_text(const RunRecord& record) { return record_text(record_json(kRunSchema, record)); }

RunRecord parse_run_record(const std::string& source, std::string_view text) {
  const Json json = parse_json(source, text);
  require_kind(source, json, {kRunSchema});
  return Part<RunRecord>{}.read(JsonField(source, json));
}

void write_run_record(const RunRecord& record, const std::string& path) {
  write_file_atomically("--json", path, to_json_text(record));
}

RunRecord read_run_record(const std::string& path) { return parse_run_record(path, read_text_file(path)); }

}  // namespace tilescope
