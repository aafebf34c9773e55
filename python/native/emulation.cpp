// SPDX-License-Identifier: Apache-2.0
#include "python/native/emulation.hpp"

#include <algorithm>
#include <thread>

#include "analysis/records/run_record.hpp"
#include "common/demangle.hpp"
#include "common/errors.hpp"
#include "emulator/kernel_call.hpp"
#include "emulator/sm90/tensor_map.hpp"
#include "profiler/records/kernel_record.hpp"

namespace tilescope::python {
namespace {

namespace emulator = gpu::emulator;

emulator::Extent extent(const std::array<unsigned, 3>& of) { return {of[0], of[1], of[2]}; }

std::vector<emulator::Argument> arguments_of(const std::vector<GivenArgument>& given) {
  std::vector<emulator::Argument> arguments;
  for (const auto& [name, address, bytes, value] : given) {
    emulator::Argument& argument = arguments.emplace_back();
    argument.name = name;
    argument.is_buffer = address != 0;
    if (argument.is_buffer) {
      argument.buffer = {reinterpret_cast<std::byte*>(address), bytes};
    } else {
      const auto* const data = reinterpret_cast<const std::byte*>(value.data());
      argument.value.assign(data, data + value.size());
    }
  }
  return arguments;
}

std::int64_t number(std::uint64_t value) { return static_cast<std::int64_t>(value); }

EmulatedLine line_of(const emulator::LineCounts& counts) {
  return {.file = counts.place.file,
          .line = counts.place.line > 0 ? counts.place.line : counts.place.ptx_line,
          .text = counts.text.substr(0, 120),
          .instructions = number(counts.instructions),
          .requests = number(counts.requests),
          .asked_bytes = number(counts.asked_bytes),
          .sectors = number(counts.sectors),
          .least_sectors = number(counts.least_sectors),
          .read_bytes = number(counts.read_bytes),
          .write_bytes = number(counts.write_bytes),
          .least_write_bytes = number(counts.least_write_bytes),
          .l1_hit_bytes = number(counts.l1_hit_bytes),
          .beyond_tensor_bytes = number(counts.beyond_tensor_bytes),
          .shared_requests = number(counts.shared_requests),
          .wavefronts = number(counts.wavefronts),
          .least_wavefronts = number(counts.least_wavefronts)};
}

EmulatedKernel part_of(const emulator::KernelResult& result) {
  const emulator::KernelCounts& counts = result.counts;
  EmulatedKernel kernel;
  kernel.completed = result.completed;
  kernel.must_read_bytes = number(counts.must_read_bytes);
  kernel.must_write_bytes = number(counts.must_write_bytes);
  kernel.least_read_bytes = number(counts.least_read_bytes);
  kernel.least_write_bytes = number(counts.least_write_bytes);
  kernel.constant_bytes = number(counts.constant_bytes);
  kernel.seconds = result.seconds;
  kernel.notes = counts.notes;
  for (const emulator::LineCounts& line : counts.lines) kernel.lines.push_back(line_of(line));
  for (const emulator::Finding& finding : result.findings) {
    EmulatedFinding& told = kernel.findings.emplace_back();
    told = {to_string(finding.kind), is_error(finding.kind), {}, finding.text};
    for (const emulator::SourceLine& line : finding.lines) told.places.push_back(line.text());
  }
  return kernel;
}

std::string record_of(const std::vector<std::string>& argv, const emulator::ptx::Module& module,
                      const emulator::KernelCall& call, const emulator::KernelResult& result) {
  const auto extents = [](const emulator::Extent& of) {
    return std::array<std::int64_t, 3>{of.x, of.y, of.z};
  };
  const emulator::ptx::Kernel& kernel = emulator::choose_kernel(module, call.kernel);
  KernelRecord record;
  KernelMeasurement& measurement = record.kernels.emplace_back();
  measurement.name = demangle(result.kernel);
  measurement.launch.grid = extents(call.grid);
  measurement.launch.block = extents(call.block);
  if (call.cluster.count() > 1) measurement.launch.cluster = extents(call.cluster);
  measurement.launch.registers = call.registers;
  measurement.launch.shared_bytes =
      kernel.static_shared_end - emulator::ptx::kSharedBegin + std::int64_t{call.shared_bytes};
  measurement.launch.local_bytes = kernel.local_bytes;
  measurement.measured = result.counts.metrics;
  measurement.emulated = part_of(result);
  record.argv = argv;
  record.when = utc_now();
  record.metrics = "traffic";
  record.complete = result.completed;
  record.collections = {{.device = "an emulated device",
                         .chip = module.target,
                         .driver = "none",
                         .replay = "emulated",
                         .passes = 1,
                         .l2 = "none"}};
  record.messages = result.counts.notes;
  return to_json_text(record);
}

}  // namespace

std::pair<std::string, std::vector<std::uint64_t>> kernel_parameters(const std::string& ptx,
                                                                     const std::string& kernel) {
  const emulator::ptx::Module module = emulator::read_ptx(ptx);
  const emulator::ptx::Kernel& chosen = emulator::choose_kernel(module, kernel);
  std::vector<std::uint64_t> bytes;
  for (const emulator::ptx::Variable& parameter : chosen.parameters) bytes.push_back(parameter.bytes);
  return {chosen.name, bytes};
}

EmulationResult emulate(const EmulationRequest& request) {
  const emulator::ptx::Module module = emulator::read_ptx(request.ptx);
  emulator::KernelCall call;
  call.kernel = request.kernel;
  call.grid = extent(request.grid);
  call.block = extent(request.block);
  call.cluster = extent(request.cluster);
  call.shared_bytes = request.shared_bytes;
  call.arguments = arguments_of(request.arguments);
  call.reachable = arguments_of(request.reachable);
  call.registers = request.registers;
  call.options.races = request.races;
  call.options.seed = request.seed;
  call.options.most_seconds = request.most_seconds;
  call.options.threads = static_cast<int>(std::max(std::thread::hardware_concurrency(), 1u));
  const emulator::KernelResult result = emulator::call_kernel(module, call);
  return {record_of(request.argv, module, call, result), result.report.steps, result.report.printed};
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
