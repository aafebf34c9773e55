// SPDX-License-Identifier: Apache-2.0
// The vendor's own matrix product, through a cuBLASLt that is found at run time: the best figure for the
// tensor cores that this machine offers.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <memory>

namespace tilescope {

enum class MatrixType { fp16, bf16, fp8e4m3 };

/// c = transpose(a) * b for square matrices of `size` columns, accumulated in fp32.
class MatrixProduct {
 public:
  /// @throws MachineLacks without cuBLASLt, or if it has no kernel for the type on this device
  MatrixProduct(MatrixType type, std::int64_t size);
  ~MatrixProduct();
  MatrixProduct(const MatrixProduct&) = delete;
  MatrixProduct& operator=(const MatrixProduct&) = delete;

  /// @param a, b (size, size) of the type; c (size, size) of 16 bits (bf16 for fp8e4m3, else the type)
  void launch(const void* a, const void* b, void* c, cudaStream_t stream) const;
  /// Two a multiply-add.
  double flops() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tilescope
