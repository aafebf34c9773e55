// SPDX-License-Identifier: Apache-2.0
// The tile shapes that gpu:flash2-mma is compiled for, pass by pass: its own (flash2_mma_shapes.hpp) and
// those that `tilescope bench --tune` can prefer on a device, some of them with other warps or stages. Plain
// C++.
#pragma once

#include "gpu/kernels/flash2_mma/shapes.hpp"
#include "gpu/registry/gpu_kernel.hpp"

namespace tilescope {

/// The shapes of a pass at one head dimension. The first is what it takes by itself, and the only one with
/// dropout, with rows that are not made of 16-byte chunks, and under observation.
template <typename Shape>
struct MmaChoices {
  static constexpr int kMaxCount = 16;
  Shape shapes[kMaxCount] = {};
  int count = 0;

  template <typename... Others>
  constexpr MmaChoices(Shape own, Others... others)
      : shapes{own, others...}, count(1 + static_cast<int>(sizeof...(others))) {}

  constexpr const Shape* begin() const { return shapes; }
  constexpr const Shape* end() const { return shapes + count; }
  /// Warps and stages by which a shape is asked for: none for the first of its tile.
  constexpr PassLaunch launch(int index) const {
    for (int i = 0; i < index; ++i) {
      if (shapes[i].tile == shapes[index].tile) return {shapes[index].warps, shapes[index].stages};
    }
    return {};
  }
  /// @return -1 if there is no such shape
  constexpr int find(TileShape tile, PassLaunch asked) const {
    for (int i = 0; i < count; ++i) {
      if (shapes[i].tile == tile && launch(i) == asked) return i;
    }
    return -1;
  }
};

constexpr MmaChoices<MmaForwardShape> mma_forward_choices(int head_dim) {
  using Shape = MmaForwardShape;
  const Shape own = mma_forward_shape(head_dim);
  // 64: with 64 keys a tile S takes half the registers, for twice the barriers: 5 to 7 % longer. Three CTAs
  // an SM would spill. Other rows of Q a CTA read K and V more or less often, in inverse proportion: they are
  // there to show it.
  if (head_dim <= 64)
    return {own, Shape{{128, 64}, 4, 2}, Shape{{256, 64}, 8, 1}, Shape{{64, 64}, 4, 2},
            Shape{{64, 256}, 4, 1}, Shape{{32, 64}, 2, 4},
            // Other warps and stages of the two best.
            Shape{{128, 128}, 4, 2, 1}, Shape{{128, 128}, 4, 2, 3}, Shape{{128, 128}, 8, 1},
            Shape{{128, 64}, 4, 2, 3}, Shape{{128, 64}, 4, 2, 4}, Shape{{128, 64}, 8, 2}};
  // 128: eight warps of 16 rows take half of O's registers a thread and twice the reads: 8 to 17 % longer. 32
  // keys spare registers for barriers: 8 to 13 %.
  if (head_dim <= 128) {
    return {own,
            Shape{{128, 128}, 8, 1},
            Shape{{128, 32}, 4, 2},
            Shape{{256, 32}, 8, 1},
            Shape{{64, 64}, 4, 2},
            Shape{{128, 64}, 4, 2, 1},
            Shape{{128, 64}, 4, 1, 3},
            Shape{{128, 32}, 4, 2, 4},
            Shape{{128, 64}, 8, 1},
            Shape{{64, 64}, 4, 2, 3}};
  }
  // 256: two CTAs of four warps, each of which waits at barriers of its own, but with half the rows for each
  // read of K and V: 11 to 13 % longer. Fewer keys for more barriers: 13 to 15 %.
  return {own,
          Shape{{64, 32}, 4, 2},
          Shape{{128, 32}, 8, 1},
          Shape{{128, 64}, 8, 1, 1},
          Shape{{128, 32}, 8, 1, 3},
          Shape{{128, 32}, 8, 1, 4},
          Shape{{64, 32}, 4, 1, 3}};
}

constexpr MmaChoices<MmaDkdvShape> mma_dkdv_choices(int head_dim) {
  using Shape = MmaDkdvShape;
  const Shape own = mma_dkdv_shape(head_dim);
  // Smaller tiles leave registers to spare, for twice the barriers (64: 8 to 9 % longer) or twice the dQ
  // reductions (128: 34 to 40 %). Other keys a CTA read Q and dO and reduce dQ more or less often, in inverse
  // proportion: they are there to show it. 256 keys would take all registers for dK, dV and scores. 64 x 64
  // by four warps lets two CTAs share an SM: of 512 keys it is the fastest here, and at 128 of 4096 too where
  // dQ is a pass of its own (reports/tuning/tiles-h200.json.gz).
  if (head_dim <= 64)
    return {own,
            Shape{{64, 128}, 8},
            Shape{{256, 64}, 8},
            Shape{{64, 64}, 8},
            Shape{{64, 32}, 4},
            Shape{{128, 128}, 8, 1},
            Shape{{64, 64}, 4}};
  if (head_dim <= 128) return {own, Shape{{64, 64}, 8}, Shape{{64, 128}, 8, 1}, Shape{{64, 64}, 4}};
  return {own, Shape{{64, 64}, 8, 1}};
}

constexpr MmaChoices<MmaDqShape> mma_dq_choices(int head_dim) {
  using Shape = MmaDqShape;
  const Shape own = mma_dq_shape(head_dim);
  if (head_dim <= 64) {
    return {own,
            Shape{{128, 32}, 4, 2},  // 1 to 3 % longer
            Shape{{128, 64}, 4, 2, 1},
            Shape{{128, 64}, 4, 2, 3},
            Shape{{128, 64}, 4, 2, 4},
            Shape{{128, 64}, 8, 2}};
  }
  // 128: 16 rows a warp take half of dQ's registers, so that 64 keys fit: 6 to 8 % longer.
  if (head_dim <= 128) {
    return {own, Shape{{64, 64}, 4, 2}, Shape{{128, 32}, 4, 2, 1}, Shape{{128, 32}, 4, 2, 3},
            Shape{{128, 32}, 8, 1}};
  }
  return {own, Shape{{128, 32}, 8, 1, 1}, Shape{{128, 32}, 8, 1, 3}};
}

namespace sm80 {

/// The plain pass at one of its choices after the first.
void launch_flash2_mma_forward_tuned(const TileProgram&, LaunchShape, const KernelArguments&, CUstream_st*);
/// The same at its own, for Variant::normalised.
void launch_flash2_mma_forward_normalised(const TileProgram&, LaunchShape, const KernelArguments&,
                                          CUstream_st*);
void launch_flash2_mma_dkdv_tuned(const TileProgram&, LaunchShape, const KernelArguments&, CUstream_st*);
void launch_flash2_mma_dq_tuned(const TileProgram&, LaunchShape, const KernelArguments&, CUstream_st*);

/// Calls body.template operator()<i>() where i is `index`, from 1 to kCount - 1.
template <int kCount, typename Body>
void dispatch_choice(int index, Body&& body) {
  if constexpr (kCount > 1) {
    if (index == kCount - 1) return body.template operator()<kCount - 1>();
    dispatch_choice<kCount - 1>(index, body);
  }
}

}  // namespace sm80
}  // namespace tilescope
