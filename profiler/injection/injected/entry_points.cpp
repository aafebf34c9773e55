// SPDX-License-Identifier: Apache-2.0
// libtilescope_inject.so as others see it: the CUDA driver loads it into every process that has
// CUDA_INJECTION64_PATH set, and calls InitializeInjection inside cuInit; NVTX does likewise.
#include <pthread.h>

#include <cstdlib>
#include <exception>

#include "profiler/injection/injected/injection.hpp"
#include "profiler/injection/injected/nvtx_ranges.hpp"

namespace tilescope {
namespace {

/// C interfaces without user data need the one object from here.
Injection*& instance() {
  static Injection* injection = nullptr;
  return injection;
}

}  // namespace
}  // namespace tilescope

/// Called by NVTX at its first use in each library of the process. Returns 1 if its ranges will be heard.
extern "C" __attribute__((visibility("default"))) int InitializeInjectionNvtx2(
    const void* (*get_export_table)(std::uint32_t)) {
  try {
    return tilescope::connect_nvtx(get_export_table, tilescope::nvtx_ranges()) ? 1 : 0;
  } catch (const std::exception&) {
    return 0;
  }
}

/// Called by the CUDA driver. Returns 1 whatever happens: the process must run.
extern "C" __attribute__((visibility("default"))) int InitializeInjection() {
  using namespace tilescope;
  try {
    const auto request = request_from_environment();
    if (!request || instance()) return 1;
    instance() = new Injection(*request);  // never deleted: callbacks may come until the very end
    instance()->begin();
    std::atexit([] { instance()->finish(); });
    pthread_atfork(nullptr, nullptr, [] { instance()->abandon(); });
  } catch (const std::exception&) {
    return 1;  // there is nowhere to say it
  }
  return 1;
}
