// SPDX-License-Identifier: Apache-2.0
// The page table as kernels on a device load it: rows are whole sectors, so that several entries come at
// once.
#pragma once

#include "cpu_ref/schedule/kv_pages.hpp"

namespace tilescope {

/// The same table with rows to the end of their last sector; behind the given entries they name no page.
KvPageTable in_whole_sectors(const KvPageTable& table);

}  // namespace tilescope
