// SPDX-License-Identifier: Apache-2.0
// Which instance of gpu:flash3 runs which pass. The instances are compiled apart, for sm_90a alone, in a
// build that has that architecture: gpu/CMakeLists.txt.
#include <algorithm>
#include <type_traits>

#include "gpu/kernels/decode/decode.hpp"
#include "gpu/kernels/elementwise/elementwise.hpp"
#include "gpu/kernels/flash3/flash3.hpp"
#ifdef TILESCOPE_HAS_SM90
#include "gpu/kernels/flash3/backward/launch.cuh"
#include "gpu/kernels/flash3/forward/launch.cuh"
#include "gpu/kernels/flash3/fp8/launch.cuh"
#endif
#include "gpu/launch/launch.cuh"
#include "gpu/registry/kernel_registry.hpp"

namespace tilescope {

#ifdef TILESCOPE_HAS_SM90
namespace {

using gpu::sm90::WgmmaType;

template <WgmmaType kType, typename Choice>
void launch_forward(const TileProgram& program, const KernelArguments& arguments, CUstream_st* stream) {
  const auto launch = arguments.log.states ? gpu::launch_flash3_forward<kType, Choice, true>
                                           : gpu::launch_flash3_forward<kType, Choice, false>;
  launch(gpu::flash3_forward_arguments<kType, Choice::shape>(program, arguments), multiprocessors(), stream);
}

/// The forward pass without a technique. It writes no tile log.
template <Variant kVariant>
void launch_variant(const TileProgram& program, const KernelArguments& arguments, CUstream_st* stream) {
  using Choice = Flash3ForwardVariant<kVariant>;
  gpu::launch_flash3_forward<WgmmaType::fp16, Choice, false>(
      gpu::flash3_forward_arguments<WgmmaType::fp16, Choice::shape>(program, arguments), multiprocessors(),
      stream);
}
void launch_variant(const TileProgram& program, const KernelArguments& arguments, CUstream_st* stream) {
  if (arguments.log.states) {
    throw BadInput("variant", std::string(to_string(program.variant)), "cannot be observed");
  }
  if constexpr (kHasTuner) {
    if (program.variant == Variant::no_ping_pong) {
      return launch_variant<Variant::no_ping_pong>(program, arguments, stream);
    }
    if (program.variant == Variant::no_overlap) {
      return launch_variant<Variant::no_overlap>(program, arguments, stream);
    }
    return launch_variant<Variant::serial>(program, arguments, stream);
  } else {
    throw MachineLacks(std::string(kTunerLack));
  }
}

template <WgmmaType kType, typename Choice>
void launch_backward(const TileProgram& program, const KernelArguments& arguments, CUstream_st* stream) {
  const auto launch = arguments.log.states ? gpu::launch_flash3_dkdvdq<kType, Choice, true>
                                           : gpu::launch_flash3_dkdvdq<kType, Choice, false>;
  const std::int64_t items = cta_for_each_item(program).size();
  const int ctas =
      static_cast<int>(Choice::shape.persistent ? std::min<std::int64_t>(items, multiprocessors()) : items);
  launch(gpu::flash3_backward_arguments<kType, Choice::shape>(program, arguments), ctas, stream);
}

template <WgmmaType kType, typename Choice>
void launch_fp8(const TileProgram& program, const KernelArguments& arguments, CUstream_st* stream) {
  auto* launch = gpu::launch_flash3_fp8_forward<kType, Choice, false>;
  if (arguments.log.states) {
    if constexpr (Choice::shape.sums == Fp8Sums::fast) {
      throw BadInput("fp8-sums", "fast",
                     "cannot be observed: " + std::string(Flash3::name) +
                         " is compiled for that with two-level sums alone");
    } else {
      launch = gpu::launch_flash3_fp8_forward<kType, Choice, true>;
    }
  }
  launch(gpu::flash3_fp8_arguments<Choice::shape>(arguments, program.splits), multiprocessors(), stream);
}

void launch_fp8_forward(const TileProgram& program, const KernelArguments& arguments, CUstream_st* stream) {
  const AttentionProblem& problem = program.problem;
  const auto by_tile = [&]<WgmmaType kType, int kHeadDim, Fp8Sums kSums>() {
    using Half = Flash3Fp8Choice<kHeadDim, kSums, true>;
    if constexpr (Half::shape != Flash3Fp8Choice<kHeadDim, kSums>::shape) {
      if (program.tile == Half::shape.tile) return launch_fp8<kType, Half>(program, arguments, stream);
    }
    return launch_fp8<kType, Flash3Fp8Choice<kHeadDim, kSums>>(program, arguments, stream);
  };
  const auto by_sums = [&]<WgmmaType kType, int kHeadDim>() {
    if (program.fp8_sums == Fp8Sums::fast) {
      return by_tile.template operator()<kType, kHeadDim, Fp8Sums::fast>();
    }
    return by_tile.template operator()<kType, kHeadDim, Fp8Sums::two_level>();
  };
  const auto by_dim = [&]<WgmmaType kType>() {
    if (problem.head_dim <= 64) return by_sums.template operator()<kType, 64>();
    if (problem.head_dim <= 128) return by_sums.template operator()<kType, 128>();
    return by_sums.template operator()<kType, 256>();
  };
  if (problem.dtype == ElementType::fp8e4m3) return by_dim.template operator()<WgmmaType::e4m3>();
  return by_dim.template operator()<WgmmaType::e5m2>();
}

/// Calls body.template operator()<type, compiled head dimension>().
template <typename Body>
void dispatch(const AttentionProblem& problem, Body&& body) {
  const std::int64_t dim = problem.head_dim;
  const auto by_dim = [&]<WgmmaType kType>() {
    if (dim <= 64) return body.template operator()<kType, 64>();
    if (dim <= 80) return body.template operator()<kType, 80>();
    if (dim <= 96) return body.template operator()<kType, 96>();
    if (dim <= 112) return body.template operator()<kType, 112>();
    if (dim <= 128) return body.template operator()<kType, 128>();
    if (dim <= 160) return body.template operator()<kType, 160>();
    if (dim <= 192) return body.template operator()<kType, 192>();
    if (dim <= 224) return body.template operator()<kType, 224>();
    return body.template operator()<kType, 256>();
  };
  if (problem.dtype == ElementType::fp16) return by_dim.template operator()<WgmmaType::fp16>();
  return by_dim.template operator()<WgmmaType::bf16>();
}

}  // namespace

void Flash3::launch(const TileProgram& program, const KernelArguments& arguments, CUstream_st* stream) {
  if (program.name == PassName::delta) return launch_delta(program, arguments, stream);
  if (program.name == PassName::init) return launch_init(program, arguments, stream, true);
  if (program.name == PassName::convert) return launch_convert(program, arguments, stream, true);
  if (program.name == PassName::combine) return launch_combine(program, arguments, stream);
  if (is_fp8(program.problem.dtype)) return launch_fp8_forward(program, arguments, stream);
  if (program.variant != Variant::own) return launch_variant(program, arguments, stream);
  dispatch(program.problem, [&]<WgmmaType kType, int kHeadDim>() {
    if (program.name == PassName::dkdvdq) {
      if (flash3_has_backward_tables(program.problem)) {
        return launch_backward<kType, Flash3BackwardTableChoice<(kHeadDim <= 64 ? 64 : 128)>>(
            program, arguments, stream);
      }
      constexpr int kBackwardDim = flash3_backward_shape(kHeadDim).head_dim;
      if (program.ordered) {
        return launch_backward<kType, Flash3BackwardChoice<kBackwardDim, true>>(program, arguments, stream);
      }
      if constexpr (Flash3BackwardChoice<kBackwardDim, false, true>::shape.persistent) {
        using Persistent = Flash3BackwardChoice<kBackwardDim, false, true>;
        if (program.persistent) return launch_backward<kType, Persistent>(program, arguments, stream);
      }
      return launch_backward<kType, Flash3BackwardChoice<kBackwardDim>>(program, arguments, stream);
    }
    if (flash3_has_tables(program.problem)) {
      return launch_forward<kType, Flash3TableChoice<(kHeadDim <= 64 ? 64 : 128)>>(program, arguments,
                                                                                   stream);
    }
    if (flash3_has_mods(program.problem)) {
      constexpr int kModsDim = flash3_mods_shape(kHeadDim).head_dim;
      return launch_forward<kType, Flash3ModsChoice<kModsDim>>(program, arguments, stream);
    }
    if (program.problem.page_size > 0) {
      constexpr int kPagedDim = flash3_paged_shape(kHeadDim).head_dim;
      return launch_forward<kType, Flash3PagedChoice<kPagedDim>>(program, arguments, stream);
    }
    if (flash3_has_values_shape(program.problem)) {
      return launch_forward<kType, Flash3ValuesChoice>(program, arguments, stream);
    }
    if (program.tile.block_m == 64) {
      constexpr int kLowDim = flash3_forward_shape(kHeadDim, Flash3Height::low).head_dim;
      return launch_forward<kType, Flash3ForwardChoice<kLowDim, true>>(program, arguments, stream);
    }
    constexpr Flash3ForwardShape kHalf = flash3_forward_shape(kHeadDim, Flash3Height::half);
    if constexpr (kHalf != flash3_forward_shape(kHeadDim)) {
      using Half = std::conditional_t<kHalf == flash3_forward_shape(kHalf.head_dim),
                                      Flash3ForwardChoice<kHalf.head_dim>, Flash3HalfChoice<kHeadDim>>;
      if (program.tile == kHalf.tile) return launch_forward<kType, Half>(program, arguments, stream);
    }
    launch_forward<kType, Flash3ForwardChoice<kHeadDim>>(program, arguments, stream);
  });
}
#else
void Flash3::launch(const TileProgram&, const KernelArguments&, CUstream_st*) {
  throw MachineLacks(std::string(name) +
                     " was not compiled: this build has no code for sm_90a; configure one with "
                     "-D CMAKE_CUDA_ARCHITECTURES=90a-real");
}
#endif

}  // namespace tilescope
