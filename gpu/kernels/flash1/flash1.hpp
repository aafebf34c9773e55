// SPDX-License-Identifier: Apache-2.0
// gpu:flash1, the second rung: its tile shapes, and what they take of an SM. Plain C++.
#pragma once

#include "gpu/primitives/cuda_cores/cta_shape.hpp"
#include "gpu/primitives/cuda_cores/early_rung.hpp"
#include "gpu/primitives/cuda_cores/layouts.hpp"

namespace tilescope {

struct Flash1 : EarlyRung {
  static constexpr std::string_view name = "gpu:flash1";
  static constexpr std::string_view summary =
      "FlashAttention on CUDA cores: kv outer, O, l and m through memory at every step, one CTA a head";
  static constexpr Algorithm algorithm = Algorithm::flash1;
  static constexpr int rung = 2;
  static ProgramOptions default_options(const AttentionProblem&);
  static std::vector<TileShape> tile_choices(const AttentionProblem&, PassName);
  static constexpr bool tiles_of_tuner = true;
  static LaunchShape launch_shape(const TileProgram&);
  static void launch(const TileProgram&, const KernelArguments&, CUstream_st*);

  struct PassShapes {
    TileShape forward, backward;
  };
  /// A head is one CTA, so an SM seldom has two to choose from: CTAs are eight warps, and tiles as large as
  /// sm_80's 163 KiB allow, for fewer trips of O, l and m (the paper's rule has the same aim:
  /// tile_program.hpp).
  static constexpr PassShapes shapes(int padded_dim) {
    if (padded_dim == 64) {
      return {.forward = {128, 128},   // Q, K, V 96 + P 64 KiB
              .backward = {64, 128}};  // K, V 64 + Q, dO 32 + P, dS 64 KiB
    }
    if (padded_dim == 128) {
      return {.forward = {128, 64},   // Q 64 + K, V 64 + P 32 KiB
              .backward = {64, 64}};  // Q, dO, K, V 128 + P, dS 32 KiB
    }
    return {.forward = {64, 32},    // Q 64 + K, V 64 + P 8 KiB
            .backward = {32, 32}};  // Q, dO, K, V 128 + P, dS 8 KiB
  }
  /// Other blocks, which show what more shared memory saves: at a head dimension of 64, in fp32 and fp16.
  static constexpr int kTunedDim = 64;
  static constexpr TileShape kTunedForward[] = {{64, 64}, {64, 128}, {64, 256}};
  static constexpr TileShape kTunedBackward[] = {{32, 32}, {64, 64}};

  /// Groups of four warps of the forward pass.
  static constexpr int kForwardGroups = 2;

  static constexpr int kForwardCtasPerSm = 1;

  /// With two shares of each row of O.
  static constexpr cuda_cores::ForwardLayout forward_layout(TileShape tile, int padded_dim) {
    return {tile, padded_dim, 2};
  }
  /// With m, delta and l.
  static constexpr cuda_cores::BackwardLayout backward_layout(TileShape tile, int padded_dim) {
    return {tile, padded_dim, 3};
  }
};

static_assert([] {
  for (int dim : {64, 128, 256}) {
    const Flash1::PassShapes tiles = Flash1::shapes(dim);
    if (Flash1::forward_layout(tiles.forward, dim).bytes() > cuda_cores::kMaxSharedBytes ||
        Flash1::backward_layout(tiles.backward, dim).bytes() > cuda_cores::kMaxSharedBytes) {
      return false;
    }
  }
  return true;
}());

}  // namespace tilescope
