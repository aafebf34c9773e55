// SPDX-License-Identifier: Apache-2.0
// Which build of gpu:standard runs which element type.
#include "gpu/kernels/standard/launch.cuh"

namespace tilescope {

void Standard::launch(const TileProgram& program, const KernelArguments& arguments, CUstream_st* stream) {
  dispatch_element(program.problem.dtype, [&]<typename Element>() {
    constexpr auto launch = std::is_same_v<Element, float>    ? launch_standard_fp32
                            : std::is_same_v<Element, __half> ? launch_standard_fp16
                                                              : launch_standard_bf16;
    launch(program, arguments, stream);
  });
}

}  // namespace tilescope
