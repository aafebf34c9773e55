// SPDX-License-Identifier: Apache-2.0
// The lists of fields of an explanation: where the bytes of a kernel come from, for readers of the record
// that cannot work it out again.
#pragma once

#include <fmt/format.h>

#include <optional>
#include <string_view>

#include "analysis/explain/answer.hpp"
#include "analysis/explain/program_fit.hpp"
#include "profiler/records/field_list.hpp"
#include "profiler/records/field_schema.hpp"

namespace tilescope {

struct Explanation {
  KernelFit fit;
  LaunchAnswer answer;
};

/// [block_m, block_n]
struct TilePair {
  static Json schema() { return array_schema(schema_of(Integer{1}), 2); }
  Json write(TileShape tile) const { return {tile.block_m, tile.block_n}; }
};

struct AgreementName {
  static constexpr std::string_view kNames[] = {"explained", "not certain", "reads",
                                                "writes",    "unexplained", "no attention"};
  static Json schema() { return {{"enum", kNames}}; }
  Json write(Agreement agreement) const { return kNames[static_cast<std::size_t>(agreement)]; }
};

struct BoundaryName {
  static Json schema() { return {{"enum", {to_string(Boundary::sm_l2), to_string(Boundary::dram)}}}; }
  Json write(Boundary boundary) const { return to_string(boundary); }
};

template <typename Fields>
void list(Fields& fields, Of<Fields, ReadWriteBytes>& bytes) {
  fields.required("read_bytes", kCount, bytes.read_bytes);
  fields.required("write_bytes", kCount, bytes.write_bytes);
}

/// A cause is of one side: the key of its bytes says which.
template <typename Fields, typename Cause>
void list_bytes_of(Fields& fields, const Cause& cause) {
  const std::optional<std::int64_t> bytes = cause.bytes, none;
  fields.optional("read_bytes", Integer{}, cause.reads ? bytes : none);
  fields.optional("write_bytes", Integer{}, cause.reads ? none : bytes);
}

template <typename Fields>
void list(Fields& fields, const NamedCause& cause) {
  fields.required("name", Text{}, cause.name);
  fields.required("metric", Text{}, cause.metric);
  list_bytes_of(fields, cause);
}

template <typename Fields>
void list(Fields& fields, const AnswerCause& cause) {
  fields.required("name", Text{}, cause.name);
  fields.required("boundary", BoundaryName{}, cause.boundary);
  list_bytes_of(fields, cause);
  fields.required("source", Text{}, cause.source);
}

template <typename Fields>
void list(Fields& fields, const ProgramFit& program) {
  fields.required("program", Text{}, program.name);
  fields.required("convention", Text{}, program.convention);
  fields.required("sm_l2_read_bytes", kCount, program.bytes.read_bytes);
  fields.required("sm_l2_write_bytes", kCount, program.bytes.write_bytes);
  fields.required("grid_agrees", Flag{}, program.grid_agrees);
  fields.required("posterior", Within{.least = 0}, program.posterior);
  fields.items("tiles", TilePair{}, program.tiles);
}

template <typename Fields>
void list(Fields& fields, const OtherHeads& other) {
  fields.required("heads_over_batch", Integer{1}, other.heads);
  fields.required("program", Part<ProgramFit>{}, other.program);
  fields.required("read_residual_bytes", Integer{}, other.read_residual_bytes);
  fields.required("write_residual_bytes", Integer{}, other.write_residual_bytes);
}

template <typename Fields>
void list(Fields& fields, const NextStep& step) {
  fields.required("action", Text{}, step.action);
  fields.required("boundary", BoundaryName{}, step.boundary);
  fields.required("bytes_now", kCount, step.bytes_now);
  fields.required("bytes_then", kCount, step.bytes_then);
  fields.required("tried", Text{}, step.tried);
}

/// What a kernel must move, and whose operands say so.
struct MustBytes {
  ReadWriteBytes bytes;
  std::string from;
};

template <typename Fields>
void list(Fields& fields, const MustBytes& must) {
  list(fields, must.bytes);
  fields.required("from", Text{}, must.from);
}

/// A number for each boundary, that of DRAM where it was counted.
template <typename T>
struct AtBoundaries {
  std::optional<T> sm_l2, dram;
};

template <typename Fields>
void list(Fields& fields, const AtBoundaries<ReadWriteBytes>& moved) {
  fields.optional("sm_l2", Part<ReadWriteBytes>{}, moved.sm_l2);
  fields.optional("dram", Part<ReadWriteBytes>{}, moved.dram);
}

template <typename Fields>
void list(Fields& fields, const AtBoundaries<double>& multiple) {
  fields.optional("sm_l2", Distance{}, multiple.sm_l2);
  fields.optional("dram", Distance{}, multiple.dram);
}

template <typename Fields>
void list(Fields& fields, const LaunchAnswer& answer) {
  const auto must = answer.must ? std::optional(MustBytes{*answer.must, answer.must_from}) : std::nullopt;
  const AtBoundaries<double> multiple{answer.multiple(Boundary::sm_l2), answer.multiple(Boundary::dram)};
  fields.required("verdict", Text{}, answer.verdict);
  fields.optional("must", Part<MustBytes>{}, must);
  fields.required("moved", Part<AtBoundaries<ReadWriteBytes>>{},
                  AtBoundaries<ReadWriteBytes>{answer.sm_l2, answer.dram});
  fields.optional("multiple", Part<AtBoundaries<double>>{},
                  multiple.sm_l2 || multiple.dram ? std::optional(multiple) : std::nullopt);
  fields.items("causes", Part<AnswerCause>{}, answer.causes);
  fields.items("next_steps", Part<NextStep>{}, answer.next_steps);
}

template <typename Fields>
void list(Fields& fields, const Explanation& explanation) {
  const KernelFit& fit = explanation.fit;
  fields.required("agreement", AgreementName{}, fit.agreement);
  fields.required("read_residual_bytes", Integer{}, fit.read_residual_bytes);
  fields.required("write_residual_bytes", Integer{}, fit.write_residual_bytes);
  fields.items("causes", Part<NamedCause>{}, fit.causes);
  fields.items("programs", Part<ProgramFit>{}, fit.programs);
  fields.items("hints", Text{}, fit.hints);
  fields.required("answer", Part<LaunchAnswer>{}, explanation.answer);
  fields.optional("by_chance", Within{.least = 0}, fit.chance);
  fields.optional("other_heads", Part<OtherHeads>{}, fit.other_heads);
}

}  // namespace tilescope
