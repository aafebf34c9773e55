// SPDX-License-Identifier: Apache-2.0
// Which instance of gpu:flash3-basic runs which pass.
#include "common/errors.hpp"
#include "gpu/kernels/elementwise/elementwise.hpp"
#include "gpu/kernels/flash3_basic/flash3_basic.hpp"
#ifdef TILESCOPE_HAS_SM90
#include "gpu/kernels/flash3_basic/launch.cuh"
#endif
#include "gpu/registry/kernel_registry.hpp"

namespace tilescope {

#ifdef TILESCOPE_HAS_SM90
using gpu::sm90::WgmmaType;

namespace {

void launch_unspecialised(const TileProgram& program, const KernelArguments& arguments, CUstream_st* stream) {
  if (arguments.log.states) throw BadInput("variant", "unspecialised", "cannot be observed");
  if constexpr (kHasTuner) {
    return flash3_basic::launch_unspecialised<WgmmaType::fp16, flash3_basic::kVariantHeadDim, false>(
        program, arguments, stream);
  } else {
    throw MachineLacks(std::string(kTunerLack));
  }
}

}  // namespace

void Flash3Basic::launch(const TileProgram& program, const KernelArguments& arguments, CUstream_st* stream) {
  if (program.name == PassName::delta) return launch_delta(program, arguments, stream);
  if (program.name == PassName::convert) return launch_convert(program, arguments, stream);
  if (program.variant != Variant::own) return launch_unspecialised(program, arguments, stream);
  const auto by_dim = [&]<WgmmaType kType, bool kObserved>() {
    (flash3_basic::compiled_head_dim(program.problem.head_dim) == 64
         ? flash3_basic::launch<kType, 64, kObserved>
         : flash3_basic::launch<kType, 128, kObserved>)(program, arguments, stream);
  };
  const auto by_log = [&]<WgmmaType kType>() {
    if (arguments.log.states) return by_dim.template operator()<kType, true>();
    by_dim.template operator()<kType, false>();
  };
  if (program.problem.dtype == ElementType::fp16) return by_log.template operator()<WgmmaType::fp16>();
  by_log.template operator()<WgmmaType::bf16>();
}
#else
void Flash3Basic::launch(const TileProgram&, const KernelArguments&, CUstream_st*) {
  throw MachineLacks(std::string(name) +
                     " was not compiled: this build has no code for sm_90a; configure one with "
                     "-D CMAKE_CUDA_ARCHITECTURES=90a-real");
}
#endif

}  // namespace tilescope
