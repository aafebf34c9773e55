// SPDX-License-Identifier: Apache-2.0
// A library that passes for libcuda and libcupti on a machine without either: every function that the
// profiler looks for is there and succeeds without doing anything. Those that do something are in
// fake_cuda.cpp and fake_counters.cpp.
#include "profiler/counters/cupti_library.hpp"
#include "profiler/driver/driver_library.hpp"

extern "C" __attribute__((visibility("default"))) int tilescope_fake_success() { return 0; }

// Names alone: their types do not matter to who looks them up. A second level, for cuda.h's versioned names.
#define TILESCOPE_STUB_TEXT(name) asm(".weak " #name "\n.set " #name ", tilescope_fake_success\n");
#define TILESCOPE_STUB(name) TILESCOPE_STUB_TEXT(name)
TILESCOPE_CUPTI_FUNCTIONS(TILESCOPE_STUB)
TILESCOPE_DRIVER_FUNCTIONS(TILESCOPE_STUB)
