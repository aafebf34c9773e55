// SPDX-License-Identifier: Apache-2.0
// Which kernel of gpu:flash1 runs which pass.
#include "common/errors.hpp"
#include "gpu/kernels/elementwise/elementwise.hpp"
#include "gpu/kernels/flash1/launch.cuh"
#include "gpu/registry/kernel_registry.hpp"

namespace tilescope {
namespace {

void launch_other_tile(const TileProgram& program, const KernelArguments& arguments, CUstream_st* stream) {
  if (arguments.need_all_features()) {
    throw BadInput("tile", std::to_string(program.tile.block_m) + "x" + std::to_string(program.tile.block_n),
                   "only the kernel's own tile is compiled to be observed");
  }
  if constexpr (kHasTuner) return launch_flash1_tuned(program, arguments, stream);
  throw MachineLacks(std::string(kTunerLack));
}

}  // namespace

void Flash1::launch(const TileProgram& program, const KernelArguments& arguments, CUstream_st* stream) {
  if (program.name == PassName::convert) return launch_convert(program, arguments, stream);
  const TileShape own = program.name == PassName::forward
                            ? Flash1::shapes(Flash1::padded_dim(program.problem.head_dim)).forward
                            : Flash1::shapes(Flash1::padded_dim(program.problem.head_dim)).backward;
  if (program.tile != own) return launch_other_tile(program, arguments, stream);
  dispatch_element(program.problem.dtype, [&]<typename Element>() {
    constexpr auto launch = std::is_same_v<Element, float>    ? launch_flash1_fp32
                            : std::is_same_v<Element, __half> ? launch_flash1_fp16
                                                              : launch_flash1_bf16;
    launch(program, arguments, stream);
  });
}

}  // namespace tilescope
