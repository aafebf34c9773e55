// SPDX-License-Identifier: Apache-2.0
// Results of launches in a file, by which a program on the emulated runtime tells who started it. A row a
// fact, its columns between tabs.
#pragma once

#include <istream>
#include <ostream>
#include <vector>

#include "emulator/observed_launch.hpp"

namespace tilescope::gpu::emulator {

/// What a record tells of a launch beside its result.
struct LaunchFacts {
  Extent grid, block, cluster;
  std::int64_t shared_bytes = 0, local_bytes = 0;  // shared: of a CTA, static and dynamic
  std::optional<int> registers;
  std::string target;  // of the PTX
};
LaunchFacts facts_of(const ptx::Module& module, const Launch& launch, std::optional<int> registers = {});

struct ToldLaunch {
  LaunchFacts facts;
  KernelResult result;
};

void write_result(std::ostream& out, const LaunchFacts& facts, const KernelResult& result);
/// In their order. @throws BadInput for what write_result() did not write
std::vector<ToldLaunch> read_results(std::istream& in);

}  // namespace tilescope::gpu::emulator
