// SPDX-License-Identifier: Apache-2.0
// What a tile program is chosen from, by name: passes, algorithms, orders, ways to sum. Whoever parses a name
// throws BadInput for another.
#pragma once

#include <cstdint>
#include <string_view>

#include "cpu_ref/schedule/tile_schedule.hpp"

namespace tilescope {

enum class AccessKind : std::uint8_t {
  load,
  store,
  reduce,
  store_then_reduce,  // a store by whoever comes to the tile first, a reduction by the others
};
std::string_view to_string(AccessKind kind);
/// Whether some CTAs add to what is there.
constexpr bool reduces(AccessKind kind) {
  return kind == AccessKind::reduce || kind == AccessKind::store_then_reduce;
}

enum class PassName : std::uint8_t {
  // flash1, flash2
  forward,
  delta,
  dkdv,
  dq,
  dkdvdq,  // owns kv tiles: dK and dV on chip, dQ reduced
  dqdkdv,  // owns q tiles: dQ on chip, dK and dV reduced
  init,
  convert,
  // standard (Algorithms 0 and 3, one pass a line)
  scores,
  softmax,
  output,
  dv,
  dprobs,
  dscores,
  dq_gemm,
  dk_gemm,
  // flash2, where the keys are split
  combine,
};
inline constexpr int kNumPasses = static_cast<int>(PassName::combine) + 1;
std::string_view to_string(PassName pass);
PassName parse_pass_name(std::string_view text);

/// How a forward pass sums its products of fp8. Those of other types are summed in fp32.
enum class Fp8Sums : std::uint8_t {
  fp32,
  two_level,  // those of a tile as Hopper's tensor cores do (fp8_matmul.hpp), P V of the tiles in fp32
  fast,       // all as the tensor cores do
};
std::string_view to_string(Fp8Sums sums);
Fp8Sums parse_fp8_sums(std::string_view text);

/// How a forward pass departs from what its kernel does by itself, so that the worth of one technique is seen
/// with all else the same.
enum class Variant : std::uint8_t {
  own,
  no_ping_pong,   // warpgroups issue products as they come to them, not in turn
  no_overlap,     // a softmax begins when all products are done that its own warpgroup has issued
  serial,         // both of these
  unspecialised,  // one of the threads that compute loads as well
  normalised,     // O is normalised at each step, as FlashAttention-1 does, not once at the end
};
std::string_view to_string(Variant variant);
Variant parse_variant(std::string_view text);

/// How the sums of dQ begin that kv tiles add to in memory. Where one of them stores, nobody clears the sums:
/// the delta pass clears flags instead, in dq, which convert overwrites, and convert reads no sums of q tiles
/// that see no key.
enum class DqStart : std::uint8_t {
  cleared,   // as zeros, in the delta pass
  in_order,  // the first of a q tile's kv tiles stores its part and says so by flags, which the others wait
             // for
  claimed,   // whichever comes first does: it claims the q tile by flags. In whatever order CTAs run, nobody
             // waits for one that has not begun
};
std::string_view to_string(DqStart start);
DqStart parse_dq_start(std::string_view text);

enum class Algorithm : std::uint8_t { standard, flash1, flash2 };
std::string_view to_string(Algorithm algorithm);
Algorithm parse_algorithm(std::string_view text);

/// The orders of FlashAttention-2's backward pass.
enum class BackwardOrder : std::uint8_t {
  split,          // delta, dkdv, dq: seven matmuls, no reductions, deterministic on any machine
  fused,          // delta, dkdvdq (dQ reduced into fp32), convert: five matmuls
  q_outer,        // init, dqdkdv (dK and dV reduced into fp32), convert
  single_launch,  // the passes of split, with dkdv and dq in one launch: a CTA has keys, and then queries
  ordered,        // as fused, but sums are added in a fixed order: deterministic on any machine
};
std::string_view to_string(BackwardOrder order);
BackwardOrder parse_backward_order(std::string_view text);

std::string_view to_string(TileOrder order);  // "row-major", "longest-first", "head-swizzled"
TileOrder parse_tile_order(std::string_view text);
std::string_view to_string(Scan scan);  // "ascending", "descending", "sawtooth"
Scan parse_scan(std::string_view text);

}  // namespace tilescope
