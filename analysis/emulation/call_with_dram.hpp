// SPDX-License-Identifier: Apache-2.0
// Somebody's kernel on the emulated device with what it moves at DRAM: sectors that it touches at all where
// the L2 keeps them, else what a replay of them through the L2's model says.
#pragma once

#include "emulator/kernel_call.hpp"

namespace tilescope {

/// Runs a call. Its metrics have dram_read_bytes and dram_write_bytes too, of a cold L2 that is flushed at
/// the end, and what of them is modelled is a note. @throws as call_and_tell()
gpu::emulator::ToldLaunch call_with_dram(const gpu::emulator::ptx::Module& module,
                                         gpu::emulator::KernelCall call);

}  // namespace tilescope
