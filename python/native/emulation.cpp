// SPDX-License-Identifier: Apache-2.0
#include "python/native/emulation.hpp"

#include <algorithm>
#include <thread>

#include "analysis/emulation/call_with_dram.hpp"
#include "analysis/emulation/emulated_record.hpp"
#include "common/errors.hpp"
#include "emulator/kernel_call.hpp"
#include "emulator/ptx/names.hpp"
#include "emulator/sm90/tensor_map.hpp"

namespace tilescope::python {
namespace {

namespace emulator = gpu::emulator;

emulator::Extent extent(const std::array<unsigned, 3>& of) { return {of[0], of[1], of[2]}; }

std::vector<emulator::Argument> arguments_of(const std::vector<GivenArgument>& given,
                                             const std::vector<std::uintptr_t>& uninitialised) {
  std::vector<emulator::Argument> arguments;
  for (const auto& [name, address, bytes, value] : given) {
    emulator::Argument& argument = arguments.emplace_back();
    argument.name = name;
    argument.is_buffer = address != 0;
    if (argument.is_buffer) {
      argument.buffer = {reinterpret_cast<std::byte*>(address), bytes};
      argument.uninitialised = std::ranges::find(uninitialised, address) != uninitialised.end();
    } else {
      const auto* const data = reinterpret_cast<const std::byte*>(value.data());
      argument.value.assign(data, data + value.size());
    }
  }
  return arguments;
}

}  // namespace

std::pair<std::string, std::vector<ParameterShape>> kernel_parameters(const std::string& ptx,
                                                                      const std::string& kernel) {
  const emulator::ptx::Module module = emulator::read_ptx(ptx);
  const emulator::ptx::Kernel& chosen = emulator::choose_kernel(module, kernel);
  std::vector<ParameterShape> shapes;
  for (const emulator::ptx::Variable& parameter : chosen.parameters)
    shapes.emplace_back(parameter.bytes, parameter.is_array ? "" : emulator::ptx::name_of(parameter.type));
  return {chosen.name, shapes};
}

EmulationResult emulate(const EmulationRequest& request) {
  const emulator::ptx::Module module = emulator::read_ptx(request.ptx);
  emulator::KernelCall call;
  call.kernel = request.kernel;
  call.grid = extent(request.grid);
  call.block = extent(request.block);
  call.cluster = extent(request.cluster);
  call.shared_bytes = request.shared_bytes;
  call.arguments = arguments_of(request.arguments, request.uninitialised);
  call.reachable = arguments_of(request.reachable, request.uninitialised);
  call.attributes = {request.max_dynamic_shared, request.non_portable_cluster};
  call.registers = request.registers;
  call.store_runs =
      emulator::store_runs_in_sass(request.sass, emulator::choose_kernel(module, request.kernel).name);
  call.options.races = request.races;
  call.options.seed = request.seed;
  call.options.most_seconds = request.most_seconds;
  call.options.threads = static_cast<int>(std::max(std::thread::hardware_concurrency(), 1u));
  const emulator::ToldLaunch told = call_with_dram(module, call);
  return {to_json_text(emulated_record(request.argv, {told}, "")), told.result.report.steps,
          told.result.report.printed};
}

std::string tensor_map(std::uintptr_t address, int type, const std::vector<std::uint64_t>& extents,
                       const std::vector<std::uint64_t>& strides, const std::vector<std::uint32_t>& box,
                       int swizzle, bool fill_nan) {
  alignas(64) char bytes[emulator::kTensorMapBytes];
  const std::vector<std::uint32_t> steps(box.size(), 1);
  if (extents.size() != box.size() || strides.size() + 1 != box.size() ||
      emulator::encode_tensor_map(
          bytes, {type, static_cast<std::uint32_t>(box.size()), address, extents.data(), strides.data(),
                  box.data(), steps.data(), 0, swizzle, 0, fill_nan}) != 0) {
    throw BadInput("a tensor map that no device takes: see cuTensorMapEncodeTiled for what it may be");
  }
  return {bytes, sizeof bytes};
}

}  // namespace tilescope::python
