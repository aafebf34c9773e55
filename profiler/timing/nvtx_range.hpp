// SPDX-License-Identifier: Apache-2.0
// Names a phase of the program for Nsight's tools. Costs next to nothing when no tool listens, and nothing
// where NVTX's headers are missing.
#pragma once

#if __has_include(<nvtx3/nvToolsExt.h>)
#include <nvtx3/nvToolsExt.h>
#define TILESCOPE_HAS_NVTX 1
#endif

namespace tilescope {

/// A range of this thread from here to the end of the scope.
class NvtxRange {
 public:
#ifdef TILESCOPE_HAS_NVTX
  explicit NvtxRange(const char* name) { nvtxRangePushA(name); }
  ~NvtxRange() { nvtxRangePop(); }
#else
  explicit NvtxRange(const char*) {}
#endif
  NvtxRange(const NvtxRange&) = delete;
  NvtxRange& operator=(const NvtxRange&) = delete;
};

}  // namespace tilescope
