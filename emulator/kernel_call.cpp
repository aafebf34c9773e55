// SPDX-License-Identifier: Apache-2.0
#include "emulator/kernel_call.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "common/errors.hpp"
#include "emulator/emulator.hpp"
#include "emulator/ptx/names.hpp"

namespace tilescope::gpu::emulator {
namespace {

constexpr std::uint64_t kMostRegisterBytes = 4ull << 30;  // of all warps that run side by side
constexpr std::size_t kMostNamed = 8;                     // in a sentence

/// "x of 8 bytes, n of 4 bytes"
std::string signature(const ptx::Kernel& kernel) {
  std::vector<std::string> words;
  for (const ptx::Variable& parameter : kernel.parameters)
    words.push_back(fmt::format("{} of {} bytes", parameter.name, parameter.bytes));
  return words.empty() ? "none" : fmt::format("{}", fmt::join(words, ", "));
}

/// Whether PTX says that a parameter is a whole number or a real one; nothing of structs and mere bits.
Argument::Number number_of(const ptx::Variable& parameter) {
  const char first = ptx::name_of(parameter.type).front();
  if (parameter.is_array || first == 'b') return Argument::Number::any;
  return first == 'f' ? Argument::Number::real : Argument::Number::whole;
}

void require_type(std::size_t place, const Argument& argument, const ptx::Variable& parameter) {
  using Number = Argument::Number;
  const Number wanted = number_of(parameter), given = argument.is_buffer ? Number::whole : argument.number;
  if (wanted == Number::any || given == Number::any || wanted == given) return;
  throw BadInput(
      fmt::format("argument {} ({})", place, argument.name),
      argument.is_buffer       ? "a buffer"
      : given == Number::whole ? "a whole number"
                               : "a floating-point number",
      fmt::format("must fit parameter {}, which is .{}", parameter.name, ptx::name_of(parameter.type)));
}

std::vector<std::byte> parameters_of(const ptx::Kernel& kernel, const std::vector<Argument>& arguments) {
  if (arguments.size() != kernel.parameters.size()) {
    throw BadInput("arguments", std::to_string(arguments.size()),
                   fmt::format("must be {}, as the parameters of {} are: {}", kernel.parameters.size(),
                               kernel.name, signature(kernel)));
  }
  std::vector<std::byte> parameters(kernel.parameter_bytes);
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const ptx::Variable& parameter = kernel.parameters[i];
    const Argument& argument = arguments[i];
    const auto* const address = argument.buffer.data();
    const std::size_t bytes = argument.is_buffer ? sizeof(address) : argument.value.size();
    if (bytes != parameter.bytes) {
      throw BadInput(fmt::format("argument {} ({})", i, argument.name),
                     argument.is_buffer ? "a buffer, a pointer of 8 bytes" : fmt::format("{} bytes", bytes),
                     fmt::format("must fit parameter {} of {} bytes", parameter.name, parameter.bytes));
    }
    require_type(i, argument, parameter);
    std::memcpy(parameters.data() + parameter.offset,
                argument.is_buffer ? static_cast<const void*>(&address) : argument.value.data(), bytes);
  }
  return parameters;
}

void require_launchable(const ptx::Module& module, const Launch& launch, const KernelCall& call) {
  const ChipLimits chip = limits_of_target(module.target);
  if (const auto refused = refusal_of(launch, call.attributes, call.registers, chip))
    throw BadInput(fmt::format("{} would not be launched: {}", launch.kernel->name, refused->text));
}

void require_known(const ptx::Kernel& kernel) {
  std::vector<std::string> unknown = unknown_instructions(kernel);
  if (unknown.empty()) return;
  const std::size_t count = unknown.size();
  unknown.resize(std::min(count, kMostNamed));
  throw BadInput(fmt::format("{} has {} instruction{} that {} not known: {}{}", kernel.name, count,
                             count == 1 ? "" : "s", count == 1 ? "is" : "are", fmt::join(unknown, "; "),
                             count > kMostNamed ? "; ..." : ""));
}

void require_memory(const Launch& launch, const Options& options) {
  const ptx::Kernel& kernel = *launch.kernel;
  const std::uint64_t warps = (launch.block.count() + ptx::kLanes - 1) / ptx::kLanes;
  const auto side_by_side = std::min<std::uint64_t>(
      launch.grid.count(), launch.cluster.count() *
                               static_cast<std::uint64_t>(std::max(options.resident_clusters, 1)) *
                               static_cast<std::uint64_t>(std::max(options.threads, 1)));
  const std::uint64_t bytes =
      warps * side_by_side * (kernel.register_bytes + std::uint64_t{kernel.local_bytes} * ptx::kLanes);
  if (bytes <= kMostRegisterBytes) return;
  throw BadInput(
      fmt::format("the registers and local memory of {} take {} B in each of {} warps; all that run side "
                  "by side may take {} B",
                  kernel.name, bytes / (warps * side_by_side), warps * side_by_side, kMostRegisterBytes));
}

void add(Memory& memory, const Argument& argument) {
  if (argument.is_buffer)
    memory.add(argument.buffer.data(), argument.buffer.size(), argument.name, argument.uninitialised);
}

}  // namespace

ptx::Module read_ptx(std::string_view text) {
  try {
    ptx::Module module = ptx::parse(text);
    if (module.kernels.empty()) throw BadInput("the PTX has no kernel (.entry)");
    return module;
  } catch (const BadInput&) {
    throw;
  } catch (const std::runtime_error& error) {
    throw BadInput(error.what());
  }
}

const ptx::Kernel& choose_kernel(const ptx::Module& module, std::string_view name) {
  if (const ptx::Kernel* const exact = module.find(name)) return *exact;
  std::vector<const ptx::Kernel*> with_part;
  std::vector<std::string> names;
  for (const auto& kernel : module.kernels) {
    if (kernel->name.find(name) != std::string::npos) with_part.push_back(kernel.get());
    if (names.size() < kMostNamed) names.push_back(kernel->name);
  }
  if (with_part.size() == 1) return *with_part.front();
  throw BadInput("kernel", name.empty() ? "(none)" : std::string(name),
                 fmt::format("must name one of {}: {}{}", module.kernels.size(), fmt::join(names, ", "),
                             module.kernels.size() > names.size() ? ", ..." : ""));
}

std::vector<std::string> unknown_instructions(const ptx::Kernel& kernel) {
  std::vector<std::string> unknown;
  std::set<std::string_view> told;  // opcodes, and texts that cannot be read
  for (const ptx::Instruction& instruction : kernel.instructions) {
    try {
      all_handlers().find(instruction);
    } catch (const std::runtime_error& error) {
      const std::string_view key = instruction.unknown.empty() ? instruction.opcode : instruction.text;
      if (told.insert(key).second) unknown.emplace_back(error.what());
    }
  }
  return unknown;
}

ToldLaunch call_and_tell(const ptx::Module& module, const KernelCall& call) {
  const ptx::Kernel& kernel = choose_kernel(module, call.kernel);
  require_known(kernel);
  Launch launch{.kernel = &kernel,
                .grid = call.grid,
                .block = call.block,
                .cluster = cluster_or_required(kernel, call.cluster),
                .dynamic_shared_bytes = call.shared_bytes,
                .parameters = parameters_of(kernel, call.arguments)};
  require_launchable(module, launch, call);
  require_memory(launch, call.options);
  // Triton has a bar.sync alone between mbarrier.init and the copies, and devices run what it compiles.
  Options options = call.options;
  options.fenced_initialisations = false;
  Memory memory;
  for (const Argument& argument : call.arguments) add(memory, argument);
  for (const Argument& argument : call.reachable) add(memory, argument);
  for (const ptx::Variable& variable : module.variables)
    memory.add(variable.data.get(), variable.bytes, variable.name);
  try {
    return {facts_of(module, launch, call.registers),
            observe(module, launch, memory, options, call.registers, call.l2, call.store_runs)};
  } catch (const DeviceError& error) {
    throw BadInput(error.what());
  } catch (const TakesTooLong& error) {
    throw BadInput(fmt::format("{}: {}", kernel.name, error.what()));
  }
}

KernelResult call_kernel(const ptx::Module& module, const KernelCall& call) {
  return call_and_tell(module, call).result;
}

}  // namespace tilescope::gpu::emulator
