// SPDX-License-Identifier: Apache-2.0
// What a pass is launched with, from the program that it executes. Plain C++, built with and without CUDA.
#pragma once

#include <set>
#include <vector>

#include "gpu/launch/kernel_arguments.hpp"

namespace tilescope {

/// The tensors that these passes touch.
std::set<TensorName> tensors_of(const std::vector<TileProgram>& programs);

/// All but what lies in memory: the tensors, the work counter, tables, numbers of heads and logs.
KernelArguments pass_arguments(const TileProgram& program);

}  // namespace tilescope
