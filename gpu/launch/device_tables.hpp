// SPDX-License-Identifier: Apache-2.0
// What the host prepares for kernels beside the tensors of a problem, in device memory.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "gpu/launch/check_cuda.hpp"
#include "gpu/launch/device.hpp"
#include "gpu/launch/kernel_arguments.hpp"

namespace tilescope {

/// @param stream  the launches' own: it does not wait for the default one, whose copies may still be under
/// way when cudaMemcpy returns
template <typename Element>
DeviceBuffer uploaded(const std::string& name, const std::vector<Element>& elements, cudaStream_t stream) {
  const auto bytes = static_cast<std::int64_t>(elements.size() * sizeof(Element));
  DeviceBuffer buffer(name, std::max<std::int64_t>(bytes, sizeof(Element)));
  check_cuda(cudaMemcpyAsync(buffer.data(), elements.data(), static_cast<std::size_t>(bytes),
                             cudaMemcpyHostToDevice, stream),
             "uploading the " + name);
  return buffer;
}

/// VisitTables in device memory.
class DeviceVisitTables {
 public:
  /// @param program  a pass that walks them
  DeviceVisitTables(const TileProgram& program, cudaStream_t stream);
  DeviceVisits visits() const;

 private:
  DeviceBuffer blocks_, tiles_, bits_;
  int blocks_of_entry_;
};

}  // namespace tilescope
