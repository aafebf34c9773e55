// SPDX-License-Identifier: Apache-2.0
// The launches of gpu:flash2-mma in the program of mutants: fp16 with head dimension 64 in the fused order,
// also with tiles cut finer, and bf16 with head dimension 128 and dropout in the split order.
#include "gpu/kernels/decode/decode.hpp"
#include "gpu/kernels/decode/mla.hpp"
#include "gpu/kernels/elementwise/elementwise.hpp"
#include "gpu/kernels/flash2_mma/dkdv.cuh"
#include "gpu/kernels/flash2_mma/dq.cuh"
#include "gpu/kernels/flash2_mma/flash2_mma.hpp"
#include "gpu/kernels/flash2_mma/forward.cuh"
#include "gpu/kernels/flash3/flash3.hpp"
#include "gpu/kernels/flash3_basic/flash3_basic.hpp"
#include "gpu/launch/launch.cuh"

namespace tilescope {

/// What an earlier kernel left there must not pass for data that a mutant forgets to wait for.
void poison_shared_memory(cudaStream_t stream);

namespace {

using sm80::Features;
/// The kernel of a pass, and what it is launched with.
template <Features kFeatures>
using PassKernel = void (*)(sm80::ArgumentsOf<kFeatures>);

template <Features kFeatures, ElementType kType, int kHeadDim, bool kFused>
PassKernel<kFeatures> kernel_of(PassName pass) {
  if (pass == PassName::forward) return sm80::flash2_mma_forward<kType, kHeadDim, kFeatures>;
  if constexpr (!kFused) {
    if (pass == PassName::dq) return sm80::flash2_mma_dq<kType, kHeadDim, kFeatures>;
  }
  return sm80::flash2_mma_dkdv<kType, kHeadDim, kFused, kFeatures>;
}

/// Calls launch.template operator()<features>(kernel) with that of a pass.
/// @param is_general  whether it is observed, knows padding or has values of other columns
template <typename Launch>
void with_kernel(const TileProgram& program, const KernelArguments& arguments, bool is_general,
                 Launch launch) {
  using enum Features;
  constexpr auto kFp16 = ElementType::fp16, kBf16 = ElementType::bf16;
  const PassName pass = program.name;
  const bool is_bf16 = program.problem.dtype == kBf16, drops = arguments.dropout.active();
  const auto call = [&]<Features kFeatures>(PassKernel<kFeatures> kernel) {
    launch.template operator()<kFeatures>(kernel);
  };
  if (arguments.kv_pages.entries) {
    if (arguments.log.states) {
      return call.template operator()<paged_observed>(sm80::flash2_mma_forward<kFp16, 64, paged_observed>);
    }
    return call.template operator()<paged>(sm80::flash2_mma_forward<kFp16, 64, paged>);
  }
  if (program.bit_reads > 0) {
    return call.template operator()<varied>(is_bf16 ? kernel_of<varied, kBf16, 128, false>(pass)
                                                    : kernel_of<varied, kFp16, 64, true>(pass));
  }
  if (is_bf16) return call.template operator()<all>(kernel_of<all, kBf16, 128, false>(pass));
  if (program.diagonal_slices > 1) {
    if (!is_general) return call.template operator()<sliced>(kernel_of<sliced, kFp16, 64, true>(pass));
    return call.template operator()<general_sliced>(kernel_of<general_sliced, kFp16, 64, true>(pass));
  }
  if (!is_general && !drops) return call.template operator()<plain>(kernel_of<plain, kFp16, 64, true>(pass));
  if (!is_general) return call.template operator()<dropout>(kernel_of<dropout, kFp16, 64, true>(pass));
  if (pass == PassName::forward && !drops) {
    return call.template operator()<Features::general>(
        sm80::flash2_mma_forward<kFp16, 64, Features::general>);
  }
  call.template operator()<all>(kernel_of<all, kFp16, 64, true>(pass));
}

}  // namespace

// gpu_hopper_launches.cu has those of sm_90 alone, and gpu:decode and gpu:mla-decode.
bool is_mutated(const Kernel& kernel) {
  return kernel.chips.first < 90 && kernel.name != Decode::name && kernel.name != MlaDecode::name;
}

void Decode::launch(const TileProgram&, const KernelArguments&, CUstream_st*) {
  throw MachineLacks(std::string(name) + " is in another program of mutants");
}
void MlaDecode::launch(const TileProgram&, const KernelArguments&, CUstream_st*) {
  throw MachineLacks(std::string(name) + " is in another program of mutants");
}

void Flash3Basic::launch(const TileProgram&, const KernelArguments&, CUstream_st*) {
  throw MachineLacks(std::string(name) + " is in another program of mutants");
}
void Flash3::launch(const TileProgram&, const KernelArguments&, CUstream_st*) {
  throw MachineLacks(std::string(name) + " is in another program of mutants");
}

void Flash2Mma::launch(const TileProgram& program, const KernelArguments& arguments, CUstream_st* stream) {
  poison_shared_memory(stream);
  if (program.name == PassName::delta) return launch_delta(program, arguments, stream);
  if (program.name == PassName::convert) return launch_convert(program, arguments, stream);
  int device = 0, major = 0;
  check_cuda(cudaGetDevice(&device), "asking for the current device");
  check_cuda(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device),
             "asking for the compute capability");
  const bool general = arguments.log.states != nullptr || arguments.key_lengths != nullptr ||
                       program.problem.value_dim() != program.problem.head_dim;
  with_kernel(program, arguments, general, [&]<Features kFeatures>(PassKernel<kFeatures> kernel) {
    launch_grid(kernel, program, flash2_mma_launch_shape(program, major, false), stream,
                sm80::arguments_of<kFeatures>(arguments, program.problem));
  });
}

}  // namespace tilescope
