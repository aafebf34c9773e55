// SPDX-License-Identifier: Apache-2.0
// The launches of gpu:flash3 in Hopper's program of mutants: fp16 at every compiled head dimension, and 192
// with values of 128 columns, 64 with
// tables, with modifiers, with few keys a row and in order, and e4m3 forward, 128, observed and not; those of
// gpu:flash3-basic, fp16; and of gpu:decode, fp16 with head dimension 64, and gpu:mla-decode, fp16, which are
// tried here so that the emulated device tries them. The other rungs are in test_gpu_mutants.
#include <algorithm>

#include "gpu/kernels/decode/launch.cuh"
#include "gpu/kernels/decode/mla_launch.cuh"
#include "gpu/kernels/decode/mla_wgmma/instance.cuh"
#include "gpu/kernels/elementwise/elementwise.hpp"
#include "gpu/kernels/flash1/flash1.hpp"
#include "gpu/kernels/flash1_mma/flash1_mma.hpp"
#include "gpu/kernels/flash2_mma/flash2_mma.hpp"
#include "gpu/kernels/flash2_simt/flash2_simt.hpp"
#include "gpu/kernels/flash3/backward/instance.cuh"
#include "gpu/kernels/flash3/flash3.hpp"
#include "gpu/kernels/flash3/forward/instance.cuh"
#include "gpu/kernels/flash3/fp8/instance.cuh"
#include "gpu/kernels/flash3_basic/instance.cuh"
#include "gpu/kernels/split_k/split_k.hpp"
#include "gpu/kernels/standard/standard.hpp"
#include "gpu/kernels/standard_mma/standard_mma.hpp"
#include "gpu/launch/launch.cuh"
#include "tests/mutants/active_mutant.hpp"

namespace tilescope {

void activate_on_device(int mutant) {
  check_cuda(cudaMemcpyToSymbol(active_mutant_on_device, &mutant, sizeof mutant), "activating a mutant");
}

bool is_mutated(const Kernel& kernel) {
  return kernel.name == Flash3::name || kernel.name == Flash3Basic::name || kernel.name == Decode::name ||
         kernel.name == MlaDecode::name;
}

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

constexpr auto kType = gpu::sm90::WgmmaType::fp16;

template <typename Forward>
void launch_forward(const TileProgram& program, const KernelArguments& arguments, cudaStream_t stream) {
  const auto launch = arguments.log.states ? gpu::launch_flash3_forward<kType, Forward, true>
                                           : gpu::launch_flash3_forward<kType, Forward, false>;
  launch(gpu::flash3_forward_arguments<kType, Forward::shape>(program, arguments), multiprocessors(), stream);
}

template <typename Backward>
void launch_backward(const TileProgram& program, const KernelArguments& arguments, cudaStream_t stream) {
  const auto launch = arguments.log.states ? gpu::launch_flash3_dkdvdq<kType, Backward, true>
                                           : gpu::launch_flash3_dkdvdq<kType, Backward, false>;
  const auto items =
      static_cast<int>(program.num_ctas());  // few CTAs, where they are persistent: several each
  launch(gpu::flash3_backward_arguments<kType, Backward::shape>(program, arguments),
         Backward::shape.persistent ? std::min(items, 2) : items, stream);
}

void launch_values(const TileProgram& program, const KernelArguments& arguments, cudaStream_t stream) {
  launch_forward<Flash3ValuesChoice>(program, arguments, stream);
}

/// At head_dim 64 all forms of the backward pass, above it those of its own.
template <int kHeadDim>
void launch(const TileProgram& program, const KernelArguments& arguments, cudaStream_t stream) {
  if (program.name == PassName::forward) {
    return launch_forward<Flash3ForwardChoice<kHeadDim>>(program, arguments, stream);
  }
  if constexpr (kHeadDim == 64) {
    if (program.ordered) return launch_backward<Flash3BackwardChoice<64, true>>(program, arguments, stream);
    if (program.dq_start == DqStart::claimed) {
      return launch_backward<Flash3BackwardChoice<64, false, true>>(program, arguments, stream);
    }
  }
  launch_backward<Flash3BackwardChoice<kHeadDim>>(program, arguments, stream);
}

[[noreturn]] void lacks(std::string_view name) {
  throw MachineLacks(std::string(name) + ": see test_gpu_mutants");
}

}  // namespace

void Flash3::launch(const TileProgram& program, const KernelArguments& arguments, CUstream_st* stream) {
  if (program.name == PassName::delta) return launch_delta(program, arguments, stream);
  if (program.name == PassName::init) return launch_init(program, arguments, stream);
  if (program.name == PassName::convert) return launch_convert(program, arguments, stream);
  poison_shared_memory(stream);
  if (program.name == PassName::combine)
    return launch_decode<ElementType::fp16, 64, false>(program, arguments, stream);
  if (is_fp8(program.problem.dtype)) {
    using Choice = Flash3Fp8Choice<128>;
    constexpr auto kBytes = gpu::sm90::WgmmaType::e4m3;
    const auto launch = arguments.log.states ? gpu::launch_flash3_fp8_forward<kBytes, Choice, true>
                                             : gpu::launch_flash3_fp8_forward<kBytes, Choice, false>;
    return launch(gpu::flash3_fp8_arguments<Choice::shape>(arguments), multiprocessors(), stream);
  }
  if (flash3_has_tables(program.problem)) {
    if (program.name == PassName::dkdvdq) {
      return launch_backward<Flash3BackwardTableChoice<64>>(program, arguments, stream);
    }
    return launch_forward<Flash3TableChoice<64>>(program, arguments, stream);
  }
  if (flash3_has_mods(program.problem)) {
    return launch_forward<Flash3ModsChoice<64>>(program, arguments, stream);
  }
  if (program.problem.page_size > 0) {
    return launch_forward<Flash3PagedChoice<64>>(program, arguments, stream);
  }
  if (flash3_has_values_shape(program.problem)) return launch_values(program, arguments, stream);
  const std::int64_t head_dim = program.problem.head_dim;
  (head_dim <= 64    ? tilescope::launch<64>
   : head_dim <= 96  ? tilescope::launch<96>
   : head_dim <= 128 ? tilescope::launch<128>
   : head_dim <= 160 ? tilescope::launch<160>
   : head_dim <= 192 ? tilescope::launch<192>
                     : tilescope::launch<256>)(program, arguments, stream);
}

void Flash3Basic::launch(const TileProgram& program, const KernelArguments& arguments, CUstream_st* stream) {
  if (program.name == PassName::delta) return launch_delta(program, arguments, stream);
  if (program.name == PassName::convert) return launch_convert(program, arguments, stream);
  poison_shared_memory(stream);
  const auto launch = [&]<int kHeadDim>() {
    (arguments.log.states ? flash3_basic::launch<kType, kHeadDim, true>
                          : flash3_basic::launch<kType, kHeadDim, false>)(program, arguments, stream);
  };
  if (program.problem.head_dim <= 64) return launch.operator()<64>();
  launch.operator()<128>();
}

void Decode::launch(const TileProgram& program, const KernelArguments& arguments, CUstream_st* stream) {
  poison_shared_memory(stream);
  const bool fp8_keys = program.name != PassName::combine && is_fp8(program.problem.kv_type());
  (fp8_keys ? launch_decode<ElementType::fp16, 64, true>
            : launch_decode<ElementType::fp16, 64, false>)(program, arguments, stream);
}

void MlaDecode::launch(const TileProgram& program, const KernelArguments& arguments, CUstream_st* stream) {
  poison_shared_memory(stream);
  launch_mla<ElementType::fp16>(program, arguments, stream);
}

void Standard::launch(const TileProgram&, const KernelArguments&, CUstream_st*) { lacks(name); }
void StandardMma::launch(const TileProgram&, const KernelArguments&, CUstream_st*) { lacks(name); }
void Flash1::launch(const TileProgram&, const KernelArguments&, CUstream_st*) { lacks(name); }
void Flash1Mma::launch(const TileProgram&, const KernelArguments&, CUstream_st*) { lacks(name); }
void Flash2Simt::launch(const TileProgram&, const KernelArguments&, CUstream_st*) { lacks(name); }
void Flash2Mma::launch(const TileProgram&, const KernelArguments&, CUstream_st*) { lacks(name); }
void SplitK::launch(const TileProgram&, const KernelArguments&, CUstream_st*) { lacks(name); }

}  // namespace tilescope
