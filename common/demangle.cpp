// SPDX-License-Identifier: Apache-2.0
#include "common/demangle.hpp"

#include <cxxabi.h>

#include <cstdlib>
#include <memory>

namespace tilescope {

std::string demangle(const std::string& symbol) {
  if (!symbol.starts_with("_Z")) return symbol;  // of "f" it would make "float"
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> name(
      abi::__cxa_demangle(symbol.c_str(), nullptr, nullptr, &status), &std::free);
  return status == 0 ? name.get() : symbol;
}

}  // namespace tilescope
