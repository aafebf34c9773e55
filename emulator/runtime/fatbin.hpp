// SPDX-License-Identifier: Apache-2.0
// The fat binary that nvcc leaves in an object: one or more machine codes and PTX texts of a source.
#pragma once

#include <string_view>
#include <vector>

namespace tilescope::gpu::emulator {

struct PtxText {
  int compute_capability;  // that it is for, e.g. 90
  std::string_view text;   // stands in the fat binary
};

/// @param wrapper  what a program registers: a magic number and a pointer to the fat binary
/// @return its PTX texts; machine code is passed over
/// @throws std::runtime_error where it is no fat binary, or a text in it is compressed
std::vector<PtxText> ptx_texts(const void* wrapper);

}  // namespace tilescope::gpu::emulator
