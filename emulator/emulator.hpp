// SPDX-License-Identifier: Apache-2.0
// The emulated device: executes launches of parsed PTX on the CPU.
#pragma once

#include "emulator/machine/handlers.hpp"
#include "emulator/machine/launch.hpp"
#include "emulator/machine/memory.hpp"

namespace tilescope::gpu::emulator {

/// What executes which instruction, those of sm_90a included.
const HandlerTable& all_handlers();

/// Executes a launch with all handlers.
Report run(const Launch& launch, const Memory& memory, const Options& options);

}  // namespace tilescope::gpu::emulator
