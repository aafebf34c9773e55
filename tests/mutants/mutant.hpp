// SPDX-License-Identifier: Apache-2.0
// What a program of mutants knows of one mutant, from tests/mutants/*/*.mutants.
#pragma once

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "cpu_ref/judge/locate.hpp"

namespace tilescope {

struct Mutant {
  std::string name;
  std::string what;             // goes wrong
  std::string by;               // the check that sees it where the judge cannot, and why locate cannot know
  std::vector<std::string> at;  // "KERNEL PASS QUANTITY TILE" that locate must blame; the end may be left out
  std::string needs = "";  // of the processor, without which what is mutated does not run; empty: nothing
};

/// In the order of their numbers, from 1.
inline const std::vector<Mutant> kMutants = {
#include "tests/mutants/mutant_list.inc"
};

/// "PASS QUANTITY b0 h1 m2 n3": the last are batch, head, m_block and n_block.
inline std::string place_of(const Divergence& where) {
  std::string place = std::string(to_string(where.pass)) + " " + where.quantity;
  for (const auto& [name, index] :
       {std::pair{'b', where.batch}, {'h', where.head}, {'m', where.m_block}, {'n', where.n_block}}) {
    if (index >= 0) (place += ' ') += name + std::to_string(index);
  }
  return place;
}

/// Whether `check` is one of those in "CHECK[ or CHECK]: WHY". A race ends in whichever of them comes first.
inline bool is_declared(const std::string& check, const std::string& by) {
  const std::string checks = by.substr(0, by.find(':'));
  for (std::size_t begin = 0; begin < checks.size();) {
    const std::size_t end = std::min(checks.find(" or ", begin), checks.size());
    if (check.starts_with(checks.substr(begin, end - begin))) return true;
    begin = end + 4;
  }
  return false;
}

/// What of a mutant's declarations did not come true; empty: nothing.
/// @param check  what saw it first; empty: nothing did
/// @param at  as place_of() says it, by kernel that was refused
inline std::string broken_promise(const Mutant& mutant, const std::string& check,
                                  const std::map<std::string, std::string>& at) {
  if (check.empty()) return "SURVIVES";
  if (mutant.at.empty() && mutant.by.empty()) return "declares nothing";
  if (!mutant.by.empty()) {
    return is_declared(check, mutant.by) ? "" : "declared: by " + mutant.by;
  }
  for (const std::string& declared : mutant.at) {
    const std::size_t space = declared.find(' ');
    const auto found = at.find(declared.substr(0, space));
    const bool so = found != at.end() && (found->second + " ").starts_with(declared.substr(space + 1) + " ");
    if (!so) return "declared: at " + declared + (found == at.end() ? "" : ", located: " + found->second);
  }
  return "";
}

}  // namespace tilescope
