// SPDX-License-Identifier: Apache-2.0
// Kernels on the emulated device, on memory that Python owns.
#include <nanobind/stl/array.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <thread>

#include "analysis/emulation/call_with_dram.hpp"
#include "analysis/emulation/emulated_record.hpp"
#include "common/errors.hpp"
#include "emulator/kernel_call.hpp"
#include "emulator/ptx/names.hpp"
#include "emulator/sm90/tensor_map.hpp"
#include "python/native/bindings.hpp"
#include "python/native/watched.hpp"

namespace tilescope::python {
namespace {

namespace emulator = gpu::emulator;

/// A name; the address and the bytes of a buffer, or address 0 and a parameter's bytes as they are.
using GivenArgument = std::tuple<std::string, std::uintptr_t, std::uint64_t, nb::bytes>;

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
      const auto* const data = static_cast<const std::byte*>(value.data());
      argument.value.assign(data, data + value.size());
    }
  }
  return arguments;
}

/// The bytes of a parameter, and its type as PTX has it, "u32"; "" of a struct.
using ParameterShape = std::pair<std::uint64_t, std::string>;
/// The kernel that is meant, and its parameters. @throws BadInput
std::pair<std::string, std::vector<ParameterShape>> kernel_parameters(const std::string& ptx,
                                                                      const std::string& kernel) {
  const emulator::ptx::Module module = emulator::read_ptx(ptx);
  const emulator::ptx::Kernel& chosen = emulator::choose_kernel(module, kernel);
  std::vector<ParameterShape> shapes;
  for (const emulator::ptx::Variable& parameter : chosen.parameters)
    shapes.emplace_back(parameter.bytes, parameter.is_array ? "" : emulator::ptx::name_of(parameter.type));
  return {chosen.name, shapes};
}

/// A record of schema tilescope.kernels/1, the instructions that were executed, and what was printed.
/// @param uninitialised  addresses of buffers @param sass  as cuobjdump or nvdisasm print it; may be empty
/// @throws BadInput, what call_kernel() throws
std::tuple<std::string, std::uint64_t, nb::bytes> emulate(
    const std::vector<std::string>& argv, const std::string& ptx, const std::string& kernel,
    std::array<unsigned, 3> grid, std::array<unsigned, 3> block, std::array<unsigned, 3> cluster,
    const std::vector<GivenArgument>& arguments, const std::vector<GivenArgument>& reachable,
    const std::vector<std::uintptr_t>& uninitialised, std::uint32_t shared,
    std::optional<std::uint32_t> max_dynamic_shared, bool non_portable_cluster, std::optional<int> registers,
    const std::string& sass, bool races, std::uint64_t seed, double most_seconds) {
  emulator::KernelCall call;
  call.kernel = kernel;
  call.grid = extent(grid);
  call.block = extent(block);
  call.cluster = extent(cluster);
  call.shared_bytes = shared;
  call.arguments = arguments_of(arguments, uninitialised);
  call.reachable = arguments_of(reachable, uninitialised);
  call.attributes = {max_dynamic_shared, non_portable_cluster};
  call.registers = registers;
  call.options.races = races;
  call.options.seed = seed;
  call.options.most_seconds = most_seconds;
  call.options.threads = static_cast<int>(std::max(std::thread::hardware_concurrency(), 1u));
  std::string record;
  emulator::Report report;
  run_without_gil([&] {
    const emulator::ptx::Module module = emulator::read_ptx(ptx);
    call.store_runs = emulator::store_runs_in_sass(sass, emulator::choose_kernel(module, kernel).name);
    const emulator::ToldLaunch told = call_with_dram(module, call);
    record = to_json_text(emulated_record(argv, {told}, ""));
    report = told.result.report;
  });
  return {record, report.steps, nb::bytes(report.printed.data(), report.printed.size())};
}

/// The 128 bytes of a tensor map, numbers as of cuTensorMapEncodeTiled. @throws BadInput where none can be so
nb::bytes tensor_map(std::uintptr_t address, int type, const std::vector<std::uint64_t>& extents,
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
  return nb::bytes(bytes, sizeof bytes);
}

}  // namespace

void bind_emulation(nb::module_& module) {
  module.def("emulate", &emulate, "argv"_a, "ptx"_a, "kernel"_a, "grid"_a, "block"_a, "cluster"_a,
             "arguments"_a, "reachable"_a, "uninitialised"_a, "shared"_a, "max_dynamic_shared"_a.none(),
             "non_portable_cluster"_a, "registers"_a.none(), "sass"_a, "races"_a, "seed"_a, "most_seconds"_a);
  module.def("kernel_parameters", &kernel_parameters, "ptx"_a, "kernel"_a);
  module.def(
      "address_of",
      [](const nb::bytearray& memory) { return reinterpret_cast<std::uintptr_t>(memory.data()); },
      "memory"_a);
  module.def("tensor_map", &tensor_map, "address"_a, "type"_a, "extents"_a, "strides"_a, "box"_a, "swizzle"_a,
             "fill_nan"_a);
}

}  // namespace tilescope::python
