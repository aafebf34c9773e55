// SPDX-License-Identifier: Apache-2.0
// The two errors that a user can cause, each with its own exit code on the command line.
#pragma once

#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace tilescope {

/// Input that no kernel could accept. The message names the field, its value and what is allowed
/// (exit code 2 on the command line).
class BadInput : public std::invalid_argument {
 public:
  BadInput(const std::string& field, const std::string& value, const std::string& allowed)
      : std::invalid_argument(field + " = " + value + ": " + allowed),
        field_(field),
        value_(value),
        allowed_(allowed) {}
  explicit BadInput(const std::string& sentence) : std::invalid_argument(sentence) {}

  /// The parts of the message; empty where it is one sentence.
  const std::string& field() const { return field_; }
  const std::string& value() const { return value_; }
  const std::string& allowed() const { return allowed_; }

 private:
  std::string field_, value_, allowed_;
};

/// A name that stands for nothing.
class UnknownName : public BadInput {
 public:
  UnknownName(const std::string& field, const std::string& value, const std::string& allowed,
              std::vector<std::string> nearest)
      : BadInput(field, value, allowed), nearest_(std::move(nearest)) {}
  /// What it was probably meant to be, best first; may be empty.
  const std::vector<std::string>& nearest() const { return nearest_; }

 private:
  std::vector<std::string> nearest_;
};

/// Something this machine lacks: a device, a permission, memory. The message says what would work instead
/// (exit code 3 on the command line).
class MachineLacks : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace tilescope
