// SPDX-License-Identifier: Apache-2.0
// The one function of the driver that launches need: it encodes tensor maps.
#include <cuda.h>
#include <cuda_runtime_api.h>

#include <string_view>
#include <type_traits>

#include "emulator/runtime/errors.hpp"
#include "emulator/sm90/tensor_map.hpp"

namespace {

CUresult encode_tiled(CUtensorMap* map, CUtensorMapDataType type, cuuint32_t rank, void* address,
                      const cuuint64_t* extent, const cuuint64_t* strides, const cuuint32_t* box,
                      const cuuint32_t* element_strides, CUtensorMapInterleave interleave,
                      CUtensorMapSwizzle swizzle, CUtensorMapL2promotion l2_promotion,
                      CUtensorMapFloatOOBfill fill) {
  return static_cast<CUresult>(
      tilescope::gpu::emulator::encode_tensor_map(map, {.type = type,
                                                        .rank = rank,
                                                        .address = reinterpret_cast<std::uint64_t>(address),
                                                        .extent = extent,
                                                        .strides = strides,
                                                        .box = box,
                                                        .element_strides = element_strides,
                                                        .interleave = interleave,
                                                        .swizzle = swizzle,
                                                        .l2_promotion = l2_promotion,
                                                        .fill = fill}));
}

}  // namespace

extern "C" cudaError_t cudaGetDriverEntryPointByVersion(const char* name, void** function, unsigned,
                                                        unsigned long long,
                                                        cudaDriverEntryPointQueryResult* result) {
  static_assert(std::is_same_v<decltype(&encode_tiled), decltype(&cuTensorMapEncodeTiled)>);
  const bool known = std::string_view(name) == "cuTensorMapEncodeTiled";
  *function = known ? reinterpret_cast<void*>(&encode_tiled) : nullptr;
  *result = known ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
  return tilescope::gpu::emulator::stuck_failure();
}
