// SPDX-License-Identifier: Apache-2.0
// The element types of the GPU kernels, and their conversions to and from fp32.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <stdexcept>
#include <type_traits>

#include "cpu_ref/schedule/problem.hpp"

namespace tilescope {

__device__ inline float widen(float value) { return value; }
__device__ inline float widen(__half value) { return __half2float(value); }
__device__ inline float widen(__nv_bfloat16 value) { return __bfloat162float(value); }

/// Rounds to nearest even.
template <typename Element>
__device__ inline Element narrow(float value) {
  if constexpr (std::is_same_v<Element, float>) {
    return value;
  } else if constexpr (std::is_same_v<Element, __half>) {
    return __float2half_rn(value);
  } else {
    return __float2bfloat16_rn(value);
  }
}

/// The nearest value of the element type.
template <typename Element>
__device__ inline float rounded(float value) {
  return widen(narrow<Element>(value));
}

/// The same of two values, which one instruction packs.
template <typename Element>
__device__ inline float2 rounded(float2 values) {
  if constexpr (std::is_same_v<Element, float>) {
    return values;
  } else if constexpr (std::is_same_v<Element, __half>) {
    return __half22float2(__float22half2_rn(values));
  } else {
    return __bfloat1622float2(__float22bfloat162_rn(values));
  }
}

/// Calls `body.template operator()<Element>()` for fp32, fp16 or bf16.
template <typename Body>
void dispatch_element(ElementType type, Body&& body) {
  switch (type) {
    case ElementType::fp32:
      return body.template operator()<float>();
    case ElementType::fp16:
      return body.template operator()<__half>();
    case ElementType::bf16:
      return body.template operator()<__nv_bfloat16>();
    default:
      throw std::logic_error("no GPU kernel of this rung is built for " + std::string(to_string(type)));
  }
}

}  // namespace tilescope
