// SPDX-License-Identifier: Apache-2.0
// OpenBLAS, where this machine has it: the matrix product that kernels are compared with.
#pragma once

#include <optional>
#include <string>

#include "profiler/driver/shared_object.hpp"

namespace tilescope {

class BlasLibrary {
 public:
  /// Nothing where the library is missing. OPENBLAS_CORETYPE is ignored. An OpenBLAS that is older than the
  /// CPU may take it for one of twenty years ago: it is told then which kernels the CPU can run.
  /// @param guess stands for what OpenBLAS takes the CPU for, in tests
  static std::optional<BlasLibrary> open(const std::string& guess = "");

  /// c = a * b, all (side, side) fp32 row-major, on `threads` threads.
  void square_product(int side, const float* a, const float* b, float* c, int threads) const;
  /// "OpenBLAS 0.3.21 SkylakeX": version and the machine that its kernels were written for.
  std::string description() const;

 private:
  using Sgemm = void (*)(int order, int transpose_a, int transpose_b, int m, int n, int k, float alpha,
                         const float* a, int lda, const float* b, int ldb, float beta, float* c, int ldc);
  explicit BlasLibrary(SharedObject library);
  static std::optional<BlasLibrary> load(const std::string& core);
  /// The machine that its kernels were written for: "Haswell".
  std::string core() const;

  SharedObject library_;
  Sgemm sgemm_ = nullptr;
  void (*set_num_threads_)(int) = nullptr;
};

}  // namespace tilescope
