// SPDX-License-Identifier: Apache-2.0
// The launches of gpu:standard for one element type, each in a .cu file of its own.
#pragma once

#include <stdexcept>

#include "cpu_ref/primitives/kernel_scale.hpp"
#include "gpu/kernels/standard/products.cuh"
#include "gpu/kernels/standard/rows.cuh"
#include "gpu/launch/launch.cuh"

namespace tilescope {

template <typename Element, int Dim>
void launch_standard_product(const TileProgram& program, const KernelArguments& arguments,
                             cudaStream_t stream) {
  constexpr int kM = Standard::tile(Dim).block_m, kN = Standard::tile(Dim).block_n;
  const auto launch = [&](auto kernel, const auto& names) {
    launch_grid(kernel, program, Standard::launch_shape(program), stream, arguments, names);
  };
  if (!program.prologue.empty()) {  // left operand, {right operand, product}
    const float factor = program.name == PassName::scores ? StoredScoreScale(program.problem).factor : 1.0f;
    const cuda_cores::RowsTimesRows names{program.prologue[0].tensor, program.phases[0][0].tensor,
                                          program.phases[0][1].tensor, factor};
    return launch(cuda_cores::rows_times_rows<Element, Dim, kM, kN>, names);
  }
  const TensorName matrix = program.phases[0][0].tensor;
  const cuda_cores::MatrixTimesRows names{matrix, program.phases[0][1].tensor, program.epilogue[0].tensor,
                                          matrix == TensorName::dscores ? arguments.softmax_scale : 1.0f};
  if (program.axis == Axis::q)
    return launch(cuda_cores::matrix_times_rows<Element, Dim, kM, kN, Axis::q>, names);
  launch(cuda_cores::matrix_times_rows<Element, Dim, kM, kN, Axis::kv>, names);
}

/// The passes on whole rows: softmax and dscores.
template <typename Element>
void launch_standard_rows(const TileProgram& program, const KernelArguments& arguments, cudaStream_t stream) {
  const bool fits = Standard::row_fits(program.name, program.problem.seqlen_k);
  if (program.name == PassName::dscores) {
    return launch_grid(cuda_cores::gradient_rows<Element>, program, Standard::launch_shape(program), stream,
                       arguments, program.tile.block_m, fits);
  }
  const StoredScoreScale scale(program.problem);
  launch_grid(cuda_cores::softmax_rows<Element>, program, Standard::launch_shape(program), stream, arguments,
              program.tile.block_m, fits, scale.rest, scale.log2);
}

template <typename Element>
void launch_standard_as(const TileProgram& program, const KernelArguments& arguments, cudaStream_t stream) {
  if (program.products.count() == 0) return launch_standard_rows<Element>(program, arguments, stream);
  switch (Standard::padded_dim(program.problem.head_dim)) {
    case 64:
      return launch_standard_product<Element, 64>(program, arguments, stream);
    case 128:
      return launch_standard_product<Element, 128>(program, arguments, stream);
    default:
      return launch_standard_product<Element, 256>(program, arguments, stream);
  }
}

void launch_standard_fp32(const TileProgram&, const KernelArguments&, cudaStream_t);
void launch_standard_fp16(const TileProgram&, const KernelArguments&, cudaStream_t);
void launch_standard_bf16(const TileProgram&, const KernelArguments&, cudaStream_t);

}  // namespace tilescope
