// SPDX-License-Identifier: Apache-2.0
// The two errors that a user can cause, each with its own exit code on the command line.
#pragma once

#include <stdexcept>
#include <string>

namespace tilescope {

/// Input that no kernel could accept. The message names the field, its value and what is allowed
/// (exit code 2 on the command line).
class BadInput : public std::invalid_argument {
 public:
  BadInput(const std::string& field, const std::string& value, const std::string& allowed)
      : std::invalid_argument(field + " = " + value + ": " + allowed) {}
  explicit BadInput(const std::string& sentence) : std::invalid_argument(sentence) {}
};

/// Something this machine lacks: a device, a permission, memory. The message says what would work instead
/// (exit code 3 on the command line).
class MachineLacks : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace tilescope
