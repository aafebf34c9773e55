// SPDX-License-Identifier: Apache-2.0
#include "gpu/primitives/sm90/encode_tensor_map.hpp"

#include <cuda_runtime.h>

#include <stdexcept>
#include <string>

#include "common/errors.hpp"
#include "gpu/launch/device_error.hpp"

namespace tilescope::gpu::sm90 {
namespace {

using EncodeTiled = decltype(&cuTensorMapEncodeTiled);

EncodeTiled encode_function() {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found{};
  constexpr unsigned kSince = 12000;  // CUDA 12.0
  const cudaError_t status = cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, kSince,
                                                              cudaEnableDefault, &found);
  if (status != cudaSuccess || found != cudaDriverEntryPointSuccess) {
    throw MachineLacks("this driver has no tensor maps (cuTensorMapEncodeTiled); one of CUDA 12 has");
  }
  return reinterpret_cast<EncodeTiled>(function);
}

CUtensorMapDataType driver_type(MapElement element) {
  switch (element) {
    case MapElement::fp16:
      return CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
    case MapElement::bf16:
      return CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
    case MapElement::fp32:
      return CU_TENSOR_MAP_DATA_TYPE_FLOAT32;
    case MapElement::bytes:
      return CU_TENSOR_MAP_DATA_TYPE_UINT8;
  }
  throw std::invalid_argument("not an element of tensor maps");
}

CUtensorMapSwizzle driver_swizzle(Swizzle swizzle) {
  switch (swizzle) {
    case Swizzle::none:
      return CU_TENSOR_MAP_SWIZZLE_NONE;
    case Swizzle::bytes32:
      return CU_TENSOR_MAP_SWIZZLE_32B;
    case Swizzle::bytes64:
      return CU_TENSOR_MAP_SWIZZLE_64B;
    case Swizzle::bytes128:
      return CU_TENSOR_MAP_SWIZZLE_128B;
  }
  throw std::invalid_argument("not a swizzle of tensor maps");
}

}  // namespace

CUtensorMap encode_tensor_map(const TensorMapParameters& parameters, const void* base) {
  if (const auto rule = broken_rule(parameters, reinterpret_cast<std::uint64_t>(base))) {
    throw BadInput("no tensor map: " + *rule);
  }
  static const EncodeTiled encode = encode_function();
  constexpr cuuint32_t kUnitSteps[5] = {1, 1, 1, 1, 1};
  cuuint64_t extent[5], strides[5];
  cuuint32_t box[5];
  for (std::size_t i = 0; i < 5; ++i) {
    extent[i] = parameters.extent[i];
    strides[i] = parameters.stride_bytes[i];
    box[i] = parameters.box[i];
  }
  // Not the result itself: the driver asks for 64 bytes of alignment, which GCC does not give a temporary
  // that the caller has for it.
  struct {
    CUtensorMap map;
  } aligned;
  const CUresult status =
      encode(&aligned.map, driver_type(parameters.element), static_cast<cuuint32_t>(parameters.rank),
             const_cast<void*>(base), extent, strides + 1, box, kUnitSteps, CU_TENSOR_MAP_INTERLEAVE_NONE,
             driver_swizzle(parameters.swizzle), CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
             CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (status != CUDA_SUCCESS) {
    throw DeviceError("cuTensorMapEncodeTiled refused a tensor map: error " + std::to_string(status));
  }
  return aligned.map;
}

}  // namespace tilescope::gpu::sm90
