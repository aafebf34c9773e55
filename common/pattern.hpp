// SPDX-License-Identifier: Apache-2.0
// Regular expressions of ECMAScript. std::regex is compiled in one file: each that names it takes longer by a
// second and a half.
#pragma once

#include <memory>
#include <string>
#include <vector>

namespace tilescope {

class Pattern {
 public:
  enum class Search {
    first_way,    // recurses once for each character of the text
    all_at_once,  // without back-references; needs no stack for long texts
  };
  /// @throws std::runtime_error (a std::regex_error) that says what is wrong with the expression
  explicit Pattern(const std::string& expression, Search search = Search::first_way);

  /// Whether it is all of the text.
  bool matches(const std::string& text) const;
  /// The text and its groups where the pattern is all of it, else nothing; a group that took no part is
  /// empty.
  std::vector<std::string> match(const std::string& text) const;
  /// The same of the first place where the text has it.
  std::vector<std::string> find(const std::string& text) const;
  /// The text with `with` (groups as $1) in each of these places.
  std::string replace(const std::string& text, const std::string& with) const;

 private:
  struct Compiled;
  std::shared_ptr<const Compiled> compiled_;
};

}  // namespace tilescope
