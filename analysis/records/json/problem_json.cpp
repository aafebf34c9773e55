// SPDX-License-Identifier: Apache-2.0
#include "analysis/records/json/problem_json.hpp"

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
  if (field.has("scale")) p.softmax_scale = field.at("scale").number();
  p.dropout = field.at("dropout").number();
  p.seed = field.at("seed").seed();
  if (field.has("key_lengths")) {
    for (const JsonField& length : field.at("key_lengths").items()) p.key_lengths.push_back(length.integer());
  }
  try {
    p.dtype = parse_element_type(field.at("dtype").text());
    validate(p);
  } catch (const BadInput& error) {
    field.refuse(error.what());
  }
  return p;
}

}  // namespace tilescope
