// SPDX-License-Identifier: Apache-2.0
// Stands in for what touches a device in a build made without nvcc.
#include "gpu/launch/pass_runner.hpp"
#include "gpu/registry/kernel_registry.hpp"

namespace tilescope {

struct PassRunner::State {};

PassRunner::PassRunner(const GpuKernel&, const AttentionProblem&, Direction, const ProgramOptions&,
                       std::optional<std::uint64_t>) {
  throw MachineLacks(*device_lack());
}
PassRunner::~PassRunner() = default;
const std::vector<TileProgram>& PassRunner::programs() const { throw MachineLacks(*device_lack()); }
std::int64_t PassRunner::device_bytes() const { throw MachineLacks(*device_lack()); }
void PassRunner::launch(std::size_t, CUstream_st*) { throw MachineLacks(*device_lack()); }
void PassRunner::prepare(std::size_t, CUstream_st*) { throw MachineLacks(*device_lack()); }
Tensor PassRunner::head(TensorName, std::int64_t) { throw MachineLacks(*device_lack()); }
StepTimes PassRunner::time_steps(std::size_t, int) { throw MachineLacks(*device_lack()); }
std::vector<double> PassRunner::clock_rates(std::size_t) { throw MachineLacks(*device_lack()); }
std::map<int, double> PassRunner::busy_cycles(std::size_t) { throw MachineLacks(*device_lack()); }
bool PassRunner::has_step_clock() { return false; }
void PassRunner::check() { throw MachineLacks(*device_lack()); }

}  // namespace tilescope
