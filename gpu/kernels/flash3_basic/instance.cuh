// SPDX-License-Identifier: Apache-2.0
// From a pass's arguments to a launch of gpu:flash3-basic: the tensor maps of its tiles. What each instance
// is compiled from.
#pragma once

#include "gpu/kernels/flash3_basic/backward.cuh"
#include "gpu/kernels/flash3_basic/flash3_basic.hpp"
#include "gpu/kernels/flash3_basic/launch.cuh"
#include "gpu/launch/launch.cuh"
#include "gpu/primitives/sm90/encode_tensor_map.hpp"

namespace tilescope::flash3_basic {

/// @param box_rows  of a tensor of the program
template <WgmmaType kType>
CUtensorMap map_of(const TileProgram& program, const KernelArguments& args, TensorName name, int box_rows) {
  const TensorExtent extent = program.extent(name);
  const DeviceTensor& tensor = args[name];
  const MapElement element = extent.dtype == ElementType::fp32 ? MapElement::fp32
                             : kType == WgmmaType::fp16        ? MapElement::fp16
                                                               : MapElement::bf16;
  return encode_tensor_map(head_panels(element, program.problem.batch, extent.heads, extent.rows, extent.cols,
                                       tensor.batch_stride, tensor.head_stride, tensor.row_stride, box_rows),
                           tensor.data);
}

template <WgmmaType kType, int kHeadDim, bool kObserved, bool kSpecialised>
void launch_forward(const TileProgram& program, const KernelArguments& args, CUstream_st* stream) {
  using enum TensorName;
  const int m = program.tile.block_m, n = program.tile.block_n;
  const ForwardMaps maps{map_of<kType>(program, args, q, m), map_of<kType>(program, args, k, n),
                         map_of<kType>(program, args, v, n), map_of<kType>(program, args, out, 64)};
  launch_grid(flash3_basic_forward<kType, kHeadDim, kObserved, kSpecialised>, program,
              Flash3Basic::launch_shape(program), stream, args, maps);
}

template <WgmmaType kType, int kHeadDim, bool kObserved>
void launch_unspecialised(const TileProgram& program, const KernelArguments& args, CUstream_st* stream) {
  launch_forward<kType, kHeadDim, kObserved, false>(program, args, stream);
}

template <WgmmaType kType, int kHeadDim, bool kObserved>
void launch(const TileProgram& program, const KernelArguments& args, CUstream_st* stream) {
  using enum TensorName;
  if (program.name == PassName::forward) {
    return launch_forward<kType, kHeadDim, kObserved, true>(program, args, stream);
  }
  const auto map = [&](TensorName name, int box_rows) {
    return map_of<kType>(program, args, name, box_rows);
  };
  const int m = program.tile.block_m, n = program.tile.block_n;
  const LaunchShape shape = Flash3Basic::launch_shape(program);
  const BackwardMaps maps{map(q, m),   map(k, n),   map(v, n),        map(dout, m),
                          map(dk, 64), map(dv, 64), map(dq_accum, 64)};
  launch_grid(flash3_basic_dkdvdq<kType, kHeadDim, kObserved>, program, shape, stream, args, maps);
}

}  // namespace tilescope::flash3_basic
