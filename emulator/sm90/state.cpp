// SPDX-License-Identifier: Apache-2.0
#include "emulator/sm90/state.hpp"

#include <utility>

namespace tilescope::gpu::emulator {
namespace {

template <class State>
State& made(std::any& extension) {
  if (!extension.has_value()) extension = State();
  return *std::any_cast<State>(&extension);
}

}  // namespace

CtaState& state_of(Cta& cta) { return *std::any_cast<CtaState>(&cta.extension); }
ClusterState& state_of(Cluster& cluster) { return made<ClusterState>(cluster.extension); }
WarpState& state_of(Warp& warp) { return made<WarpState>(warp.extension); }

void issue(Cta& cta, const ptx::Instruction& instruction, AsyncOperation operation) {
  operation.effect = [effect = std::move(operation.effect), line = instruction.line] {
    try {
      effect();
    } catch (const Fault& fault) {
      Fault placed(std::string(fault.what()) + " (issued at line " + std::to_string(line) + ")", fault.lane,
                   fault.kind);
      placed.line = line;
      throw placed;
    }
  };
  if (!cta.run.options.adversary) return operation.effect();
  operation.late = cta.run.random.below(2) == 1;
  cta.async.push(std::move(operation));
}

}  // namespace tilescope::gpu::emulator
