// SPDX-License-Identifier: Apache-2.0
// The instructions of a kernel in what `cuobjdump -sass` and `nvdisasm -c` print.
#pragma once

#include <functional>
#include <string_view>

namespace tilescope::gpu::emulator {

/// "LDG" and ".E.128 R4, [R2] ;" of "/*0040*/ @!P0 LDG.E.128 R4, [R2] ;".
struct SassLine {
  std::string_view opcode, operands;
};

/// Calls f for each instruction, in their order. @returns whether the kernel is there
bool for_sass_lines(std::string_view sass, std::string_view kernel,
                    const std::function<void(const SassLine&)>& f);

}  // namespace tilescope::gpu::emulator
