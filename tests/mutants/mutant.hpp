// SPDX-License-Identifier: Apache-2.0
// What a program of mutants knows of one mutant, from tests/mutants/*/*.mutants.
#pragma once

#include <string>
#include <vector>

namespace tilescope {

struct Mutant {
  std::string name;
  std::string what;             // goes wrong
  std::string by;               // the check that sees it where the judge cannot, and why locate cannot know
  std::vector<std::string> at;  // "KERNEL PASS QUANTITY": what locate must say of this kernel
};

/// In the order of their numbers, from 1.
inline const std::vector<Mutant> kMutants = {
#include "mutant_list.inc"
};

}  // namespace tilescope
