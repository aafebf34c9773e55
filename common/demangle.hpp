// SPDX-License-Identifier: Apache-2.0
// Names of functions as C++ has them.
#pragma once

#include <string>

namespace tilescope {

/// "f(int*)" of "_Z1fPi"; what is no name of a C++ function stays as it is.
std::string demangle(const std::string& symbol);

}  // namespace tilescope
