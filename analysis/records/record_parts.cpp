// SPDX-License-Identifier: Apache-2.0
#include "analysis/records/record_parts.hpp"

#include "profiler/records/field_schema.hpp"

#include <tuple>
#include <utility>

namespace tilescope {
namespace {

constexpr std::int64_t kMostRows = std::numeric_limits<int>::max();

/// [left, right]
struct Window {
  static Json schema() { return array_schema(schema_of(Integer{}), 2); }
  using Sides = std::pair<std::int64_t, std::int64_t>;
  Json write(const Sides& window) const { return {window.first, window.second}; }
  Sides read(const JsonField& field) const {
    const std::vector<JsonField> sides = field.items();
    if (sides.size() != 2) field.refuse("must be [left, right]");
    return {sides[0].integer(), sides[1].integer()};
  }
};

/// [rows of q, rows of k and v]
struct ScaleBlock {
  static Json schema() { return array_schema(schema_of(Integer{1, kMostRows}), 2); }
  Json write(TileShape block) const { return {block.block_m, block.block_n}; }
  TileShape read(const JsonField& field) const {
    const std::vector<JsonField> sides = field.items();
    if (sides.size() != 2) field.refuse("must be [rows of q, rows of k and v]");
    return {static_cast<int>(sides[0].integer(1, kMostRows)),
            static_cast<int>(sides[1].integer(1, kMostRows))};
  }
};

struct Seed {
  static Json schema() { return {{"type", "integer"}, {"minimum", 0}}; }
  Json write(std::uint64_t seed) const { return seed; }
  std::uint64_t read(const JsonField& field) const { return field.seed(); }
};

struct MaskText {
  static Json schema() { return {{"type", "string"}}; }
  Json write(const MaskRule& rule) const { return to_string(rule); }
  MaskRule read(const JsonField& field) const {
    try {
      return parse_mask("mask", field.text());
    } catch (const BadInput& error) {
      field.refuse(error.what());
    }
  }
};

struct ScaleText {
  const char* name;
  Json write(const Descale& scale) const { return to_string(scale); }
  Descale read(const JsonField& field) const {
    try {
      return parse_descale(name, field.text());
    } catch (const BadInput& error) {
      field.refuse(error.what());
    }
  }
};

/// A score modifier's number, or true where it has none.
struct ScoreModNumber {
  const ScoreModRow& row;
  bool has_number() const { return *row.type != 0; }
  Json schema() const { return has_number() ? schema_of(Positive{}) : schema_of(Flag{}); }
  Json write(double value) const { return has_number() ? Json(value) : Json(value != 0); }
  double read(const JsonField& field) const {
    return has_number() ? Positive{}.read(field) : Flag{}.read(field) ? 1.0 : 0.0;
  }
};

}  // namespace

template <typename Fields>
static void list(Fields& fields, Of<Fields, AttentionProblem>& problem) {
  fields.required("batch", Integer{}, problem.batch);
  fields.required("heads", Integer{}, problem.heads);
  fields.required("heads_kv", Integer{}, problem.heads_kv);
  fields.required("seqlen_q", Integer{}, problem.seqlen_q);
  fields.required("seqlen_k", Integer{}, problem.seqlen_k);
  fields.required("head_dim", Integer{}, problem.head_dim);
  fields.required("dtype", Named(parse_element_type), problem.dtype);
  fields.required("causal", Flag{}, problem.causal);
  std::pair window(problem.window_left, problem.window_right);
  fields.required("window", Window{}, window);
  if constexpr (Fields::kReads) std::tie(problem.window_left, problem.window_right) = window;
  fields.optional("scale", Within{}, problem.softmax_scale);
  fields.required("dropout", Within{}, problem.dropout);
  fields.required("seed", Seed{}, problem.seed);
  fields.items_if_any("key_lengths", Integer{}, problem.key_lengths);
  fields.unless(MaskRule{}, "mask", MaskText{}, problem.mask);
  auto& scales = problem.descales;
  fields.unless(Descale{}, "descale_q", ScaleText{"descale_q"}, scales.q);
  fields.unless(Descale{}, "descale_k", ScaleText{"descale_k"}, scales.k);
  fields.unless(Descale{}, "descale_v", ScaleText{"descale_v"}, scales.v);
  fields.unless(Descales{}.block, "descale_block", ScaleBlock{}, scales.block);
  fields.unless(std::int64_t{0}, "head_dim_v", Integer{1, kMaxHeadDim}, problem.head_dim_v);
  fields.unless(std::int64_t{0}, "page_size", Integer{kLeastPageSize, kMaxPageSize}, problem.page_size);
  fields.optional("kv_dtype", Named(parse_element_type), problem.kv_dtype);
  fields.unless(false, "shared_kv", Flag{}, problem.shared_kv);
  for (const ScoreModRow& row : score_mod_rows()) {
    double number = row.get(problem.score_mods);
    fields.unless(0.0, row.name, ScoreModNumber{row}, number);
    if constexpr (Fields::kReads) row.set(problem.score_mods, number);
  }
}

Json problem_schema() { return part_schema<AttentionProblem>(); }

Json problem_json(const AttentionProblem& problem) { return Part<AttentionProblem>{}.write(problem); }

AttentionProblem problem_from(const JsonField& field) {
  const AttentionProblem problem = Part<AttentionProblem>{}.read(field);
  try {
    validate(problem);
  } catch (const BadInput& error) {
    field.refuse(error.what());
  }
  return problem;
}

Direction DirectionName::read(const JsonField& field) const {
  for (const Direction direction : {Direction::forward, Direction::backward}) {
    if (field.text() == to_string(direction)) return direction;
  }
  field.refuse("must be forward or backward");
}

}  // namespace tilescope
