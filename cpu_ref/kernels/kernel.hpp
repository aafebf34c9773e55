// SPDX-License-Identifier: Apache-2.0
// One row of a kernel registry: what a kernel is called, what it supports, which program it executes, and how
// to run it. The CPU kernels' rows are in cpu_ref/kernels/cpu_kernels.cpp, the GPU kernels' in
// gpu/registry/kernel_registry.cpp.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cpu_ref/launch/tile_observer.hpp"
#include "cpu_ref/numeric/tensor.hpp"
#include "cpu_ref/schedule/problem.hpp"
#include "cpu_ref/schedule/tile_program.hpp"

namespace tilescope {

/// What the CTAs of one launch take of a GPU's SM.
struct LaunchShape {
  int threads_per_cta = 0;
  std::int64_t shared_bytes = 0;  // dynamic shared memory of a CTA
  int ctas_per_sm = 0;            // that its registers and threads leave room for; 0: not known
  bool operator==(const LaunchShape&) const = default;
};

struct Kernel {
  std::string_view name;     // "cpu:flash2"
  std::string_view summary;  // one line for `tilescope list kernels`
  Algorithm algorithm;
  std::vector<BackwardOrder> backward_orders;  // the first is the default; empty: algorithm has only one
  /// Why this kernel cannot run the problem in that direction, or nothing if it can.
  std::optional<std::string> (*refusal)(const AttentionProblem&, Direction, const ProgramOptions&);
  /// The tile shapes and orders that the kernel takes by itself.
  ProgramOptions (*default_options)(const AttentionProblem&);
  /// Runs the passes of one direction. Forward reads q, k, v and allocates and writes out, lse (flash1 also
  /// row_max, row_sum). Backward reads those and dout, and allocates and writes dq, dk, dv.
  /// Null where this build or machine cannot run the kernel.
  void (*run)(const ProgramOptions&, Direction, TensorSet&, TileObserver*);
  /// Threads and shared memory of a pass's CTAs on a GPU. Null for CPU kernels.
  LaunchShape (*launch_shape)(const TileProgram&) = nullptr;

  std::vector<TileProgram> programs(Direction direction, const AttentionProblem& problem,
                                    const ProgramOptions& options) const {
    return build_programs(algorithm, direction, problem, options);
  }
};

/// The kernels that run on this CPU: cpu:standard, cpu:flash1, cpu:flash2.
std::span<const Kernel> cpu_kernels();

}  // namespace tilescope
