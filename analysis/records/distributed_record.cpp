// SPDX-License-Identifier: Apache-2.0
#include "analysis/records/distributed_record.hpp"

#include <algorithm>
#include <cmath>

#include "analysis/records/record_parts.hpp"
#include "analysis/records/record_schemas.hpp"
#include "profiler/records/field_list.hpp"
#include "profiler/records/field_schema.hpp"

namespace tilescope {
namespace {

constexpr Within kNotNegative{.least = 0};

/// Whole bytes stand as integers; the mean of several repetitions may have a fraction.
struct MeanBytes {
  static Json schema() { return schema_of(Within{.least = 0}); }
  Json write(double bytes) const {
    return bytes == std::floor(bytes) ? Json(static_cast<std::int64_t>(bytes)) : Json(bytes);
  }
  double read(const JsonField& field) const { return field.finite(0); }
};

std::optional<double> number_at(const JsonField& field, const char* key) {
  if (!field.has(key)) return std::nullopt;
  return field.at(key).finite();
}

}  // namespace

template <typename Fields>
static void list(Fields& fields, Of<Fields, LinkRecord>& link) {
  fields.required("link_sent_bytes", MeanBytes{}, link.sent_bytes);
  fields.required("link_received_bytes", MeanBytes{}, link.received_bytes);
}

template <typename Fields>
static void list(Fields& fields, Of<Fields, LinkReading>& reading) {
  list(fields, reading.data);
  fields.optional("link_sent_with_protocol_bytes", MeanBytes{}, reading.sent_with_protocol_bytes);
  fields.optional("link_received_with_protocol_bytes", MeanBytes{}, reading.received_with_protocol_bytes);
}

template <typename Fields>
static void list(Fields& fields, Of<Fields, GpuRecord>& gpu) {
  list(fields, gpu.link);
  fields.optional("closed_form", Part<LinkRecord>{}, gpu.closed_form);
  fields.optional("nvml", Part<LinkReading>{}, gpu.nvml);
  fields.optional("operand_bytes", kCount, gpu.operand_bytes);
  fields.optional("received_buffer_bytes", kCount, gpu.received_buffer_bytes);
  fields.optional("state_bytes", kCount, gpu.state_bytes);
  fields.optional("launches", kCount, gpu.launches);
  fields.optional("visible_pairs", kCount, gpu.visible_pairs);
  fields.optional("attention_s", kNotNegative, gpu.attention_s);
  fields.optional("elementwise_s", kNotNegative, gpu.elementwise_s);
  fields.optional("link_s", kNotNegative, gpu.link_s);
  fields.optional("end_s", kNotNegative, gpu.end_s);
  fields.optional("memory_bytes", kCount, gpu.memory_bytes);
}

template <typename Fields>
static void list(Fields& fields, Of<Fields, PredictedTimes>& times) {
  fields.required("time_s", kNotNegative, times.time_s);
  fields.optional("exposed_s", Within{}, times.exposed_s);
  fields.optional("one_gpu_s", kNotNegative, times.one_gpu_s);
  fields.required("efficiency", Within{}, times.efficiency);
  fields.entries("lost", Within{}, times.lost_s);
}

template <typename Fields>
static void list(Fields& fields, Of<Fields, ModelledTimes>& times) {
  fields.required("time_s", kNotNegative, times.time_s);
  fields.required("efficiency", Within{}, times.efficiency);
}

template <typename Fields>
static void list(Fields& fields, Of<Fields, DistributedPass>& pass) {
  fields.required("name", Text{}, pass.name);
  fields.optional("steps", kCount, pass.steps);
  fields.optional("balance", Within{}, pass.balance);
  fields.optional("lock_step_balance", Within{}, pass.lock_step_balance);
  fields.optional("predicted", Part<PredictedTimes>{}, pass.predicted);
  fields.optional("least_link_bytes", MeanBytes{}, pass.least_link_bytes);
  fields.optional("time_s", Within{}, pass.time_s);
  fields.optional("launches_s", Within{}, pass.launches_s);
  fields.optional("link_s", Within{}, pass.link_s);
  fields.optional("one_gpu_s", Within{}, pass.one_gpu_s);
  fields.optional("efficiency", Within{}, pass.efficiency);
  fields.optional("hidden_share", Within{}, pass.hidden_share);
  fields.optional("flops_per_second_a_gpu", Within{}, pass.flops_per_second_a_gpu);
  fields.optional("model", Part<ModelledTimes>{}, pass.model);
  fields.optional("counted_by", Text{}, pass.counted_by);
  fields.optional("repetitions", kCount, pass.repetitions);
  fields.items("gpus", Part<GpuRecord>{}, pass.gpus);
}

template <typename Fields>
static void list(Fields& fields, Of<Fields, JudgedTensor>& tensor) {
  fields.required("max_abs", Number{}, tensor.max_abs);
  fields.required("rmse", Number{}, tensor.rmse);
  fields.required("bound", Positive{}, tensor.bound);
}

template <typename Fields>
static void list(Fields& fields, Of<Fields, DistributedRun>& run) {
  fields.required("problem", ProblemFields{}, run.problem);
  fields.required("schedule", Text{}, run.schedule);
  fields.required("gpus", Integer{1}, run.gpus);
  fields.optional("ulysses", Integer{1}, run.ulysses);
  fields.optional("ring", Integer{1}, run.ring);
  fields.unless(std::string(), "kernel", Text{}, run.kernel);
  fields.optional("passed", Flag{}, run.passed);
  fields.entries("error", Part<JudgedTensor>{}, run.errors);
  fields.optional("failure", Text{}, run.failure);
  fields.items_if_any("passes", Part<DistributedPass>{}, run.passes);
}

template <typename Fields>
static void list(Fields& fields, Of<Fields, RankMachine>& machine) {
  fields.required("name", Text{}, machine.name);
  fields.optional("driver", Text{}, machine.driver);
  fields.optional("cuda", Text{}, machine.cuda);
  fields.optional("flops_per_second", Within{}, machine.flops_per_second);
  fields.optional("link_bytes_per_second", Within{}, machine.link_bytes_per_second);
  fields.optional("link_latency_s", Within{}, machine.link_latency_s);
  fields.optional("launch_s", Within{}, machine.launch_s);
}

template <typename Fields>
static void list(Fields& fields, Of<Fields, DistributedRecord>& record) {
  fields.items("argv", Text{}, record.argv);
  fields.added("when", Text{}, record.when);
  fields.optional("machine", Part<RankMachine>{}, record.machine);
  fields.unless(std::string(), "transport", Text{}, record.transport);
  fields.items("runs", Part<DistributedRun>{}, record.runs);
}

const GpuRecord* DistributedPass::busiest() const {
  const auto most = std::ranges::max_element(gpus, [](const GpuRecord& a, const GpuRecord& b) {
    return a.link.data.sent_bytes < b.link.data.sent_bytes;
  });
  return most == gpus.end() ? nullptr : &*most;
}

double DistributedRun::largest_error_share() const {
  double share = 0;
  for (const auto& [name, tensor] : errors) share = std::max(share, tensor.max_abs / tensor.bound);
  return share;
}

Json distributed_record_schema() { return record_schema<DistributedRecord>(kDistributedSchema); }

std::string to_json_text(const DistributedRecord& record) {
  return record_text(record_json(kDistributedSchema, record));
}

DistributedRecord parse_distributed_record(const std::string& source, std::string_view text) {
  const Json json = parse_json(source, text);
  return Part<DistributedRecord>{}.read(JsonField(source, json));
}

DistributedPeers parse_distributed_peers(const std::string& source, std::string_view text) {
  const Json json = parse_json(source, text);
  const JsonField field(source, json), problem = field.at("problem");
  DistributedPeers peers{.torch = field.at("torch").text(),
                         .gpus = field.at("gpus").integer(1),
                         .heads = problem.at("heads").integer(1),
                         .heads_kv = problem.at("heads_kv").integer(1),
                         .head_dim = problem.at("head_dim").integer(1),
                         .runs = {}};
  for (const JsonField& run : field.at("runs").items()) {
    peers.runs.push_back({run.at("peer").text(), run.at("tokens_a_gpu").integer(1),
                          number_at(run, "forward_s"), number_at(run, "backward_s"),
                          number_at(run, "forward_efficiency"), number_at(run, "backward_efficiency"),
                          number_at(run, "forward_link_sent_bytes"),
                          number_at(run, "backward_link_sent_bytes")});
  }
  return peers;
}

}  // namespace tilescope
