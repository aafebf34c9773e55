// SPDX-License-Identifier: Apache-2.0
// Which kernel of gpu:flash2-simt runs which pass.
#include "gpu/kernels/elementwise/elementwise.hpp"
#include "gpu/kernels/flash2_simt/flash2_simt.hpp"
#include "gpu/kernels/flash2_simt/launch.hpp"

namespace tilescope {

void Flash2Simt::launch(const TileProgram& program, const KernelArguments& arguments, CUstream_st* stream) {
  const bool all_features = arguments.need_all_features();
  switch (program.name) {
    case PassName::forward:
      return (all_features ? launch_flash2_simt_forward_all_features : launch_flash2_simt_forward)(
          program, arguments, stream);
    case PassName::delta:
      return launch_delta(program, arguments, stream);
    case PassName::init:
      return launch_init(program, arguments, stream);
    case PassName::convert:
      return launch_convert(program, arguments, stream);
    default:
      return (all_features ? launch_flash2_simt_backward_all_features : launch_flash2_simt_backward)(
          program, arguments, stream);
  }
}

}  // namespace tilescope
