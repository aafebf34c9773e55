// SPDX-License-Identifier: Apache-2.0
// What several kinds of records hold: a problem, a direction, a commit, groups of SMs; and a record as a
// whole.
#pragma once

#include "analysis/records/run_record.hpp"
#include "cpu_ref/schedule/problem.hpp"
#include "profiler/calibration/l2/l2_partitions.hpp"
#include "profiler/records/field_list.hpp"

namespace tilescope {

Json problem_schema();
Json problem_json(const AttentionProblem& problem);
/// @throws BadInput naming the field, for a problem that validate() refuses too
AttentionProblem problem_from(const JsonField& field);

struct ProblemFields {
  static Json schema() { return problem_schema(); }
  Json write(const AttentionProblem& problem) const { return problem_json(problem); }
  AttentionProblem read(const JsonField& field) const { return problem_from(field); }
};

/// Of steps; one beyond these is no measurement, and no replay's clock could hold it.
struct StepRate {
  static Json schema() { return {{"type", "number"}, {"minimum", kLeastRate}, {"maximum", 1 / kLeastRate}}; }
  Json write(double rate) const { return rate; }
  double read(const JsonField& field) const {
    const double rate = field.positive();
    if (rate < kLeastRate || rate > 1 / kLeastRate) field.refuse("must lie in 0.001 ... 1000");
    return rate;
  }
};

/// forward or backward
struct DirectionName {
  static Json schema() { return {{"enum", {"forward", "backward"}}}; }
  Json write(Direction direction) const { return to_string(direction); }
  Direction read(const JsonField& field) const;
};

template <typename Fields>
void list(Fields& fields, Of<Fields, GitState>& git) {
  fields.required("sha", Text{}, git.sha);
  fields.optional("dirty", Flag{}, git.dirty);
}

template <typename Fields>
void list(Fields& fields, Of<Fields, SmGroup>& group) {
  fields.required("sms", Integer{1, 1 << 16}, group.sms);
  fields.required("partition", Integer{0, 63}, group.partition);
}

template <typename Fields>
void list(Fields& fields, Of<Fields, TileShape>& tile) {
  constexpr Integer kRows{1, std::numeric_limits<int>::max()};
  fields.required("block_m", kRows, tile.block_m);
  fields.required("block_n", kRows, tile.block_n);
}

}  // namespace tilescope
