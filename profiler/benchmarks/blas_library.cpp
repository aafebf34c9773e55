// SPDX-License-Identifier: Apache-2.0
#include "profiler/benchmarks/blas_library.hpp"

#include <cstdlib>
#include <sstream>
#include <utility>

#include "profiler/benchmarks/fma_rate.hpp"

namespace tilescope {
namespace {

/// What a function without arguments says; empty where the library has no such function.
std::string text_of(const SharedObject& library, const char* function) {
  const auto get = reinterpret_cast<char* (*)()>(library.symbol(function));
  return get == nullptr ? "" : get();
}

/// Elements of the vectors that OpenBLAS's kernels for a machine multiply and add in one instruction.
int lanes_of(const std::string& core) {
  for (const char* wide : {"SkylakeX", "Cooperlake", "SapphireRapids"}) {
    if (core == wide) return 16;
  }
  for (const char* half : {"Haswell", "Zen", "Excavator", "Steamroller", "Piledriver"}) {
    if (core == half) return 8;
  }
  return 1;
}

}  // namespace

BlasLibrary::BlasLibrary(SharedObject library)
    : library_(std::move(library)),
      sgemm_(reinterpret_cast<Sgemm>(library_.symbol("cblas_sgemm"))),
      set_num_threads_(reinterpret_cast<void (*)(int)>(library_.symbol("openblas_set_num_threads"))) {}

std::optional<BlasLibrary> BlasLibrary::open(const std::string& guess) {
  std::optional<BlasLibrary> library = load(guess);
  if (!library || lanes_of(library->core()) >= fma_lanes()) return library;
  library.reset();  // it chooses when it is loaded
  return load(fma_lanes() == 16 ? "SkylakeX" : "Haswell");
}

std::optional<BlasLibrary> BlasLibrary::load(const std::string& core) {
  // OpenBLAS chooses the kernels that suit the machine, unless this variable has it take others.
  if (core.empty()) {
    ::unsetenv("OPENBLAS_CORETYPE");
  } else {
    ::setenv("OPENBLAS_CORETYPE", core.c_str(), 1);
  }
  for (const char* name : {"libopenblas.so.0", "libopenblas.so"}) {
    BlasLibrary library(SharedObject::open_for_a_while(name));
    if (library.library_ && library.sgemm_ != nullptr && library.set_num_threads_ != nullptr) return library;
  }
  return std::nullopt;
}

void BlasLibrary::square_product(int side, const float* a, const float* b, float* c, int threads) const {
  constexpr int kRowMajor = 101, kNotTransposed = 111;  // of cblas.h
  set_num_threads_(threads);
  sgemm_(kRowMajor, kNotTransposed, kNotTransposed, side, side, side, 1.0f, a, side, b, side, 0.0f, c, side);
}

std::string BlasLibrary::core() const { return text_of(library_, "openblas_get_corename"); }

std::string BlasLibrary::description() const {
  // "OpenBLAS 0.3.21 NO_LAPACKE DYNAMIC_ARCH ..."
  std::istringstream config(text_of(library_, "openblas_get_config"));
  std::string name, version;
  config >> name >> version;
  return name + " " + version + " " + core();
}

}  // namespace tilescope
