// SPDX-License-Identifier: Apache-2.0
#include "gpu/kernels/elementwise.hpp"

#include <stdexcept>

#include "gpu/kernels/element.cuh"
#include "gpu/launch.cuh"

namespace tilescope {
namespace {

constexpr int kWarpsHere = kElementwiseThreads / 32;

/// The rows of one tile, dealt out to warps.
struct TileRows {
  int batch, head, begin, end;

  __device__ TileRows(const KernelArguments& args, int heads, int block_rows, int seqlen) {
    const WorkItem item = args.grid.item(blockIdx.x);
    batch = item.head / heads;
    head = item.head % heads;
    begin = item.block * block_rows + static_cast<int>(threadIdx.x) / 32;
    end = min_of(seqlen, (item.block + 1) * block_rows);
  }
};

template <typename Element>
__global__ void delta_pass(const __grid_constant__ KernelArguments args, int block_m) {
  const TileRows tile(args, args.heads, block_m, args.band.seqlen_q);
  const int lane = static_cast<int>(threadIdx.x) % 32;
  for (int row = tile.begin; row < tile.end; row += kWarpsHere) {
    const auto* out = args[TensorName::out].row<const Element>(tile.batch, tile.head, row);
    const auto* dout = args[TensorName::dout].row<const Element>(tile.batch, tile.head, row);
    float sum = 0.0f;
    for (int col = lane; col < args.head_dim; col += 32) sum = fmaf(widen(dout[col]), widen(out[col]), sum);
    for (int bit = 16; bit > 0; bit /= 2) sum += __shfl_xor_sync(0xFFFFFFFFu, sum, bit);
    if (lane == 0) *args[TensorName::delta].row<float>(tile.batch, tile.head, row) = sum;
    if (args[TensorName::dq_accum].data) {
      auto* accum = args[TensorName::dq_accum].row<float>(tile.batch, tile.head, row);
      for (int col = lane; col < args.head_dim; col += 32) accum[col] = 0.0f;
    }
  }
}

__global__ void zero_pass(const __grid_constant__ KernelArguments args, int block_n) {
  const TileRows tile(args, args.heads_kv, block_n, args.band.seqlen_k);
  for (int row = tile.begin; row < tile.end; row += kWarpsHere) {
    auto* dk = args[TensorName::dk_accum].row<float>(tile.batch, tile.head, row);
    auto* dv = args[TensorName::dv_accum].row<float>(tile.batch, tile.head, row);
    for (int col = static_cast<int>(threadIdx.x) % 32; col < args.head_dim; col += 32) {
      dk[col] = 0.0f;
      dv[col] = 0.0f;
    }
  }
}

/// One tensor to be rounded: target = factor * source.
struct Conversion {
  DeviceTensor source, target;
  float factor;
};
struct ConvertArguments {
  KernelArguments common;
  Conversion conversions[2];
  int count = 0;
  int heads, block_rows, seqlen;
};

template <typename Element>
__global__ void convert_pass(const __grid_constant__ ConvertArguments args) {
  const TileRows tile(args.common, args.heads, args.block_rows, args.seqlen);
  for (int row = tile.begin; row < tile.end; row += kWarpsHere) {
    for (int i = 0; i < args.count; ++i) {
      const auto* source = args.conversions[i].source.row<const float>(tile.batch, tile.head, row);
      auto* target = args.conversions[i].target.row<Element>(tile.batch, tile.head, row);
      for (int col = static_cast<int>(threadIdx.x) % 32; col < args.common.head_dim; col += 32) {
        target[col] = narrow<Element>(source[col] * args.conversions[i].factor);
      }
    }
  }
}

}  // namespace

void launch_delta(const TileProgram& program, const KernelArguments& arguments, CUstream_st* stream) {
  dispatch_element(program.problem.dtype, [&]<typename Element>() {
    launch_grid(delta_pass<Element>, program, {kElementwiseThreads, 0}, stream, arguments,
                program.tile.block_m);
  });
}

void launch_init(const TileProgram& program, const KernelArguments& arguments, CUstream_st* stream) {
  launch_grid(zero_pass, program, {kElementwiseThreads, 0}, stream, arguments, program.tile.block_n);
}

void launch_convert(const TileProgram& program, const KernelArguments& arguments, CUstream_st* stream) {
  const bool by_query = program.axis == Axis::q;
  ConvertArguments convert{.common = arguments,
                           .heads = by_query ? arguments.heads : arguments.heads_kv,
                           .block_rows = by_query ? program.tile.block_m : program.tile.block_n,
                           .seqlen = by_query ? arguments.band.seqlen_q : arguments.band.seqlen_k};
  for (std::size_t i = 0; i < program.prologue.size(); ++i) {
    const TensorName source = program.prologue[i].tensor, target = program.epilogue[i].tensor;
    const bool scaled = source == TensorName::dq_accum || source == TensorName::dk_accum;
    convert.conversions[convert.count++] = {arguments[source], arguments[target],
                                            scaled ? arguments.softmax_scale : 1.0f};
  }
  dispatch_element(program.problem.dtype, [&]<typename Element>() {
    launch_grid(convert_pass<Element>, program, {kElementwiseThreads, 0}, stream, convert);
  });
}

}  // namespace tilescope
