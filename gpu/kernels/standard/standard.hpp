// SPDX-License-Identifier: Apache-2.0
// gpu:standard, the first rung: its tile shapes, and what they take of an SM. Plain C++.
#pragma once

#include "gpu/primitives/cuda_cores/cta_shape.hpp"
#include "gpu/primitives/cuda_cores/early_rung.hpp"
#include "gpu/primitives/cuda_cores/layouts.hpp"

namespace tilescope {

struct Standard : EarlyRung {
  static constexpr std::string_view name = "gpu:standard";
  static constexpr std::string_view summary =
      "attention with S and P in device memory, the papers' baseline, on CUDA cores";
  static constexpr Algorithm algorithm = Algorithm::standard;
  static constexpr int rung = 1;
  static ProgramOptions default_options(const AttentionProblem&);
  static std::vector<Boxes> boxes(const TileProgram&);
  static LaunchShape launch_shape(const TileProgram&);
  static void launch(const TileProgram&, const KernelArguments&, CUstream_st*);

  /// The tile of all passes. Two CTAs fit an SM of sm_90.
  static constexpr TileShape tile(int padded_dim) {
    if (padded_dim == 64) return {128, 64};  // Q, K and S: 80 KiB
    if (padded_dim == 128) return {64, 64};  // 80 KiB
    return {64, 32};                         // 104 KiB
  }
  /// Shared memory of a product, in floats: a tile of queries' rows, one of keys' rows (one of the two is not
  /// used where the N x N matrix is an operand), and one of that matrix.
  struct ProductLayout {
    TileShape tile;
    int dim = 0;

    constexpr int queries() const { return 0; }
    constexpr int keys() const { return tile.block_m * dim; }
    constexpr int matrix() const { return keys() + tile.block_n * dim; }
    constexpr int end() const { return matrix() + tile.block_m * tile.block_n; }
    constexpr int bytes() const { return 4 * end(); }
  };
  static constexpr int kProductCtasPerSm = 2;

  /// Threads that share a row of the N x N matrices in the passes softmax and dscores.
  static constexpr int kRowThreads = 256;
  /// Shared memory of such a pass, in floats: one value a warp, and `strips` rows.
  struct RowLayout {
    std::int64_t row = 0;
    int strips = 0;

    TILESCOPE_HOST_DEVICE static constexpr int warp_values() { return 0; }
    TILESCOPE_HOST_DEVICE constexpr std::int64_t strip(int index) const {
      return kRowThreads / 32 + index * row;
    }
    constexpr std::int64_t end() const { return strip(strips); }
    constexpr std::int64_t bytes() const { return 4 * end(); }
  };
  /// Rows that such a pass keeps on chip between its two phases: S, or P and dP.
  static constexpr int strips(PassName pass) { return pass == PassName::softmax ? 1 : 2; }
  /// Whether rows of seqlen_k fp32 values fit into shared memory; longer ones are read again from slow
  /// memory: S for its maximum, its sum and P, P and dP for delta and dS. 160 of sm_80's 163 KiB: 40960 keys
  /// in softmax, half in dscores.
  static constexpr bool row_fits(PassName pass, std::int64_t seqlen_k) {
    return strips(pass) * 4 * padded_row(seqlen_k) <= 160 * 1024;
  }
  /// Times that such a pass reads a row.
  static constexpr int row_reads(PassName pass, std::int64_t seqlen_k) {
    return row_fits(pass, seqlen_k) ? 1 : pass == PassName::softmax ? 3 : 2;
  }
  /// A row has what fills its last sector in slow memory, in 16 bits: 16 elements.
  TILESCOPE_HOST_DEVICE static constexpr std::int64_t padded_row(std::int64_t seqlen_k) {
    return (seqlen_k + 15) / 16 * 16;
  }
};

static_assert([] {
  for (int dim : {64, 128, 256}) {
    if (Standard::ProductLayout{Standard::tile(dim), dim}.bytes() > cuda_cores::kMaxSharedBytes) return false;
  }
  return true;
}());

}  // namespace tilescope
