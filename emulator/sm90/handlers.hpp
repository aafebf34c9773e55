// SPDX-License-Identifier: Apache-2.0
// The instructions that sm_90a adds, a family a file.
#pragma once

#include "emulator/machine/handlers.hpp"

namespace tilescope::gpu::emulator {

void add_sm90_handlers(HandlerTable& table);

void add_wgmma_handlers(HandlerTable& table);
void add_copy_handlers(HandlerTable& table);         // boxes
void add_bulk_handlers(HandlerTable& table);         // runs of bytes
void add_async_store_handlers(HandlerTable& table);  // registers to a cluster's shared memory
void add_tensormap_handlers(HandlerTable& table);
void add_mbarrier_handlers(HandlerTable& table);
void add_cluster_handlers(HandlerTable& table);  // clusters, fences, registers, dependent grids

}  // namespace tilescope::gpu::emulator
