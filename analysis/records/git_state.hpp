// SPDX-License-Identifier: Apache-2.0
// What a program was built from; the build writes its source, git_state.cpp.
#pragma once

#include <optional>
#include <string>

namespace tilescope {

/// The commit that the program was built from; "unknown" without dirty flag outside a git checkout.
struct GitState {
  std::string sha;
  std::optional<bool> dirty;
  bool operator==(const GitState&) const = default;
};

GitState built_from();
/// SHA-256 over names and hashes of the sources that decide what a simulation says.
std::string model_sha256();

}  // namespace tilescope
