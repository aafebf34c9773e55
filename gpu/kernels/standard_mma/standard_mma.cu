// SPDX-License-Identifier: Apache-2.0
// Which build of which pass of gpu:standard-mma runs. The passes on whole rows are gpu:standard's.
#include "gpu/kernels/standard/launch.cuh"
#include "gpu/kernels/standard_mma/products.cuh"

namespace tilescope::sm80 {
namespace {

template <ElementType kType, int kHeadDim, Features kFeatures>
void launch_product(const TileProgram& program, const KernelArguments& arguments, CUstream_st* stream) {
  const auto launch = [&](auto kernel, const auto& names) {
    launch_grid(kernel, program, StandardMma::launch_shape(program), stream, arguments, names);
  };
  if (!program.prologue.empty()) {  // left operand, {right operand, product}
    const float factor = program.name == PassName::scores ? StoredScoreScale(program.problem).factor : 1.0f;
    return launch(mma_rows_times_rows<kType, kHeadDim, kFeatures>,
                  RowsTimesRows{program.prologue[0].tensor, program.phases[0][0].tensor,
                                program.phases[0][1].tensor, factor});
  }
  const TensorName matrix = program.phases[0][0].tensor;
  const MatrixTimesRows names{matrix, program.phases[0][1].tensor, program.epilogue[0].tensor,
                              matrix == TensorName::dscores ? arguments.softmax_scale : 1.0f};
  if (program.axis == Axis::q)
    return launch(mma_matrix_times_rows<kType, kHeadDim, kFeatures, Axis::q>, names);
  launch(mma_matrix_times_rows<kType, kHeadDim, kFeatures, Axis::kv>, names);
}

template <ElementType kType, int kHeadDim>
void launch_standard(const TileProgram& program, const KernelArguments& arguments, CUstream_st* stream) {
  if (program.products.count() == 0) {
    using Element = std::conditional_t<kType == ElementType::fp16, __half, __nv_bfloat16>;
    return launch_standard_rows<Element>(program, arguments, stream);
  }
  (arguments.log.states ? launch_product<kType, kHeadDim, Features::general>
                        : launch_product<kType, kHeadDim, Features::plain>)(program, arguments, stream);
}

}  // namespace
}  // namespace tilescope::sm80

void tilescope::StandardMma::launch(const TileProgram& program, const KernelArguments& arguments,
                                    CUstream_st* stream) {
  const bool narrow = mma_head_dim(program.problem.head_dim) == 64;
  if (program.problem.dtype == ElementType::fp16) {
    return (narrow ? sm80::launch_standard<ElementType::fp16, 64>
                   : sm80::launch_standard<ElementType::fp16, 128>)(program, arguments, stream);
  }
  (narrow ? sm80::launch_standard<ElementType::bf16, 64>
          : sm80::launch_standard<ElementType::bf16, 128>)(program, arguments, stream);
}
