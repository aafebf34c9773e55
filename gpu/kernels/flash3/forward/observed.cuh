// SPDX-License-Identifier: Apache-2.0
// What observed instances of flash3's forward pass log. They run the steps that the others run: maxima are
// kept or raised, and tiles left out, as they are without a log, which notes both.
#pragma once

#include "gpu/kernels/flash3/forward/arguments.cuh"
#include "gpu/primitives/sm90/observe.cuh"

namespace tilescope::gpu::detail {

/// The entry of step `step` of the item that a consumer has; the first warpgroup opens all of an item.
template <typename Consumer>
__device__ __forceinline__ TileLogEntry open_entry(const Consumer& own, int step) {
  const Flash3Item& item = own.item;
  return TileLogEntry(own.args.log, step, item.batch(own.args), item.head, item.block, own.n_block(step),
                      item.index(), own.group == 0 && own.thread == 0);
}
/// Of interleaved heads, whose steps nobody replays, where all are, or the first one's.
template <typename Consumer>
__device__ __forceinline__ int rows_inside(const Consumer& own, const Flash3Item& of) {
  const int queries = own.args.band.seqlen_q - own.first_query(of);
  if constexpr (Consumer::kInterleaves) {
    return queries >= 64 >> own.args.head_bits ? 64 : queries;
  } else {
    return queries;
  }
}
template <typename Consumer>
__device__ __forceinline__ void log_scores(const Consumer& own, int step) {
  sm90::log_masked(open_entry(own, step), &DeviceTileState::scores, own.scores, rows_inside(own, own.item),
                   own.thread);
}
/// Maxima, sums and P after the softmax.
template <sm90::WgmmaType kType, typename Consumer>
__device__ __forceinline__ void log_softmax(const Consumer& own, int step) {
  const TileLogEntry entry(own.args.log, step, own.item.index());
  const int rows = rows_inside(own, own.item);
  sm90::log_maxima(entry, own.args.log, own.rows.max, own.first_row_of_log(), rows, own.thread);
  sm90::log_rows(entry, own.rows.max, own.rows.sum, rows, own.thread);
  if constexpr (kType == sm90::WgmmaType::fp16 || kType == sm90::WgmmaType::bf16) {
    sm90::log_pairs<kType>(entry, &DeviceTileState::probs, own.probs, rows, own.thread);
  } else {
    sm90::log_bytes<kType>(entry, &DeviceTileState::probs, own.probs, rows, own.thread);
  }
}
template <typename Consumer>
__device__ __forceinline__ void log_output(const Consumer& own, const Flash3Item& of, int step) {
  sm90::log_masked(TileLogEntry(own.args.log, step, of.index()), &DeviceTileState::accum, own.out,
                   rows_inside(own, of), own.thread);
}

/// The steps [begin, end) of the walk, which the warpgroup leaves out.
template <typename Consumer>
__device__ __forceinline__ void log_left_out(const Consumer& own, int begin, int end) {
  for (int step = begin; step < end; ++step) {
    sm90::log_left_out(open_entry(own, step), rows_inside(own, own.item), own.thread);
  }
}
/// Behind its last tile its rows stay as they are.
template <typename Consumer>
__device__ __forceinline__ void log_unchanged(const Consumer& own, const Flash3Item& of, int begin, int end) {
  for (int step = begin; step < end; ++step) {
    sm90::log_rows(TileLogEntry(own.args.log, step, of.index()), own.rows.max, own.rows.sum,
                   rows_inside(own, of), own.thread);
    log_output(own, of, step);
  }
}

}  // namespace tilescope::gpu::detail
