// SPDX-License-Identifier: Apache-2.0
// The emulated device: executes launches of parsed PTX on the CPU.
#pragma once

#include "emulator/machine/launch.hpp"
#include "emulator/machine/memory.hpp"

namespace tilescope::gpu::emulator {

/// Executes a launch with all handlers, those of sm_90a included.
Report run(const Launch& launch, const Memory& memory, const Options& options);

}  // namespace tilescope::gpu::emulator
