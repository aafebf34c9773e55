// SPDX-License-Identifier: Apache-2.0
// What tensors, passes, orders and scans are called, and back.
#include <array>
#include <initializer_list>
#include <string>

#include "cpu_ref/schedule/tile_program.hpp"

namespace tilescope {
namespace {

constexpr std::array<std::string_view, kNumTensors> kTensorNames = {
    "q",      "k",     "v",      "out",     "lse",         "row_max",     "row_sum",      "dout",
    "delta",  "dq",    "dk",     "dv",      "out_accum",   "dq_accum",    "dk_accum",     "dv_accum",
    "scores", "probs", "dprobs", "dscores", "out_partial", "lse_partial", "alibi_slopes", "sink",
    "dsink"};

constexpr std::string_view kPassNames[] = {"forward", "delta",   "dkdv",    "dq",      "dkdvdq", "dqdkdv",
                                           "init",    "convert", "scores",  "softmax", "output", "dv",
                                           "dprobs",  "dscores", "dq_gemm", "dk_gemm", "combine"};

/// Which of the values has the name `text`.
/// @throws BadInput  "FIELD = TEXT: must be ALLOWED"
template <typename Value>
Value value_named(std::string_view text, std::initializer_list<Value> values, const char* field,
                  const char* allowed) {
  for (const Value value : values) {
    if (to_string(value) == text) return value;
  }
  throw BadInput(field, std::string(text), std::string("must be ") + allowed);
}

}  // namespace

std::string_view to_string(TensorName name) { return kTensorNames[static_cast<std::size_t>(name)]; }

std::string_view to_string(AccessKind kind) {
  constexpr std::string_view names[] = {"load", "store", "reduce", "first store, then reduce"};
  return names[static_cast<std::size_t>(kind)];
}

std::string_view to_string(PassName pass) { return kPassNames[static_cast<std::size_t>(pass)]; }

PassName parse_pass_name(std::string_view text) {
  for (std::size_t i = 0; i < std::size(kPassNames); ++i) {
    if (kPassNames[i] == text) return static_cast<PassName>(i);
  }
  throw BadInput("pass", std::string(text), "not the name of a pass");
}

std::string_view to_string(Algorithm algorithm) {
  constexpr std::string_view names[] = {"standard", "flash1", "flash2"};
  return names[static_cast<std::size_t>(algorithm)];
}

std::string_view to_string(BackwardOrder order) {
  constexpr std::string_view names[] = {"split", "fused", "q-outer", "single-launch", "ordered"};
  return names[static_cast<std::size_t>(order)];
}

BackwardOrder parse_backward_order(std::string_view text) {
  using enum BackwardOrder;
  return value_named(text, {split, fused, q_outer, single_launch, ordered}, "backward",
                     "split, fused, q-outer, single-launch or ordered");
}

std::string_view to_string(Fp8Sums sums) {
  constexpr std::string_view names[] = {"fp32", "two-level", "fast"};
  return names[static_cast<std::size_t>(sums)];
}

Fp8Sums parse_fp8_sums(std::string_view text) {
  using enum Fp8Sums;
  return value_named(text, {fp32, two_level, fast}, "fp8-sums", "fp32, two-level or fast");
}

std::string_view to_string(Variant variant) {
  constexpr std::string_view names[] = {"own",    "no-ping-pong",  "no-overlap",
                                        "serial", "unspecialised", "normalised"};
  return names[static_cast<std::size_t>(variant)];
}

Variant parse_variant(std::string_view text) {
  using enum Variant;
  return value_named(text, {own, no_ping_pong, no_overlap, serial, unspecialised, normalised}, "variant",
                     "own, no-ping-pong, no-overlap, serial, unspecialised or normalised");
}

std::string_view to_string(DqStart start) {
  constexpr std::string_view names[] = {"cleared", "in-order", "claimed"};
  return names[static_cast<std::size_t>(start)];
}

DqStart parse_dq_start(std::string_view text) {
  using enum DqStart;
  return value_named(text, {cleared, in_order, claimed}, "dq-start", "cleared, in-order or claimed");
}

std::string_view to_string(TileOrder order) {
  constexpr std::string_view names[] = {"row-major", "longest-first", "head-swizzled"};
  return names[static_cast<std::size_t>(order)];
}

TileOrder parse_tile_order(std::string_view text) {
  using enum TileOrder;
  return value_named(text, {row_major, longest_first, head_swizzled}, "order",
                     "row-major, longest-first or head-swizzled");
}

std::string_view to_string(Scan scan) {
  constexpr std::string_view names[] = {"ascending", "descending", "sawtooth"};
  return names[static_cast<std::size_t>(scan)];
}

Scan parse_scan(std::string_view text) {
  using enum Scan;
  return value_named(text, {ascending, descending, sawtooth}, "scan", "ascending, descending or sawtooth");
}

}  // namespace tilescope
