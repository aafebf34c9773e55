// SPDX-License-Identifier: Apache-2.0
#include "common/pattern.hpp"

#include <regex>

namespace tilescope {
namespace {

std::regex::flag_type flags(Pattern::Search search) {
#ifdef __GLIBCXX__
  if (search == Pattern::Search::all_at_once)
    return std::regex::ECMAScript | std::regex_constants::__polynomial;
#endif
  static_cast<void>(search);
  return std::regex::ECMAScript;
}

std::vector<std::string> groups(const std::smatch& found) { return {found.begin(), found.end()}; }

}  // namespace

struct Pattern::Compiled {
  std::regex expression;
};

Pattern::Pattern(const std::string& expression, Search search)
    : compiled_(std::make_shared<Compiled>(Compiled{std::regex(expression, flags(search))})) {}

bool Pattern::matches(const std::string& text) const { return std::regex_match(text, compiled_->expression); }

std::vector<std::string> Pattern::match(const std::string& text) const {
  std::smatch found;
  std::regex_match(text, found, compiled_->expression);
  return groups(found);
}

std::vector<std::string> Pattern::find(const std::string& text) const {
  std::smatch found;
  std::regex_search(text, found, compiled_->expression);
  return groups(found);
}

std::string Pattern::replace(const std::string& text, const std::string& with) const {
  return std::regex_replace(text, compiled_->expression, with);
}

}  // namespace tilescope
