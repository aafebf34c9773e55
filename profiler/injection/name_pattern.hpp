// SPDX-License-Identifier: Apache-2.0
// A user's regular expression, searched in names that other people's programs make: those of C++ templates
// may be tens of thousands of characters long, and the threads that launch them may have small stacks.
#pragma once

#include <string>

#include "common/errors.hpp"
#include "common/pattern.hpp"

namespace tilescope {

class NamePattern {
 public:
  /// @param expression ECMAScript regular expression without back-references; empty: every name has it
  /// @throws std::runtime_error as Pattern does
  explicit NamePattern(const std::string& expression)
      : all_(expression.empty()), pattern_(whole(expression)) {}

  bool in_all() const { return all_; }
  bool in(const std::string& name) const { return all_ || pattern_.matches(name); }

 private:
  static Pattern whole(const std::string& expression) {
    const Pattern valid(expression, Pattern::Search::all_at_once);
    // Searching would begin anew at each character; matching the whole name goes through it once.
    return Pattern("[\\s\\S]*(?:" + expression + ")[\\s\\S]*", Pattern::Search::all_at_once);
  }

  bool all_;
  Pattern pattern_;
};

/// The pattern that a user typed as `option`. @throws BadInput naming it where it is none
inline NamePattern parse_name_pattern(const std::string& option, const std::string& expression) {
  try {
    return NamePattern(expression);
  } catch (const std::runtime_error& error) {
    throw BadInput(option, expression, std::string("must be a regular expression (") + error.what() + ")");
  }
}

}  // namespace tilescope
