// SPDX-License-Identifier: Apache-2.0
// What every GPU pass is launched with: its tensors in device memory, the problem's numbers and the order of
// its tiles. Plain C++ without a CUDA include; passed to kernels by value.
#pragma once

#include <array>
#include <cstdint>

#include "cpu_ref/numeric/philox.hpp"
#include "cpu_ref/schedule/tile_program.hpp"
#include "cpu_ref/schedule/tile_schedule.hpp"
#include "cpu_ref/schedule/visit_tables.hpp"

namespace tilescope {

/// A (B, H, N, D) tensor in device memory. Strides in elements, columns contiguous; 256-byte aligned base.
struct DeviceTensor {
  void* data = nullptr;
  std::int64_t batch_stride = 0;
  std::int64_t head_stride = 0;
  std::int64_t row_stride = 0;

  /// Row 0 of one head.
  template <typename Element>
  TILESCOPE_HOST_DEVICE Element* head(int batch, int head) const {
    return static_cast<Element*>(data) + batch * batch_stride + head * head_stride;
  }
  template <typename Element>
  TILESCOPE_HOST_DEVICE Element* row(int batch, int head, std::int64_t row) const {
    return this->head<Element>(batch, head) + row * row_stride;
  }
};

/// TileState (cpu_ref/launch/tile_observer.hpp) as a kernel writes it: each field is a sum over the tile that
/// the threads of a CTA add to.
struct DeviceTileState {
  int batch, head, m_block, n_block;
  double scores, row_max, row_sum, probs, dprobs, dscores, accum, left_out;
};

/// Where an observed pass logs the tiles that it visits: `capacity` states for each work item. Where maxima
/// may lag, `rows` numbers of fp32 for each state lie in front of them all, those of the first state last:
/// what P of each row of the tile is relative to, for each part of the tile's keys; NaN: nothing is told of
/// the row.
struct DeviceTileLog {
  DeviceTileState* states = nullptr;  // null: nothing is observed
  int* visited = nullptr;             // tiles that each work item has logged
  int capacity = 0;
  int rows = 0;

  TILESCOPE_HOST_DEVICE float* maxima(std::int64_t state) const {
    return reinterpret_cast<float*>(states) - (state + 1) * rows;
  }
};

/// Where kernels with a step clock (gpu/primitives/common/step_clock.cuh) note the time: a row for each work
/// item, of the SM that it runs on and of that SM's clock at every 2^log2_every-th of its steps.
struct StepClock {
  std::uint32_t* notes = nullptr;  // null: nothing is noted
  int stride = 0;                  // numbers in a row
  int log2_every = 0;
  int mask = 0;  // 2^log2_every - 1
};

/// From which persistent CTAs take their next work items, each asking once. It is 0 when a pass begins, and
/// the CTA that is the last to ask must leave it so.
struct WorkCounter {
  int taken;
};

/// What stored fp8 elements of q, k or v are multiplied by (TensorSet::descales).
struct DeviceDescales {
  const float* data = nullptr;  // null: 1
  int heads = 1;                // query heads that share a row of it
  int blocks = 1;               // numbers in a row: one, or one a tile
};

/// VisitTables (cpu_ref/schedule/visit_tables.hpp) in device memory.
struct DeviceVisits {
  const VisitedTiles* blocks = nullptr;  // null: the pass computes what it visits
  const VisitedTile* tiles = nullptr;
  const std::uint32_t* bits = nullptr;
  int blocks_of_entry = 0;  // from one batch entry to the next; 0: all are alike
};

/// KvPageTable (cpu_ref/schedule/kv_pages.hpp) in device memory. A batch entry of K and V is a page then, and
/// its rows are the page's.
struct DeviceKvPages {
  const int* entries = nullptr;  // null: keys lie one after the other
  int row = 0;                   // entries of a batch entry
  int log2_size = 0;             // of a page, in keys
};

/// ScoreMods in units of the scores, which a scaled score is |scale| times, and numbers of query heads.
struct DeviceScoreMods {
  float softcap = 0.0f;  // 0: none
  float log_bias = 0.0f;
  float per_scale = 1.0f;               // 1 / |scale|: to units
  const float* alibi_slopes = nullptr;  // null: none
  const float* sinks = nullptr;
  float* dsinks = nullptr;
};

struct KernelArguments {
  std::array<DeviceTensor, kNumRowTensors> tensors;
  Grid grid;
  Scan scan = Scan::ascending;
  VisibleBand band;
  int heads = 1;
  int heads_kv = 1;
  int head_dim = 1;
  float softmax_scale = 1.0f;       // signed
  float softmax_scale_log2 = 1.0f;  // |scale| * log2(e): P = exp2(score * this - ...)
  float score_sign = 1.0f;          // of the scale: a negative one flips every score before the softmax
  DropoutMask dropout;
  DeviceTileLog log;
  StepClock clock;
  WorkCounter* counter = nullptr;
  const int* key_lengths = nullptr;  // of the batch entries, where some keys are padding
  DeviceDescales descale_q, descale_k, descale_v;
  int diagonal_slices = 1;  // parts a side of a tile that the mask cuts
  DeviceVisits visits;
  DeviceScoreMods score_mods;
  DeviceKvPages kv_pages;

  TILESCOPE_HOST_DEVICE const DeviceTensor& operator[](TensorName name) const {
    return tensors[static_cast<int>(name)];
  }
  TILESCOPE_HOST_DEVICE int group_size() const { return heads / heads_kv; }
  /// Whether a plain instance of the CUDA-core rungs does not do: dropout, a negative scale, padding, the
  /// tile log.
  bool need_all_features() const { return dropout.active() || score_sign < 0 || key_lengths || log.states; }
};

/// Whether the rows of these tensors start at whole chunks of 8 elements, 16 bytes of a 16-bit type, and hold
/// whole ones.
template <typename... Tensors>
bool rows_in_chunks(const KernelArguments& args, const Tensors&... tensors) {
  const std::int64_t bits =
      (args.head_dim | ... | (tensors.batch_stride | tensors.head_stride | tensors.row_stride));
  return bits % 8 == 0;
}

}  // namespace tilescope
