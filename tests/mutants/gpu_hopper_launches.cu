// SPDX-License-Identifier: Apache-2.0
// The launches of gpu:flash3 in Hopper's program of mutants: fp16, head dimensions 64 (few keys a row) and
// 256, and e4m3 forward, 128, fast and observed. The other rungs are in test_gpu_mutants.
#include <algorithm>

#include "gpu/kernels/elementwise/elementwise.hpp"
#include "gpu/kernels/flash1/flash1.hpp"
#include "gpu/kernels/flash2_mma/flash2_mma.hpp"
#include "gpu/kernels/flash2_simt/flash2_simt.hpp"
#include "gpu/kernels/flash3/backward/instance.cuh"
#include "gpu/kernels/flash3/flash3.hpp"
#include "gpu/kernels/flash3/forward/instance.cuh"
#include "gpu/kernels/flash3/fp8/instance.cuh"
#include "gpu/kernels/split_k/split_k.hpp"
#include "gpu/kernels/standard/standard.hpp"
#include "gpu/launch/launch.cuh"
#include "tests/mutants/active_mutant.hpp"

namespace tilescope {

void activate_on_device(int mutant) {
  check_cuda(cudaMemcpyToSymbol(active_mutant_on_device, &mutant, sizeof mutant), "activating a mutant");
}

bool is_mutated(const Kernel& kernel) { return kernel.name == Flash3::name; }

namespace {

constexpr int kPoisonBytes = 227 * 1024;

/// What an earlier kernel left in shared memory must not pass for data that a mutant forgets to wait for.
__global__ void poison_shared_pass() {
  extern __shared__ int words[];
  for (int i = static_cast<int>(threadIdx.x); i < kPoisonBytes / 4; i += static_cast<int>(blockDim.x)) {
    reinterpret_cast<volatile int*>(words)[i] = -1;  // NaN as fp32 and as fp16
  }
}

void poison_shared_memory([[maybe_unused]] cudaStream_t stream) {
#ifndef TILESCOPE_EMULATED_DEVICE  // which gives every CTA such memory
  constexpr int kCtas = 1024;      // several for each SM
  check_cuda(
      cudaFuncSetAttribute(poison_shared_pass, cudaFuncAttributeMaxDynamicSharedMemorySize, kPoisonBytes),
      "asking for shared memory");
  poison_shared_pass<<<kCtas, 256, kPoisonBytes, stream>>>();
  check_cuda(cudaGetLastError(), "poisoning shared memory");
#endif
}

template <int kHeadDim, bool kShortRows, bool kStays, bool kObserved>
void launch(const TileProgram& program, const KernelArguments& arguments, cudaStream_t stream) {
  constexpr auto kType = gpu::sm90::ProductType::fp16;
  using Forward = Flash3ForwardChoice<kHeadDim, kShortRows>;
  using Backward = Flash3BackwardChoice<kHeadDim, false, kStays>;
  if (program.name == PassName::forward) {
    gpu::launch_flash3_forward<kType, Forward, kObserved>(
        gpu::flash3_forward_arguments<kType, Forward::shape>(arguments, arguments.counter), multiprocessors(),
        stream);
  } else {
    const auto items = static_cast<int>(program.num_ctas());  // few CTAs, where they stay: several each
    gpu::launch_flash3_dkdvdq<kType, Backward, kObserved>(
        gpu::flash3_backward_arguments<kType, Backward::shape>(arguments, program.dq_start),
        Backward::shape.stays ? std::min(items, 2) : items, stream);
  }
}

[[noreturn]] void lacks(std::string_view name) {
  throw MachineLacks(std::string(name) + ": see test_gpu_mutants");
}

}  // namespace

void Flash3::launch(const TileProgram& program, const KernelArguments& arguments, CUstream_st* stream) {
  if (program.name == PassName::delta) return launch_delta(program, arguments, stream);
  if (program.name == PassName::convert) return launch_convert(program, arguments, stream);
  poison_shared_memory(stream);
  const bool observed = arguments.log.states != nullptr;
  if (is_fp8(program.problem.dtype)) {
    using Choice = Flash3Fp8Choice<128>;
    constexpr auto kType = gpu::sm90::ProductType::e4m3;
    return (
        observed
            ? gpu::launch_flash3_fp8_forward<kType, Choice, true>
            : gpu::launch_flash3_fp8_forward<kType, Choice, false>)(gpu::flash3_fp8_arguments<Choice::shape>(
                                                                        arguments, arguments.counter),
                                                                    multiprocessors(), stream);
  }
  if (program.problem.head_dim <= 64) {
    // Of the backward pass both forms: CTAs that stay, and dQ a step behind.
    if (program.problem.masked()) {
      return (observed ? tilescope::launch<64, true, true, true>
                       : tilescope::launch<64, true, true, false>)(program, arguments, stream);
    }
    return (observed ? tilescope::launch<64, true, false, true>
                     : tilescope::launch<64, true, false, false>)(program, arguments, stream);
  }
  (observed ? tilescope::launch<256, false, false, true>
            : tilescope::launch<256, false, false, false>)(program, arguments, stream);
}

void Standard::launch(const TileProgram&, const KernelArguments&, CUstream_st*) { lacks(name); }
void Flash1::launch(const TileProgram&, const KernelArguments&, CUstream_st*) { lacks(name); }
void Flash2Simt::launch(const TileProgram&, const KernelArguments&, CUstream_st*) { lacks(name); }
void Flash2Mma::launch(const TileProgram&, const KernelArguments&, CUstream_st*) { lacks(name); }
void SplitK::launch(const TileProgram&, const KernelArguments&, CUstream_st*) { lacks(name); }

}  // namespace tilescope
