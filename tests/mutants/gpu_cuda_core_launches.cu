// SPDX-License-Identifier: Apache-2.0
// The launches of the CUDA-core rungs in the program of mutants: each kernel in one instantiation, head
// dimension 64, fp32 where a rung computes nothing else, fp16 elsewhere.
#include <stdexcept>

#include "gpu/kernels/elementwise/elementwise.hpp"
#include "gpu/kernels/flash1/launch.cuh"
#include "gpu/kernels/flash2_simt/backward.cuh"
#include "gpu/kernels/flash2_simt/forward.cuh"
#include "gpu/kernels/standard/launch.cuh"
#include "tests/mutants/active_mutant.hpp"

namespace tilescope {

__constant__ int active_mutant_on_device = 0;

void activate_on_device(int mutant) {
  check_cuda(cudaMemcpyToSymbol(active_mutant_on_device, &mutant, sizeof mutant), "activating a mutant");
}

namespace {

constexpr int kDim = 64;
using Element = __half;
constexpr int kPoisonBytes = 160 * 1024;  // what a CTA may have on sm_80

__global__ void poison_shared_pass() {
  for (int i = static_cast<int>(threadIdx.x); i < kPoisonBytes / 4; i += static_cast<int>(blockDim.x)) {
    reinterpret_cast<volatile int*>(cuda_cores::dynamic_shared)[i] = -1;  // NaN as fp32 and as fp16
  }
}

}  // namespace

void poison_shared_memory(cudaStream_t stream) {
  constexpr int kCtas = 1024;  // several for each SM
  check_cuda(
      cudaFuncSetAttribute(poison_shared_pass, cudaFuncAttributeMaxDynamicSharedMemorySize, kPoisonBytes),
      "asking for shared memory");
  poison_shared_pass<<<kCtas, 256, kPoisonBytes, stream>>>();
  check_cuda(cudaGetLastError(), "poisoning shared memory");
}

void Standard::launch(const TileProgram& program, const KernelArguments& arguments, CUstream_st* stream) {
  poison_shared_memory(stream);
  if (program.products.count() > 0) return launch_standard_product<Element, kDim>(program, arguments, stream);
  launch_standard_rows<Element>(program, arguments, stream);
}

void Flash1::launch(const TileProgram& program, const KernelArguments& arguments, CUstream_st* stream) {
  poison_shared_memory(stream);
  if (program.name == PassName::convert) return launch_convert(program, arguments, stream);
  launch_flash1_pass<Element, kDim>(program, arguments, stream);
}

void Flash2Simt::launch(const TileProgram& program, const KernelArguments& arguments, CUstream_st* stream) {
  poison_shared_memory(stream);
  constexpr Tiles kTiles = tiles(kDim);
  constexpr TileShape kForward = kTiles.forward, kBackward = kTiles.backward, kDq = kTiles.dq;
  const bool all_features = arguments.need_all_features();
  const auto launch = [&](void (*kernel)(KernelArguments)) {
    launch_pass(kernel, program, launch_shape(program), arguments, stream);
  };
  switch (program.name) {
    case PassName::delta:
      return launch_delta(program, arguments, stream);
    case PassName::init:
      return launch_init(program, arguments, stream);
    case PassName::convert:
      return launch_convert(program, arguments, stream);
    case PassName::forward:
      return launch(all_features
                        ? cuda_cores::flash2_simt_forward<kDim, kForward.block_m, kForward.block_n, true>
                        : cuda_cores::flash2_simt_forward<kDim, kForward.block_m, kForward.block_n, false>);
    case PassName::dkdvdq:
      return launch(
          all_features
              ? cuda_cores::flash2_simt_kv_backward<kDim, kBackward.block_m, kBackward.block_n, true, true>
              : cuda_cores::flash2_simt_kv_backward<kDim, kBackward.block_m, kBackward.block_n, true, false>);
    case PassName::dkdv:
      return launch(
          cuda_cores::flash2_simt_kv_backward<kDim, kBackward.block_m, kBackward.block_n, false, true>);
    case PassName::dqdkdv:
      return launch(
          cuda_cores::flash2_simt_q_backward<kDim, kBackward.block_m, kBackward.block_n, true, true>);
    case PassName::dq:
      return launch(cuda_cores::flash2_simt_q_backward<kDim, kDq.block_m, kDq.block_n, false, true>);
    default:
      throw std::logic_error("gpu:flash2-simt has no such pass");
  }
}

}  // namespace tilescope
