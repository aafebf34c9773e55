// SPDX-License-Identifier: Apache-2.0
// How a device gets the sums of a program from kernels that round what they give: which launches leave their
// results where nobody else adds, so that these need no sum, and which leave parts that one pass merges.
#pragma once

#include <vector>

#include "distributed/schedule/distributed_program.hpp"

namespace tilescope {

/// Parts of out that one pass merges at the end; more are merged into fp32 sums as they come.
inline constexpr int kMostParts = 4;

/// Where a launch leaves out, dk or dv, in the element type.
enum class OutputPlacement : std::uint8_t {
  result,  // in the result: of these rows it is all, or the first part, which the others are merged into
  part,    // in a buffer of its own, which a later operation takes
  store,   // in a buffer of its own, widened into sums at once: the first of them
  add,     // the same, added to the sums; of out merged
};

struct LaunchPlan {
  OutputPlacement out = OutputPlacement::add, dk = OutputPlacement::add, dv = OutputPlacement::add;
  bool makes_delta = false;  // of its query rows, which the launches before it have not all
};

struct MovePlan {
  bool nothing = false;        // its result is there already, or its parts have nothing
  std::vector<int> parts;      // launches whose parts it takes in place of `from`
  bool clears_source = false;  // of an addition: somebody adds to it again
};

struct AccumulationPlan {
  std::vector<LaunchPlan> launches;  // by operation
  std::vector<MovePlan> moves;       // by operation
  std::vector<int> result;           // by buffer of sums: that of the rounded result, -1: none
  std::vector<bool> exists;          // by buffer: memory is needed
  std::vector<int> cleared;          // buffers that hold 0 before the first operation
  std::vector<int> emptied;          // of lse: -inf before the first operation
};

AccumulationPlan plan_accumulation(const DistributedProgram& program);

/// Forward, launches that leave results or parts write nothing in common, and need not wait for each other;
/// whoever waited for the later one waits for both.
void drop_waits_between_parts(DistributedProgram& program, const AccumulationPlan& plan);

}  // namespace tilescope
