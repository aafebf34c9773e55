// SPDX-License-Identifier: Apache-2.0
// Where NVIDIA's libraries may lie: the CUDA toolkit, the loader's search path, a Python environment.
#pragma once

#include <string>
#include <vector>

#include "profiler/driver/shared_object.hpp"

namespace tilescope {

/// Files and bare names to try for a library, in order. @param names its file names, the best first
/// @param python_package NVIDIA's package of it for CUDA 12, "cuda_cupti"; CUDA 13's are in one folder
std::vector<std::string> library_candidates(const std::vector<std::string>& names,
                                            const std::string& python_package);

/// The copy that this process has loaded already, or the first candidate that can be loaded.
/// @throws MachineLacks with what was tried
SharedObject find_library(const std::vector<std::string>& names, const std::string& python_package);

/// The first of `places` that can be loaded; empty if none can, with the loader's reasons in `tried`.
SharedObject open_first(const std::vector<std::string>& places, std::string& tried);
/// The copy of one of `names` that this process has loaded already; empty if there is none.
SharedObject already_loaded(const std::vector<std::string>& names);

}  // namespace tilescope
