// SPDX-License-Identifier: Apache-2.0
#include "analysis/records/record_parts.hpp"

namespace tilescope {

Json problem_json(const AttentionProblem& p) {
  Json json{{"batch", p.batch},       {"heads", p.heads},       {"heads_kv", p.heads_kv},
            {"seqlen_q", p.seqlen_q}, {"seqlen_k", p.seqlen_k}, {"head_dim", p.head_dim}};
  json["dtype"] = to_string(p.dtype);
  json["causal"] = p.causal;
  json["window"] = {p.window_left, p.window_right};
  if (p.softmax_scale) json["scale"] = *p.softmax_scale;
  json["dropout"] = p.dropout;
  json["seed"] = p.seed;
  if (!p.key_lengths.empty()) json["key_lengths"] = p.key_lengths;
  const Descales& d = p.descales;
  for (const auto& [name, descale] : {std::pair{"descale_q", d.q}, {"descale_k", d.k}, {"descale_v", d.v}}) {
    if (descale != Descale{}) json[name] = to_string(descale);
  }
  if (d.by_block()) json["descale_block"] = {d.block.block_m, d.block.block_n};
  return json;
}

AttentionProblem problem_from(const JsonField& field) {
  AttentionProblem p;
  p.batch = field.at("batch").integer();
  p.heads = field.at("heads").integer();
  p.heads_kv = field.at("heads_kv").integer();
  p.seqlen_q = field.at("seqlen_q").integer();
  p.seqlen_k = field.at("seqlen_k").integer();
  p.head_dim = field.at("head_dim").integer();
  const std::vector<JsonField> window = field.at("window").items();
  if (window.size() != 2) field.at("window").refuse("must be [left, right]");
  p.window_left = window[0].integer();
  p.window_right = window[1].integer();
  p.causal = field.at("causal").boolean();
  if (field.has("scale")) p.softmax_scale = field.at("scale").finite();
  p.dropout = field.at("dropout").finite();
  p.seed = field.at("seed").seed();
  if (field.has("key_lengths")) {
    for (const JsonField& length : field.at("key_lengths").items()) p.key_lengths.push_back(length.integer());
  }
  Descales& d = p.descales;
  if (field.has("descale_block")) {
    const std::vector<JsonField> sides = field.at("descale_block").items();
    constexpr std::int64_t kMostRows = std::numeric_limits<int>::max();
    if (sides.size() != 2) field.at("descale_block").refuse("must be [rows of q, rows of k and v]");
    d.block = {static_cast<int>(sides[0].integer(1, kMostRows)),
               static_cast<int>(sides[1].integer(1, kMostRows))};
  }
  try {
    for (const auto& [name, descale] :
         {std::pair{"descale_q", &d.q}, {"descale_k", &d.k}, {"descale_v", &d.v}}) {
      if (field.has(name)) *descale = parse_descale(name, field.at(name).text());
    }
    p.dtype = parse_element_type(field.at("dtype").text());
    validate(p);
  } catch (const BadInput& error) {
    field.refuse(error.what());
  }
  return p;
}

void to_json(Json& json, const SmGroup& group) {
  json = {{"sms", group.sms}, {"partition", group.partition}};
}

std::vector<SmGroup> parse_sm_groups(const JsonField& field, std::int64_t most_sms,
                                     std::int64_t num_partitions) {
  std::vector<SmGroup> groups;
  for (const JsonField& group : field.items()) {
    groups.push_back({static_cast<int>(group.at("sms").integer(1, most_sms)),
                      static_cast<int>(group.at("partition").integer(0, num_partitions - 1))});
  }
  return groups;
}

}  // namespace tilescope
