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
using PassKernel = void (*)(KernelArguments);

PassKernel bf16_kernel(PassName pass) {
  constexpr ElementType kType = ElementType::bf16;
  constexpr Features kFeatures = Features::all;
  if (pass == PassName::forward) return sm80::flash2_mma_forward<kType, 128, kFeatures>;
  if (pass == PassName::dq) return sm80::flash2_mma_dq<kType, 128, kFeatures>;
  return sm80::flash2_mma_dkdv<kType, 128, false, kFeatures>;
}

/// @param general  whether it is observed or knows padding
PassKernel sliced_kernel(PassName pass, bool general) {
  constexpr ElementType kType = ElementType::fp16;
  if (pass == PassName::forward) {
    return general ? sm80::flash2_mma_forward<kType, 64, Features::general_sliced>
                   : sm80::flash2_mma_forward<kType, 64, Features::sliced>;
  }
  return general ? sm80::flash2_mma_dkdv<kType, 64, true, Features::general_sliced>
                 : sm80::flash2_mma_dkdv<kType, 64, true, Features::sliced>;
}

PassKernel fp16_kernel(PassName pass, bool general, bool drops) {
  constexpr ElementType kType = ElementType::fp16;
  if (pass == PassName::forward) {
    return general && drops ? sm80::flash2_mma_forward<kType, 64, Features::all>
           : general        ? sm80::flash2_mma_forward<kType, 64, Features::general>
           : drops          ? sm80::flash2_mma_forward<kType, 64, Features::dropout>
                            : sm80::flash2_mma_forward<kType, 64, Features::plain>;
  }
  return general ? sm80::flash2_mma_dkdv<kType, 64, true, Features::all>
         : drops ? sm80::flash2_mma_dkdv<kType, 64, true, Features::dropout>
                 : sm80::flash2_mma_dkdv<kType, 64, true, Features::plain>;
}

PassKernel varied_kernel(PassName pass, bool bf16) {
  constexpr Features kFeatures = Features::varied;
  if (bf16) {
    constexpr ElementType kType = ElementType::bf16;
    if (pass == PassName::forward) return sm80::flash2_mma_forward<kType, 128, kFeatures>;
    if (pass == PassName::dq) return sm80::flash2_mma_dq<kType, 128, kFeatures>;
    return sm80::flash2_mma_dkdv<kType, 128, false, kFeatures>;
  }
  if (pass == PassName::forward) return sm80::flash2_mma_forward<ElementType::fp16, 64, kFeatures>;
  return sm80::flash2_mma_dkdv<ElementType::fp16, 64, true, kFeatures>;
}

PassKernel paged_kernel(bool observed) {
  return observed ? sm80::flash2_mma_forward<ElementType::fp16, 64, Features::paged_observed>
                  : sm80::flash2_mma_forward<ElementType::fp16, 64, Features::paged>;
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
  const bool bf16 = program.problem.dtype == ElementType::bf16;
  const bool general = arguments.log.states != nullptr || arguments.key_lengths != nullptr;
  launch_pass(arguments.kv_pages.entries    ? paged_kernel(arguments.log.states != nullptr)
              : program.bit_reads > 0       ? varied_kernel(program.name, bf16)
              : bf16                        ? bf16_kernel(program.name)
              : program.diagonal_slices > 1 ? sliced_kernel(program.name, general)
                                            : fp16_kernel(program.name, general, arguments.dropout.active()),
              program, flash2_mma_launch_shape(program, major), arguments, stream);
}

}  // namespace tilescope
