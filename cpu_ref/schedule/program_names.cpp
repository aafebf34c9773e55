// SPDX-License-Identifier: Apache-2.0
// What tensors, passes, orders and scans are called, and back.
#include <array>

#include "cpu_ref/schedule/tile_program.hpp"

namespace tilescope {
namespace {

constexpr std::array<std::string_view, kNumTensors> kTensorNames = {
    "q",  "k",  "v",         "out",      "lse",      "row_max",  "row_sum", "dout",  "delta",  "dq",
    "dk", "dv", "out_accum", "dq_accum", "dk_accum", "dv_accum", "scores",  "probs", "dprobs", "dscores"};

constexpr std::string_view kPassNames[] = {"forward", "delta",   "dkdv",    "dq",      "dkdvdq", "dqdkdv",
                                           "init",    "convert", "scores",  "softmax", "output", "dv",
                                           "dprobs",  "dscores", "dq_gemm", "dk_gemm"};

}  // namespace

std::string_view to_string(TensorName name) { return kTensorNames[static_cast<std::size_t>(name)]; }

std::string_view to_string(AccessKind kind) {
  constexpr std::string_view names[] = {"load", "store", "reduce"};
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
  constexpr std::string_view names[] = {"split", "fused", "rows", "joined", "ordered"};
  return names[static_cast<std::size_t>(order)];
}

BackwardOrder parse_backward_order(std::string_view text) {
  for (BackwardOrder order : {BackwardOrder::split, BackwardOrder::fused, BackwardOrder::rows,
                              BackwardOrder::joined, BackwardOrder::ordered}) {
    if (to_string(order) == text) return order;
  }
  throw BadInput("backward", std::string(text), "must be split, fused, rows, joined or ordered");
}

std::string_view to_string(TileOrder order) {
  constexpr std::string_view names[] = {"row-major", "longest-first", "head-swizzled"};
  return names[static_cast<std::size_t>(order)];
}

TileOrder parse_tile_order(std::string_view text) {
  for (TileOrder order : {TileOrder::row_major, TileOrder::longest_first, TileOrder::head_swizzled}) {
    if (to_string(order) == text) return order;
  }
  throw BadInput("order", std::string(text), "must be row-major, longest-first or head-swizzled");
}

std::string_view to_string(Scan scan) {
  constexpr std::string_view names[] = {"ascending", "descending", "sawtooth"};
  return names[static_cast<std::size_t>(scan)];
}

Scan parse_scan(std::string_view text) {
  for (Scan scan : {Scan::ascending, Scan::descending, Scan::sawtooth}) {
    if (to_string(scan) == text) return scan;
  }
  throw BadInput("scan", std::string(text), "must be ascending, descending or sawtooth");
}

}  // namespace tilescope
