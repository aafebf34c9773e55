// SPDX-License-Identifier: Apache-2.0
// Somebody's kernel, called with buffers and numbers: the way in without CUDA, for the command line and
// Python.
//
//   const ptx::Module module = read_ptx(text);
//   KernelCall call{.kernel = "add", .grid = {8}, .block = {128}};
//   call.arguments = {buffer_argument("x", x), buffer_argument("y", y), scalar_argument("n", n)};
//   const KernelResult result = call_kernel(module, call);   // y holds what the kernel wrote
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "emulator/counts/result_file.hpp"
#include "emulator/counts/store_runs.hpp"
#include "emulator/machine/launch_limits.hpp"

namespace tilescope::gpu::emulator {

/// A parameter of a kernel: a buffer, which becomes a checked allocation at the same place, or bytes as the
/// parameter holds them (a number, a struct, a tensor map).
struct Argument {
  /// Of a number whose type its caller knows: it must be the parameter's.
  enum class Number : std::uint8_t { any, whole, real };
  std::string name;               // in messages
  std::span<std::byte> buffer{};  // results are written in place
  bool is_buffer = false;
  std::vector<std::byte> value{};  // of what is no buffer
  Number number = Number::any;
  bool uninitialised =
      false;  // of a buffer: reads before writes there are findings, where races are looked for
};

template <class T>
Argument buffer_argument(std::string name, std::span<T> elements) {
  return {.name = std::move(name), .buffer = std::as_writable_bytes(elements), .is_buffer = true};
}
template <class T>
Argument scalar_argument(std::string name, const T& value) {
  const auto* const bytes = reinterpret_cast<const std::byte*>(&value);
  return {.name = std::move(name),
          .value = std::vector<std::byte>(bytes, bytes + sizeof(T)),
          .number = std::is_floating_point_v<T> ? Argument::Number::real
                    : std::is_integral_v<T>     ? Argument::Number::whole
                                                : Argument::Number::any};
}

struct KernelCall {
  std::string kernel{};  // its name, or a part of one that no other has; empty where there is but one
  Extent grid{}, block{}, cluster{};
  std::uint32_t shared_bytes = 0;  // dynamic
  std::vector<Argument> arguments{};
  /// More memory that the kernel may reach through pointers in structs and tensor maps.
  std::vector<Argument> reachable{};
  /// Registers of a thread, where somebody knows: they limit a CTA's threads, and how many an SM has at once.
  std::optional<int> registers{};
  /// How ptxas placed the kernel's stores, where somebody knows: L1 merges what arrives in a row.
  std::optional<StoreRuns> store_runs{};
  HostAttributes attributes{};
  Options options{};
  L2Listener* l2 = nullptr;  // told what SMs ask of the L2
};

/// @throws BadInput with line and text at PTX that is damaged or newer than what is known
ptx::Module read_ptx(std::string_view text);

/// The kernel of a call. @throws BadInput that names the kernels that there are
const ptx::Kernel& choose_kernel(const ptx::Module& module, std::string_view name);

/// What an instruction could not be decoded for, all of them: line, text and reason each. Empty where all
/// are known.
std::vector<std::string> unknown_instructions(const ptx::Kernel& kernel);

/// Runs it. What the kernel does wrong is a finding.
/// @throws BadInput where arguments do not fit the parameters, or the launch is none
ToldLaunch call_and_tell(const ptx::Module& module, const KernelCall& call);
/// The result alone.
KernelResult call_kernel(const ptx::Module& module, const KernelCall& call);

}  // namespace tilescope::gpu::emulator
