// SPDX-License-Identifier: Apache-2.0
#include "emulator/emulator.hpp"

#include "emulator/machine/handlers.hpp"
#include "emulator/sm90/handlers.hpp"

namespace tilescope::gpu::emulator {

Report run(const Launch& launch, const Memory& memory, const Options& options) {
  static const HandlerTable table = [] {
    HandlerTable handlers;
    add_ordinary_handlers(handlers);
    add_sm90_handlers(handlers);
    return handlers;
  }();
  return run(launch, memory, options, table);
}

}  // namespace tilescope::gpu::emulator
