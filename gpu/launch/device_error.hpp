// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdexcept>

namespace tilescope {

/// A CUDA call that failed, or a kernel that wrote where it must not: a defect, not the user's doing.
class DeviceError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace tilescope
