// SPDX-License-Identifier: Apache-2.0
// Which kernel of gpu:flash1 runs which pass.
#include "gpu/kernels/elementwise/elementwise.hpp"
#include "gpu/kernels/flash1/launch.cuh"

namespace tilescope {

void Flash1::launch(const TileProgram& program, const KernelArguments& arguments, CUstream_st* stream) {
  if (program.name == PassName::convert) return launch_convert(program, arguments, stream);
  dispatch_element(program.problem.dtype, [&]<typename Element>() {
    constexpr auto launch = std::is_same_v<Element, float>    ? launch_flash1_fp32
                            : std::is_same_v<Element, __half> ? launch_flash1_fp16
                                                              : launch_flash1_bf16;
    launch(program, arguments, stream);
  });
}

}  // namespace tilescope
