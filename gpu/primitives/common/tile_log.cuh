// SPDX-License-Identifier: Apache-2.0
// How a kernel in observe mode tells which tile it has visited and what it held. Every thread adds its part;
// nothing is done where no log is given.
#pragma once

#include "gpu/launch/kernel_arguments.hpp"
#include "gpu/primitives/common/work_item.cuh"

namespace tilescope {

/// The next entry of a work item in the tile log.
class TileLogEntry {
 public:
  /// Opens the entry of a tile. Every thread of the CTA calls this once a visited tile, `index` counting up.
  /// @param item  the work item; left out by kernels with a CTA for each
  /// @param opens  of one thread of those that log
  __device__ TileLogEntry(const DeviceTileLog& log, int index, int batch, int head, int m_block, int n_block,
                          unsigned item, bool opens)
      : TileLogEntry(log, index, item) {
    if (state_ && opens) {
      state_->batch = batch;
      state_->head = head;
      state_->m_block = m_block;
      state_->n_block = n_block;
      log.visited[item] = index + 1;
    }
  }
  __device__ TileLogEntry(const DeviceTileLog& log, int index, int batch, int head, int m_block, int n_block)
      : TileLogEntry(log, index, batch, head, m_block, n_block, work_item(), threadIdx.x == 0) {}
  /// An entry that has been opened, or is being.
  __device__ TileLogEntry(const DeviceTileLog& log, int index, unsigned item) {
    if (log.states) state_ = log.states + static_cast<std::int64_t>(item) * log.capacity + index;
  }
  __device__ bool open() const { return state_ != nullptr; }
  /// Adds to one of the state's sums.
  __device__ void add(double DeviceTileState::*field, double value) const {
    if (state_ && value != 0.0) atomicAdd(&(state_->*field), value);
  }
  /// Notes what P of a row is relative to. @param row  of the tile, plus the tile's rows for a second part
  __device__ void note_maximum(const DeviceTileLog& log, int row, float max) const {
    if (log.rows > 0) log.maxima(state_ - log.states)[row] = max;
  }

 private:
  DeviceTileState* state_ = nullptr;
};

}  // namespace tilescope
