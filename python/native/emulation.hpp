// SPDX-License-Identifier: Apache-2.0
// Kernels on the emulated device, on memory that Python owns.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace tilescope::python {

/// A name; the address and the bytes of a buffer, or address 0 and a parameter's bytes as they are.
using GivenArgument = std::tuple<std::string, std::uintptr_t, std::uint64_t, std::string>;

struct EmulationRequest {
  std::vector<std::string> argv;  // of the record
  std::string ptx, kernel;
  std::array<unsigned, 3> grid, block, cluster;
  std::vector<GivenArgument> arguments, reachable;
  std::vector<std::uintptr_t> uninitialised;  // addresses of buffers
  std::uint32_t shared_bytes = 0;
  std::optional<std::uint32_t> max_dynamic_shared;
  bool non_portable_cluster = false;
  std::optional<int> registers;
  std::string sass;  // as cuobjdump or nvdisasm print it; may be empty
  bool races = false;
  std::uint64_t seed = 1;
  double most_seconds = 0;
};

/// The bytes of a parameter, and its type as PTX has it, "u32"; "" of a struct.
using ParameterShape = std::pair<std::uint64_t, std::string>;
/// The kernel that is meant, and its parameters. @throws BadInput
std::pair<std::string, std::vector<ParameterShape>> kernel_parameters(const std::string& ptx,
                                                                      const std::string& kernel);

struct EmulationResult {
  std::string record;  // of schema tilescope.kernels/1
  std::uint64_t instructions = 0;
  std::string printed;
};

/// @throws BadInput, what call_kernel() throws
EmulationResult emulate(const EmulationRequest& request);

/// The 128 bytes of a tensor map, numbers as of cuTensorMapEncodeTiled. @throws BadInput where none can be so
std::string tensor_map(std::uintptr_t address, int type, const std::vector<std::uint64_t>& extents,
                       const std::vector<std::uint64_t>& strides, const std::vector<std::uint32_t>& box,
                       int swizzle, bool fill_nan);

}  // namespace tilescope::python
