// SPDX-License-Identifier: Apache-2.0
// What tensors, passes, orders and scans are called, and back: names in the order of the values.
#include "cpu_ref/schedule/program_names.hpp"

#include <array>

#include "common/nearest_names.hpp"
#include "cpu_ref/schedule/tensors.hpp"

namespace tilescope {
namespace {

constexpr std::array<std::string_view, kNumTensors> kTensors = {
    "q",      "k",     "v",      "out",     "lse",         "row_max",     "row_sum",      "dout",
    "delta",  "dq",    "dk",     "dv",      "out_accum",   "dq_accum",    "dk_accum",     "dv_accum",
    "scores", "probs", "dprobs", "dscores", "out_partial", "lse_partial", "alibi_slopes", "sink",
    "dsink"};
constexpr std::array<std::string_view, kNumPasses> kPasses = {
    "forward", "delta",  "dkdv", "dq",     "dkdvdq",  "dqdkdv",  "init",    "convert", "scores",
    "softmax", "output", "dv",   "dprobs", "dscores", "dq_gemm", "dk_gemm", "combine"};
constexpr std::string_view kAccesses[] = {"load", "store", "reduce", "first store, then reduce"};
constexpr std::string_view kAlgorithms[] = {"standard", "flash1", "flash2"};
constexpr std::string_view kBackwardOrders[] = {"split", "fused", "q-outer", "single-launch", "ordered"};
constexpr std::string_view kFp8Sums[] = {"fp32", "two-level", "fast"};
constexpr std::string_view kVariants[] = {"own",    "no-ping-pong",  "no-overlap",
                                          "serial", "unspecialised", "normalised"};
constexpr std::string_view kDqStarts[] = {"cleared", "in-order", "claimed"};
constexpr std::string_view kTileOrders[] = {"row-major", "longest-first", "head-swizzled"};
constexpr std::string_view kScans[] = {"ascending", "descending", "sawtooth"};

}  // namespace

std::string_view to_string(TensorName name) { return kTensors[static_cast<std::size_t>(name)]; }

std::string_view to_string(AccessKind kind) { return kAccesses[static_cast<std::size_t>(kind)]; }

std::string_view to_string(PassName pass) { return kPasses[static_cast<std::size_t>(pass)]; }
PassName parse_pass_name(std::string_view text) { return value_named<PassName>("pass", text, kPasses); }

std::string_view to_string(Algorithm algorithm) { return kAlgorithms[static_cast<std::size_t>(algorithm)]; }
Algorithm parse_algorithm(std::string_view text) {
  return value_named<Algorithm>("algorithm", text, kAlgorithms);
}

std::string_view to_string(BackwardOrder order) { return kBackwardOrders[static_cast<std::size_t>(order)]; }
BackwardOrder parse_backward_order(std::string_view text) {
  return value_named<BackwardOrder>("backward", text, kBackwardOrders);
}

std::string_view to_string(Fp8Sums sums) { return kFp8Sums[static_cast<std::size_t>(sums)]; }
Fp8Sums parse_fp8_sums(std::string_view text) { return value_named<Fp8Sums>("fp8-sums", text, kFp8Sums); }

std::string_view to_string(Variant variant) { return kVariants[static_cast<std::size_t>(variant)]; }
Variant parse_variant(std::string_view text) { return value_named<Variant>("variant", text, kVariants); }

std::string_view to_string(DqStart start) { return kDqStarts[static_cast<std::size_t>(start)]; }
DqStart parse_dq_start(std::string_view text) { return value_named<DqStart>("dq-start", text, kDqStarts); }

std::string_view to_string(TileOrder order) { return kTileOrders[static_cast<std::size_t>(order)]; }
TileOrder parse_tile_order(std::string_view text) {
  return value_named<TileOrder>("order", text, kTileOrders);
}

std::string_view to_string(Scan scan) { return kScans[static_cast<std::size_t>(scan)]; }
Scan parse_scan(std::string_view text) { return value_named<Scan>("scan", text, kScans); }

}  // namespace tilescope
