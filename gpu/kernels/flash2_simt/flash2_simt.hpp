// SPDX-License-Identifier: Apache-2.0
// gpu:flash2-simt, the third rung: its tile shapes, and what they take of an SM. Plain C++, for the registry,
// the launches and the tests alike.
#pragma once

#include "gpu/primitives/cuda_cores/cta_shape.hpp"
#include "gpu/primitives/cuda_cores/layouts.hpp"
#include "gpu/registry/gpu_kernel.hpp"
#include "gpu/registry/head_dim.hpp"

namespace tilescope {

struct Flash2Simt {
  static constexpr std::string_view name = "gpu:flash2-simt";
  static constexpr std::string_view summary =
      "FlashAttention-2 on CUDA cores, fp32: q outer, four warps that split the rows of Q";
  static constexpr Algorithm algorithm = Algorithm::flash2;
  static constexpr MathUnit math_unit = MathUnit::cuda_cores;
  static constexpr int rung = 3;
  static constexpr FeatureSet kFeatures{Feature::fp32,          Feature::causal,   Feature::window,
                                        Feature::grouped_heads, Feature::dropout,  Feature::signed_scale,
                                        Feature::key_padding,   Feature::bnhd_rows};
  static constexpr Capabilities can{
      .forward = kFeatures, .backward = kFeatures, .head_dims = kCompiledHeadDims};
  static constexpr ChipRange chips{.first = 80};
  static std::vector<BackwardOrder> backward_orders();
  static ProgramOptions default_options(const AttentionProblem&);
  static std::vector<Boxes> boxes(const TileProgram&);
  static LaunchShape launch_shape(const TileProgram&);
  static void launch(const TileProgram&, const KernelArguments&, CUstream_st*);

  /// A row of the tiles in shared memory has groups of eight 16-byte chunks, so 32 columns at least.
  static constexpr int padded_dim(std::int64_t head_dim) {
    return padded_head_dim(head_dim) < 32 ? 32 : padded_head_dim(head_dim);
  }

  struct Tiles {
    TileShape forward, backward, dq;
  };
  /// The tile shapes of each pass. Forward, two CTAs share an SM of sm_90 (227 KiB for them) up to d = 192,
  /// so that one computes while the other waits at a barrier. Backward, a CTA is eight warps and takes what
  /// sm_80 has, 163 KiB.
  static constexpr Tiles tiles(int padded_dim) {
    switch (padded_dim) {
      case 32:
      case 64:
        // Forward: 8 x 8 scores a thread, 16 shared loads feed 256 multiply-adds; 96 KiB at d = 64.
        // Backward: Q, dO 32, K, V 64 and P, dS 64 KiB at d = 64.
        return {.forward = {128, 64}, .backward = {64, 128}, .dq = {64, 128}};
      case 96:
        // Forward: Q 48, K and V 24, P 16 KiB. Backward: 128.5 KiB.
        return {.forward = {128, 32}, .backward = {64, 64}, .dq = {64, 64}};
      case 128:
        // Forward: Q 64, K and V 32, P 16: 112 KiB. Backward: Q, dO, K, V 128 and P, dS 32 KiB.
        return {.forward = {128, 32}, .backward = {64, 64}, .dq = {64, 64}};
      case 192:
        // Forward: O alone is 96 registers a thread. Backward: Q, dO 48, K, V 96 and P, dS 16 KiB.
        return {.forward = {64, 32}, .backward = {32, 64}, .dq = {32, 64}};
      default:
        // Forward: O alone is 128 registers a thread. Backward: Q, dO, K, V 128 and P, dS 8 KiB.
        return {.forward = {64, 32}, .backward = {32, 32}, .dq = {32, 32}};
    }
  }

  static constexpr int forward_ctas_per_sm(int padded_dim) { return padded_dim <= 192 ? 2 : 1; }

  static constexpr cuda_cores::ForwardLayout forward_layout(TileShape tile, int padded_dim) {
    return {tile, padded_dim};
  }
  /// With LSE and delta.
  static constexpr cuda_cores::BackwardLayout backward_layout(TileShape tile, int padded_dim) {
    return {tile, padded_dim, 2};
  }
};

static_assert([] {
  for (int head_dim : kCompiledHeadDims) {
    const int dim = Flash2Simt::padded_dim(head_dim);
    const Flash2Simt::Tiles tiles = Flash2Simt::tiles(dim);
    if (Flash2Simt::forward_layout(tiles.forward, dim).bytes() > cuda_cores::kMaxSharedBytes ||
        Flash2Simt::backward_layout(tiles.backward, dim).bytes() > cuda_cores::kMaxSharedBytes ||
        Flash2Simt::backward_layout(tiles.dq, dim).bytes() > cuda_cores::kMaxSharedBytes) {
      return false;
    }
  }
  return true;
}());

}  // namespace tilescope
