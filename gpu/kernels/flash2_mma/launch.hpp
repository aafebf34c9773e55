// SPDX-License-Identifier: Apache-2.0
// The launches of gpu:flash2-mma by pass and features, each instantiated in a file of its own (the list is in
// gpu/CMakeLists.txt), so that they compile side by side.
#pragma once

#include <cstdint>
#include <type_traits>

#include "gpu/kernels/flash2_mma/shapes.hpp"
#include "gpu/registry/gpu_kernel.hpp"

namespace tilescope::sm80 {

/// What an instantiation can do beyond the plain pass. The general ones take rows of any alignment, know
/// padding and log the tiles that they visit; the others stay free of the registers and branches that this
/// costs. So do those that cut tiles finer where the mask does. `varied` is general, with what few problems
/// have: masks of runs and score modifiers. `paged`, forward alone, finds K and V in pages and knows padding;
/// `paged_observed` also logs its tiles. `values` is plain, for kMmaValueDims alone; values of whatever other
/// columns than keys go by the general ones.
enum class Features : std::uint8_t {
  plain,
  dropout,
  general,
  all,
  sliced,
  general_sliced,
  varied,
  paged,
  paged_observed,
  values
};
constexpr bool is_varied(Features f) { return f == Features::varied; }
constexpr bool is_paged(Features f) { return f == Features::paged || f == Features::paged_observed; }
constexpr bool has_dropout(Features f) {
  return f == Features::dropout || f == Features::all || is_varied(f);
}
constexpr bool cuts_tiles(Features f) { return f == Features::sliced || f == Features::general_sliced; }
constexpr bool is_general(Features f) {
  return f == Features::general || f == Features::all || f == Features::general_sliced || is_varied(f);
}
constexpr bool knows_padding(Features f) { return is_general(f) || is_paged(f); }
constexpr bool logs_tiles(Features f) { return is_general(f) || f == Features::paged_observed; }

/// What general instances are launched with: V, O and their gradients may have columns of their own number.
struct ValueArguments : KernelArguments {
  int value_dim = 1;
};
template <Features kFeatures, bool kHasValues = is_general(kFeatures) || kFeatures == Features::values>
struct LaunchedWith {
  using Arguments = KernelArguments;
};
template <Features kFeatures>
struct LaunchedWith<kFeatures, true> {
  using Arguments = ValueArguments;
};
template <Features kFeatures>
using ArgumentsOf = typename LaunchedWith<kFeatures>::Arguments;

template <Features kFeatures>
ArgumentsOf<kFeatures> arguments_of(const KernelArguments& common, const AttentionProblem& problem) {
  if constexpr (std::is_same_v<ArgumentsOf<kFeatures>, ValueArguments>) {
    return {common, static_cast<int>(problem.value_dim())};
  } else {
    return common;
  }
}

/// Columns of V, O and their gradients.
TILESCOPE_HOST_DEVICE inline int value_columns(const KernelArguments& args) { return args.head_dim; }
TILESCOPE_HOST_DEVICE inline int value_columns(const ValueArguments& args) { return args.value_dim; }

template <Features kFeatures>
void launch_flash2_mma_forward(const TileProgram&, LaunchShape, const KernelArguments&, CUstream_st*);
/// Passes dkdv and dkdvdq. Not instantiated for Features::general: `all` serves it too.
template <Features kFeatures>
void launch_flash2_mma_dkdv(const TileProgram&, LaunchShape, const KernelArguments&, CUstream_st*);
template <Features kFeatures>
void launch_flash2_mma_dq(const TileProgram&, LaunchShape, const KernelArguments&, CUstream_st*);

/// Passes dkdv and dq in one launch. Instantiated for `plain` and for `all`, which serves the others but
/// those that cut tiles.
template <Features kFeatures>
void launch_flash2_mma_single_launch(const TileProgram&, LaunchShape, const KernelArguments&, CUstream_st*);

/// Whether every row of the tensors that a pass copies is made of 16-byte chunks.
inline bool operands_in_chunks(const KernelArguments& args) {
  using enum TensorName;
  return rows_in_chunks(args, args[q], args[k], args[v], args[out], args[dout], args[dq], args[dk], args[dv],
                        args[dq_accum]);
}

/// Calls body.template operator()<element type, compiled head dimension>().
/// @tparam kFeatures  of the instance: `values` has one head dimension
template <Features kFeatures = Features::plain, typename Body>
void dispatch_mma(const AttentionProblem& problem, Body&& body) {
  const auto by_dim = [&]<ElementType kType>() {
    if constexpr (kFeatures == Features::values) {
      return body.template operator()<kType, kMmaValueDims.head_dim>();
    } else {
      const std::int64_t dim = mma_dim(problem);
      if (dim <= 64) return body.template operator()<kType, 64>();
      if (dim <= 128) return body.template operator()<kType, 128>();
      return body.template operator()<kType, 256>();
    }
  };
  if (problem.dtype == ElementType::fp16) return by_dim.template operator()<ElementType::fp16>();
  return by_dim.template operator()<ElementType::bf16>();
}

}  // namespace tilescope::sm80
