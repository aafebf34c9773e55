// SPDX-License-Identifier: Apache-2.0
// The rows of gpu:decode's q tiles, of which both passes have the same.
#pragma once

#include "gpu/launch/kernel_arguments.hpp"
#include "gpu/primitives/common/work_item.cuh"

namespace tilescope {

/// What the passes take beside the common arguments.
struct DecodeArguments {
  SplitKeys splits;
  int packed_heads = 1;  // query heads whose rows make one head of q tiles
  int batch = 1;
  int columns = 0;  // of O
};

/// The rows of one q tile: those of several query heads are packed, one head after the other.
struct DecodeRows {
  int batch, first_head, seqlen_q;
  int first;  // of the tile, among those of the packed heads
  int count;  // from there on, in this tile and later ones

  __device__ DecodeRows(const KernelArguments& args, const DecodeArguments& decode, const CtaWork& work,
                        int block_m)
      : batch(work.batch),
        first_head(work.first_head * decode.packed_heads),
        seqlen_q(args.band.seqlen_q),
        first(work.first_block * block_m),
        count(decode.packed_heads * seqlen_q - first) {}

  /// Those from one of the tile's on.
  __device__ DecodeRows from(int row) const {
    DecodeRows rows = *this;
    rows.first += row;
    rows.count -= row;
    return rows;
  }
  __device__ bool has(int row) const { return row < count; }
  __device__ int query(int row) const { return (first + row) % seqlen_q; }
  __device__ int head(int row) const { return first_head + (first + row) / seqlen_q; }
  template <typename Element>
  __device__ Element* at(const DeviceTensor& tensor, int row) const {
    return tensor.row<Element>(batch, head(row), query(row));
  }
  /// The same in a split's partial result; splits lie one after the other.
  __device__ float* at(const DeviceTensor& partial, const DecodeArguments& decode, int split, int row) const {
    return partial.row<float>(split * decode.batch + batch, head(row), query(row));
  }
};

__device__ inline CtaWork decode_work(const KernelArguments& args, const DecodeArguments& decode) {
  return cta_work<true>(args.grid, {args.heads / decode.packed_heads, args.heads_kv}, CtaHeads::query, 1,
                        work_item());
}

}  // namespace tilescope
