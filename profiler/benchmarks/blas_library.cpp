// SPDX-License-Identifier: Apache-2.0
#include "profiler/benchmarks/blas_library.hpp"

#include <cstdlib>
#include <sstream>
#include <utility>

namespace tilescope {

BlasLibrary::BlasLibrary(SharedObject library)
    : library_(std::move(library)),
      sgemm_(reinterpret_cast<Sgemm>(library_.symbol("cblas_sgemm"))),
      set_num_threads_(reinterpret_cast<void (*)(int)>(library_.symbol("openblas_set_num_threads"))) {}

std::optional<BlasLibrary> BlasLibrary::open() {
  // OpenBLAS chooses the kernels that suit the machine, unless this variable has it take others, which would
  // make the product slower than it can be and the comparison worthless.
  ::unsetenv("OPENBLAS_CORETYPE");
  for (const char* name : {"libopenblas.so.0", "libopenblas.so"}) {
    BlasLibrary library(SharedObject::open(name));
    if (library.library_ && library.sgemm_ != nullptr && library.set_num_threads_ != nullptr) return library;
  }
  return std::nullopt;
}

void BlasLibrary::square_product(int side, const float* a, const float* b, float* c, int threads) const {
  constexpr int kRowMajor = 101, kNotTransposed = 111;  // of cblas.h
  set_num_threads_(threads);
  sgemm_(kRowMajor, kNotTransposed, kNotTransposed, side, side, side, 1.0f, a, side, b, side, 0.0f, c, side);
}

std::string BlasLibrary::description() const {
  const auto text = [&](const char* function) -> std::string {
    const auto get = reinterpret_cast<char* (*)()>(library_.symbol(function));
    return get == nullptr ? "" : get();
  };
  std::istringstream config(text("openblas_get_config"));  // "OpenBLAS 0.3.21 NO_LAPACKE DYNAMIC_ARCH ..."
  std::string name, version;
  config >> name >> version;
  return name + " " + version + " " + text("openblas_get_corename");
}

}  // namespace tilescope
