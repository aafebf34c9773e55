// SPDX-License-Identifier: Apache-2.0
// Empties L2 by reading: afterwards it holds lines of a private buffer, none of them dirty. A memset would do
// it too, but leaves dirty lines that are written back, and counted, during whatever runs next.
#pragma once

#include <memory>

#include "profiler/driver/driver_library.hpp"

namespace tilescope {

/// The buffer and kernel for one context.
class EvictionSweep {
 public:
  /// Takes device memory of kSweptL2Multiples times the L2. The context must be current.
  /// @throws MachineLacks, DriverError
  explicit EvictionSweep(std::shared_ptr<const DriverLibrary> driver);
  ~EvictionSweep();
  EvictionSweep(const EvictionSweep&) = delete;
  EvictionSweep& operator=(const EvictionSweep&) = delete;

  /// Enqueues one sweep.
  void enqueue(CUstream stream) const;
  std::size_t bytes() const { return bytes_; }

 private:
  std::shared_ptr<const DriverLibrary> driver_;
  CUmodule module_ = nullptr;
  CUfunction kernel_ = nullptr;
  CUdeviceptr buffer_ = 0;
  std::size_t bytes_ = 0;
  unsigned blocks_ = 0;
};

}  // namespace tilescope
