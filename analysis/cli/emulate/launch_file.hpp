// SPDX-License-Identifier: Apache-2.0
// launch.json: what `tilescope emulate` launches, with which arguments, and what must come of it.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "analysis/cli/emulate/elements.hpp"
#include "emulator/kernel_call.hpp"

namespace tilescope::cli {

/// Memory with nothing allocated round it, so that an access beyond it reaches no other argument.
class GuardedBuffer {
 public:
  explicit GuardedBuffer(std::size_t bytes);
  GuardedBuffer(GuardedBuffer&&) = default;
  GuardedBuffer& operator=(GuardedBuffer&&) = default;
  std::span<std::byte> bytes() { return {begin_, bytes_}; }
  std::span<const std::byte> bytes() const { return {begin_, bytes_}; }

 private:
  std::vector<std::byte> memory_;
  std::byte* begin_;
  std::size_t bytes_;
};

/// A parameter that is an array.
struct ArrayArgument {
  std::string name;
  const ElementFormat* format = nullptr;
  GuardedBuffer buffer;
  std::optional<std::vector<double>> expected;  // of the kernel's results
  double tolerance = 0;
  bool uninitialised = false;  // filled with none
};

struct LaunchFile {
  gpu::emulator::KernelCall call;  // its buffers are those of `arrays`
  std::vector<ArrayArgument> arrays;
};

/// Files that it names are looked for beside it.
/// @throws BadInput naming file and field
LaunchFile read_launch_file(const std::string& path);

}  // namespace tilescope::cli
