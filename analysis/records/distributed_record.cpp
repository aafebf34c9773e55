// SPDX-License-Identifier: Apache-2.0
#include "analysis/records/distributed_record.hpp"

#include <algorithm>

#include "analysis/records/record_parts.hpp"
#include "profiler/records/json_fields.hpp"

namespace tilescope {
namespace {

std::optional<double> number_at(const JsonField& field, const char* key) {
  if (!field.has(key)) return std::nullopt;
  return field.at(key).finite();
}

LinkRecord link_of(const JsonField& field, const char* sent, const char* received) {
  return {field.at(sent).finite(0), field.at(received).finite(0)};
}

/// Where a prediction says it.
std::optional<double> memory_of(const JsonField& gpu) {
  if (!gpu.has("operand_bytes")) return std::nullopt;
  return gpu.at("operand_bytes").finite(0) + gpu.at("received_buffer_bytes").finite(0) +
         gpu.at("state_bytes").finite(0);
}

DistributedPass pass_of(const JsonField& field) {
  DistributedPass pass;
  pass.name = field.at("name").text();
  for (const JsonField& gpu : field.at("gpus").items()) {
    pass.link.push_back(link_of(gpu, "link_sent_bytes", "link_received_bytes"));
    if (gpu.has("closed_form"))
      pass.link_formula.push_back(link_of(gpu.at("closed_form"), "link_sent_bytes", "link_received_bytes"));
    if (gpu.has("link_sent_with_protocol_bytes")) {
      pass.link_with_protocol.push_back(
          link_of(gpu, "link_sent_with_protocol_bytes", "link_received_with_protocol_bytes"));
    }
  }
  if (field.has("predicted")) {
    pass.predicted_efficiency = number_at(field.at("predicted"), "efficiency");
    pass.predicted_s = number_at(field.at("predicted"), "time_s");
    if (!pass.link.empty()) pass.memory_bytes = memory_of(field.at("gpus").items()[pass.busiest()]);
    if (field.at("predicted").has("lost")) {
      for (const auto& [cause, seconds] : field.at("predicted").at("lost").entries())
        pass.predicted_lost_s[cause] = seconds.finite();
    }
  }
  if (field.has("model")) pass.model_efficiency = number_at(field.at("model"), "efficiency");
  pass.time_s = number_at(field, "time_s");
  pass.launches_s = number_at(field, "launches_s");
  pass.link_s = number_at(field, "link_s");
  pass.one_gpu_s = number_at(field, "one_gpu_s");
  pass.efficiency = number_at(field, "efficiency");
  pass.hidden_share = number_at(field, "hidden_share");
  pass.flops_per_second_a_gpu = number_at(field, "flops_per_second_a_gpu");
  return pass;
}

DistributedRun run_of(const JsonField& field) {
  DistributedRun run;
  run.problem = problem_from(field.at("problem"));
  run.schedule = field.at("schedule").text();
  run.gpus = field.at("gpus").integer(1);
  if (field.has("kernel")) run.kernel = field.at("kernel").text();
  if (field.has("passed")) run.passed = field.at("passed").boolean();
  if (field.has("error")) {
    for (const auto& [tensor, error] : field.at("error").entries()) {
      const double share = error.at("max_abs").number() / error.at("bound").positive();
      run.largest_error_share = std::max(run.largest_error_share, share);
    }
  }
  if (field.has("passes")) {
    for (const JsonField& pass : field.at("passes").items()) run.passes.push_back(pass_of(pass));
  }
  return run;
}

}  // namespace

std::size_t DistributedPass::busiest() const {
  const auto less = [](const LinkRecord& a, const LinkRecord& b) { return a.sent_bytes < b.sent_bytes; };
  return static_cast<std::size_t>(std::max_element(link.begin(), link.end(), less) - link.begin());
}

DistributedRecord parse_distributed_record(const std::string& source, std::string_view text) {
  const Json json = parse_json(source, text);
  const JsonField field(source, json);
  DistributedRecord record;
  for (const JsonField& word : field.at("argv").items()) record.argv.push_back(word.text());
  if (field.has("when")) record.when = field.at("when").text();
  if (field.has("machine")) {
    record.machine = field.at("machine").at("name").text();
    record.link_bytes_per_second = number_at(field.at("machine"), "link_bytes_per_second");
  }
  if (field.has("transport")) record.transport = field.at("transport").text();
  for (const JsonField& run : field.at("runs").items()) record.runs.push_back(run_of(run));
  return record;
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
