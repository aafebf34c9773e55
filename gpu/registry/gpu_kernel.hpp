// SPDX-License-Identifier: Apache-2.0
// One rung of gpu/kernels/: a row of the registry and the function that launches its passes. Each rung has a
// plain C++ file with its row, built always, and .cu files with its kernels, built where nvcc is.
#pragma once

#include <concepts>
#include <string_view>
#include <vector>

#include "cpu_ref/kernels/kernel.hpp"
#include "gpu/launch/kernel_arguments.hpp"

struct CUstream_st;  // *cudaStream_t

namespace tilescope {

#ifdef TILESCOPE_HAS_CUDA
inline constexpr bool kHasCuda = true;
#else
inline constexpr bool kHasCuda = false;
#endif

/// Whether what kernels keep for the tuner is compiled: tile choices but the first, and diagonal slices.
#ifdef TILESCOPE_HAS_TUNER
inline constexpr bool kHasTuner = true;
#else
inline constexpr bool kHasTuner = false;
#endif

/// Enqueues one pass, of options that the row does not refuse.
using PassLauncher = void (*)(const TileProgram&, const KernelArguments&, CUstream_st*);

struct GpuKernel {
  Kernel row;
  PassLauncher launch;          // null in a build without CUDA
  bool tiles_of_tuner = false;  // its tile choices but the first are compiled with the tuner alone
};

/// The run path of every GPU kernel: refuses, uploads, poisons, launches, checks the guards, downloads.
/// @throws BadInput on a refusal, MachineLacks without a device that has what the passes need, DeviceError
/// when a CUDA call fails or a kernel wrote outside its buffers.
void run_on_device(const Kernel& row, PassLauncher launch, const ProgramOptions&, Direction, TensorSet&,
                   TileObserver*);

/// What a kernel's folder tells of it. launch() alone is defined in a .cu file; tile_choices() is left out by
/// those that are compiled for their default tiles alone, pass_choices() by those that run a tile in one way,
/// and launch_shape() takes a chip where it depends on
/// one.
template <typename Rung>
concept DescribesKernel = requires(const AttentionProblem& problem, const TileProgram& program) {
  { Rung::name } -> std::convertible_to<std::string_view>;
  { Rung::summary } -> std::convertible_to<std::string_view>;
  { Rung::algorithm } -> std::convertible_to<Algorithm>;
  { Rung::math_unit } -> std::convertible_to<MathUnit>;
  { Rung::rung } -> std::convertible_to<int>;
  { Rung::can } -> std::convertible_to<Capabilities>;
  { Rung::chips } -> std::convertible_to<ChipRange>;
  { Rung::backward_orders() } -> std::same_as<std::vector<BackwardOrder>>;
  { Rung::default_options(problem) } -> std::same_as<ProgramOptions>;
};

template <DescribesKernel Rung>
std::vector<TileShape> tile_choices_of(const AttentionProblem& problem, PassName pass) {
  if constexpr (requires { Rung::tile_choices(problem, pass); }) {
    return Rung::tile_choices(problem, pass);
  } else {
    return {Rung::default_options(problem)[pass].tile};
  }
}

template <DescribesKernel Rung>
std::vector<PassChoice> pass_choices_of(const AttentionProblem& problem, PassName pass) {
  if constexpr (requires { Rung::pass_choices(problem, pass); }) {
    return Rung::pass_choices(problem, pass);
  } else {
    std::vector<PassChoice> choices;
    for (const TileShape tile : tile_choices_of<Rung>(problem, pass)) choices.push_back({tile});
    return choices;
  }
}

template <DescribesKernel Rung>
LaunchShape launch_shape_of(const TileProgram& program, const Chip& chip) {
  if constexpr (requires { Rung::launch_shape(program, chip); }) {
    return Rung::launch_shape(program, chip);
  } else {
    return Rung::launch_shape(program);
  }
}

/// The registry row of the kernel that `Rung` describes.
template <DescribesKernel Rung>
GpuKernel make_gpu_kernel() {
  GpuKernel kernel{.row = {.name = Rung::name,
                           .summary = Rung::summary,
                           .algorithm = Rung::algorithm,
                           .math_unit = Rung::math_unit,
                           .rung = Rung::rung,
                           .backward_orders = Rung::backward_orders(),
                           .can = Rung::can,
                           .default_options = Rung::default_options,
                           .run = nullptr,
                           .tile_choices = tile_choices_of<Rung>,
                           .pass_choices = pass_choices_of<Rung>,
                           .launch_shape = launch_shape_of<Rung>,
                           .chips = Rung::chips},
                   .launch = nullptr};
  if constexpr (requires { Rung::fp8_sums(); }) kernel.row.fp8_sums = Rung::fp8_sums();
  if constexpr (requires { Rung::variants(); }) kernel.row.variants = Rung::variants();
  if constexpr (requires(TileProgram program) { Rung::boxes(program); }) kernel.row.boxes = Rung::boxes;
  if constexpr (requires(TileProgram program) { Rung::bit_reads(program); }) {
    kernel.row.bit_reads = Rung::bit_reads;
  }
  if constexpr (requires(TileProgram program) { Rung::warp_work(program); }) {
    kernel.row.warp_work = Rung::warp_work;
  }
  if constexpr (requires { Rung::tiles_of_tuner; }) kernel.tiles_of_tuner = Rung::tiles_of_tuner;
  if constexpr (requires { Rung::on_ranks; }) kernel.row.on_ranks = Rung::on_ranks;
  if constexpr (requires(AttentionProblem problem) { Rung::first_choice(problem); })
    kernel.row.first_choice = Rung::first_choice;
  if constexpr (requires(AttentionProblem problem, ProgramOptions options) { Rung::lack(problem, options); })
    kernel.row.forward_lack = Rung::lack;
  if constexpr (requires(AttentionProblem problem, ProgramOptions options) {
                  Rung::backward_lack(problem, options);
                }) {
    kernel.row.backward_lack = Rung::backward_lack;
  }
  if constexpr (requires { Rung::arithmetic; }) kernel.row.arithmetic = Rung::arithmetic;
  if constexpr (requires { Rung::smallest_part; }) {
    kernel.row.smallest_part = Rung::smallest_part;
    kernel.row.lacks_in_parts = Rung::lacks_in_parts;
  }
  if constexpr (kHasCuda) {
    kernel.launch = Rung::launch;
    kernel.row.run = [](const ProgramOptions& options, Direction direction, TensorSet& tensors,
                        TileObserver* observer) {
      static const Kernel row = make_gpu_kernel<Rung>().row;
      run_on_device(row, Rung::launch, options, direction, tensors, observer);
    };
  }
  return kernel;
}

}  // namespace tilescope
