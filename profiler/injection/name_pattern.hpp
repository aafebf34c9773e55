// SPDX-License-Identifier: Apache-2.0
// A user's regular expression, searched in names that other people's programs make: those of C++ templates
// may be tens of thousands of characters long, and the threads that launch them may have small stacks.
#pragma once

#include <regex>
#include <string>

#include "common/errors.hpp"

namespace tilescope {

class NamePattern {
 public:
  /// @param expression ECMAScript regular expression without back-references; empty: every name has it
  /// @throws std::regex_error
  explicit NamePattern(const std::string& expression) : all_(expression.empty()) {
    const std::regex valid(expression, kAllWaysAtOnce);
    // Searching would begin anew at each character; matching the whole name goes through it once.
    expression_.assign("[\\s\\S]*(?:" + expression + ")[\\s\\S]*", kAllWaysAtOnce);
  }

  bool in_all() const { return all_; }
  bool in(const std::string& name) const { return all_ || std::regex_match(name, expression_); }

 private:
#ifdef __GLIBCXX__
  // By default libstdc++ recurses once for each character of the name.
  static constexpr auto kAllWaysAtOnce = std::regex::ECMAScript | std::regex_constants::__polynomial;
#else
  static constexpr auto kAllWaysAtOnce = std::regex::ECMAScript;
#endif

  bool all_;
  std::regex expression_;
};

/// The pattern that a user typed as `option`. @throws BadInput naming it where it is none
inline NamePattern parse_name_pattern(const std::string& option, const std::string& expression) {
  try {
    return NamePattern(expression);
  } catch (const std::regex_error& error) {
    throw BadInput(option, expression, std::string("must be a regular expression (") + error.what() + ")");
  }
}

}  // namespace tilescope
