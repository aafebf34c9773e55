// SPDX-License-Identifier: Apache-2.0
// Stands in for what touches devices in a build made without nvcc.
#include "distributed/devices/device_ranks.hpp"
#include "gpu/registry/kernel_registry.hpp"

namespace tilescope {

struct DeviceRanks::State {};

std::shared_ptr<NcclRanks> connect_nccl(int) { throw MachineLacks(*device_lack()); }
std::shared_ptr<NcclRanks> connect_nccl(ProcessGroup&) { throw MachineLacks(*device_lack()); }
int device_of(const ProcessGroup&) { throw MachineLacks(*device_lack()); }
void require_devices(int) { throw MachineLacks(*device_lack()); }
DeviceRanks::DeviceRanks(const DistributedProgram&, const DeviceRankOptions&) {
  throw MachineLacks(*device_lack());
}
DeviceRanks::~DeviceRanks() = default;
void DeviceRanks::upload(const TensorSet&) {}
void DeviceRanks::download(TensorSet&) {}
void DeviceRanks::fill() {}
double DeviceRanks::run(int, int, WorkShare) { return 0; }
std::string_view DeviceRanks::kernel() const { return ""; }
std::vector<std::int64_t> DeviceRanks::memory_bytes() const { return {}; }

struct OneDevice::State {};

OneDevice::OneDevice(const GpuKernel&, const AttentionProblem&, Direction, int) {
  throw MachineLacks(*device_lack());
}
OneDevice::~OneDevice() = default;
double OneDevice::run(int, int) { return 0; }

}  // namespace tilescope
