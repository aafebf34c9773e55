// SPDX-License-Identifier: Apache-2.0
// Tiles between global and shared memory: cp.async one way, coalesced 16-byte stores the other.
#pragma once

#include <cstdint>
#include <type_traits>

#include "gpu/primitives/common/cp_async.cuh"
#include "gpu/primitives/sm80/shared_tile.cuh"

namespace tilescope::sm80 {

/// One head of a 16-bit (B, H, N, D) tensor in global memory.
struct GlobalRows {
  std::uint16_t* row0;
  std::int64_t row_stride;  // [elements]
  int rows;
  int cols;

  /// Whether they lie as RowAccess::chunks says.
  __device__ bool in_chunks() const {
    return ((reinterpret_cast<std::uintptr_t>(row0) / 2 | static_cast<std::uintptr_t>(row_stride) |
             static_cast<std::uintptr_t>(cols)) &
            7) == 0;
  }
};

/// The same, of which a tile takes the rows from `first` on.
struct GlobalRowsFrom : GlobalRows {
  int first;
};

/// How rows lie in global memory. In `chunks` they start at 16-byte boundaries and have a multiple of 8
/// elements; `elements` takes any row, at the speed of single loads; `either` looks which they are.
enum class RowAccess : std::uint8_t { chunks, elements, either };

/// Of a row's 16-byte chunks those that threads share out at once: as many as divide the threads, the first
/// time all where they do.
constexpr int chunks_at_once(int chunks, int threads) {
  int at_once = chunks;
  while (threads % at_once != 0) --at_once;
  return at_once;
}

/// Starts copying the kRows x kCols tile whose first row is `first_row`: each thread takes one 16-byte chunk
/// of every kRowStep-th row. Beyond the rows and columns of the source the tile is zero. The caller commits
/// and waits.
/// @tparam Source  GlobalRows or GlobalRowsFrom
/// @tparam kFirstChunk  of a row, from which on chunks are copied
template <RowAccess kAccess, int kRows, int kThreads, int kFirstChunk = 0, int kCols, typename Source>
__device__ __forceinline__ void load_tile(SharedTile<kCols> tile, const Source& source, int first_row,
                                          int thread) {
  if constexpr (kAccess == RowAccess::either) {
    if (source.in_chunks()) {
      load_tile<RowAccess::chunks, kRows, kThreads, kFirstChunk>(tile, source, first_row, thread);
    } else {
      load_tile<RowAccess::elements, kRows, kThreads, kFirstChunk>(tile, source, first_row, thread);
    }
    return;
  }
  constexpr int kChunks = chunks_at_once(SharedTile<kCols>::kChunks - kFirstChunk, kThreads);
  constexpr int kRowStep = kThreads / kChunks;
  static_assert(kRows % kRowStep == 0);
  if constexpr (kFirstChunk + kChunks < SharedTile<kCols>::kChunks) {
    load_tile<kAccess, kRows, kThreads, kFirstChunk + kChunks>(tile, source, first_row, thread);
  }
  // Hidden from the optimiser, which would carry this thread's place in registers through the caller's loop,
  // where they are dearer than the few instructions that find it again.
  asm volatile("" : "+r"(thread));
  const int row = thread / kChunks;
  const int chunk = kFirstChunk + thread % kChunks;
  const int rows = chunk * 8 < source.cols ? source.rows - first_row - row : 0;
  const auto has = [&](int i) {
    if constexpr (std::is_same_v<Source, GlobalRowsFrom>)
      return i < rows && first_row + row + i >= source.first;
    return i < rows;
  };
  const std::uint16_t* from =
      source.row0 + first_row * source.row_stride + (row * static_cast<int>(source.row_stride) + chunk * 8);
  if constexpr (kAccess == RowAccess::chunks) {
    // cp.async does not touch the source where it writes zeros, so the address may lie beyond the tensor.
    const int step = static_cast<int>(kRowStep * source.row_stride);
#pragma unroll
    for (int i = 0; i < kRows; i += kRowStep) {
      copy_async_16(tile.chunk_address(row + i, chunk), from, has(i));
      from += step;
    }
  } else {
#pragma unroll 1
    for (int i = 0; i < kRows; i += kRowStep) {
      std::uint32_t words[4] = {0, 0, 0, 0};
#pragma unroll
      for (int e = 0; e < 8; ++e) {
        if (has(i) && chunk * 8 + e < source.cols) words[e / 2] |= std::uint32_t{from[e]} << (e % 2 * 16);
      }
      store_shared(tile.chunk_address(row + i, chunk), make_uint4(words[0], words[1], words[2], words[3]));
      from += kRowStep * source.row_stride;
    }
  }
}

/// Writes the existing part of a kRows x kCols tile to rows from `first_row` on.
template <RowAccess kAccess, int kRows, int kThreads, int kFirstChunk = 0, int kCols>
__device__ __forceinline__ void store_tile(SharedTile<kCols> tile, const GlobalRows& destination,
                                           int first_row, int thread) {
  if constexpr (kAccess == RowAccess::either) {
    if (destination.in_chunks()) {
      store_tile<RowAccess::chunks, kRows, kThreads, kFirstChunk>(tile, destination, first_row, thread);
    } else {
      store_tile<RowAccess::elements, kRows, kThreads, kFirstChunk>(tile, destination, first_row, thread);
    }
    return;
  }
  constexpr int kChunks = chunks_at_once(SharedTile<kCols>::kChunks - kFirstChunk, kThreads);
  if constexpr (kFirstChunk + kChunks < SharedTile<kCols>::kChunks) {
    store_tile<kAccess, kRows, kThreads, kFirstChunk + kChunks>(tile, destination, first_row, thread);
  }
  const int chunk = kFirstChunk + thread % kChunks;
  if (chunk * 8 >= destination.cols) return;
  const int rows = min(kRows, destination.rows - first_row);
#pragma unroll 4
  for (int row = thread / kChunks; row < rows; row += kThreads / kChunks) {
    std::uint16_t* to = destination.row0 + (first_row + row) * destination.row_stride + chunk * 8;
    const uint4 value = load_shared(tile.chunk_address(row, chunk));
    if constexpr (kAccess == RowAccess::chunks) {
      *reinterpret_cast<uint4*>(to) = value;
    } else {
      const std::uint32_t words[4] = {value.x, value.y, value.z, value.w};
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        if (chunk * 8 + i < destination.cols)
          to[i] = static_cast<std::uint16_t>(words[i / 2] >> (i % 2 * 16));
      }
    }
  }
}

}  // namespace tilescope::sm80
