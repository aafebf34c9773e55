// SPDX-License-Identifier: Apache-2.0
// Places in shared memory as people know them: from its first byte, and by the variable that lies there.
#pragma once

#include <cstdint>
#include <string>

#include "emulator/ptx/module.hpp"

namespace tilescope::gpu::emulator {

/// "byte 16 of shared memory (byte 8 of tile)", or "(tile[2])" where PTX says what an element is.
/// @param offset  as threads see it, behind what the system keeps
/// @param kernel  whose variables are looked through; may be null
std::string shared_place(const ptx::Kernel* kernel, std::uint32_t offset);

}  // namespace tilescope::gpu::emulator
