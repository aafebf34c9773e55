// SPDX-License-Identifier: Apache-2.0
#include "emulator/emulator.hpp"

#include "emulator/sm90/handlers.hpp"

namespace tilescope::gpu::emulator {

const HandlerTable& all_handlers() {
  static const HandlerTable table = [] {
    HandlerTable handlers;
    add_ordinary_handlers(handlers);
    add_sm90_handlers(handlers);
    return handlers;
  }();
  return table;
}

Report run(const Launch& launch, const Memory& memory, const Options& options) {
  return run(launch, memory, options, all_handlers());
}

}  // namespace tilescope::gpu::emulator
