// SPDX-License-Identifier: Apache-2.0
#include "profiler/counters/link_throughput.hpp"

#include <array>
#include <cstdint>
#include <string>

#include "common/errors.hpp"
#include "profiler/driver/shared_object.hpp"

namespace tilescope {
namespace {

// What nvml.h declares, which a machine without NVIDIA's tools lacks.
using NvmlDevice = struct NvmlDeviceObject*;
struct NvmlField {
  unsigned id, scope;
  long long timestamp, latency;
  int value_type, status;
  std::uint64_t value;
};
constexpr unsigned kDataSent = 138, kDataReceived = 139, kRawSent = 140, kRawReceived = 141;
constexpr unsigned kAllLinks = ~0u;
constexpr int kSuccess = 0;
constexpr double kUnit = 1024;  // bytes

}  // namespace

struct LinkThroughput::State {
  SharedObject nvml, cuda;
  NvmlDevice device = nullptr;
  int (*get_fields)(NvmlDevice, int, NvmlField*) = nullptr;
};

LinkThroughput::LinkThroughput(int device_index) : state_(std::make_unique<State>()) {
  State& state = *state_;
  state.nvml = SharedObject::open("libnvidia-ml.so.1");
  state.cuda = SharedObject::open("libcuda.so.1");
  int (*initialize)() = nullptr;
  int (*by_bus_id)(const char*, NvmlDevice*) = nullptr;
  int (*start)(unsigned) = nullptr;
  int (*device_get)(int*, int) = nullptr;
  int (*bus_id)(char*, int, int) = nullptr;
  const bool found = state.nvml && state.cuda && state.nvml.resolve("nvmlInit_v2", initialize) &&
                     state.nvml.resolve("nvmlDeviceGetHandleByPciBusId_v2", by_bus_id) &&
                     state.nvml.resolve("nvmlDeviceGetFieldValues", state.get_fields) &&
                     state.cuda.resolve("cuInit", start) && state.cuda.resolve("cuDeviceGet", device_get) &&
                     state.cuda.resolve("cuDeviceGetPCIBusId", bus_id);
  std::array<char, 64> name{};
  int ordinal = 0;
  if (!found || initialize() != kSuccess || start(0) != kSuccess ||
      device_get(&ordinal, device_index) != kSuccess ||
      bus_id(name.data(), static_cast<int>(name.size()), ordinal) != kSuccess ||
      by_bus_id(name.data(), &state.device) != kSuccess) {
    throw MachineLacks("NVML, which counts the bytes of links, does not know GPU " +
                       std::to_string(device_index));
  }
  read();
}

LinkThroughput::~LinkThroughput() = default;
LinkThroughput::LinkThroughput(LinkThroughput&&) noexcept = default;

LinkCount LinkThroughput::read() const {
  std::array<NvmlField, 4> fields{};
  constexpr std::array<unsigned, 4> kIds = {kDataSent, kDataReceived, kRawSent, kRawReceived};
  for (std::size_t i = 0; i < fields.size(); ++i) {
    fields[i].id = kIds[i];
    fields[i].scope = kAllLinks;
  }
  const int status = state_->get_fields(state_->device, static_cast<int>(fields.size()), fields.data());
  for (const NvmlField& field : fields) {
    if (status == kSuccess && field.status == kSuccess) continue;
    throw MachineLacks("NVML does not count the bytes of this GPU's links (error " +
                       std::to_string(status == kSuccess ? field.status : status) + ")");
  }
  const auto bytes = [&](std::size_t i) { return kUnit * static_cast<double>(fields[i].value); };
  return {bytes(0), bytes(1), bytes(2), bytes(3)};
}

}  // namespace tilescope
