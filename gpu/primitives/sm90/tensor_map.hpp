// SPDX-License-Identifier: Apache-2.0
// What the copy engine must know of a tensor, as plain numbers, with the engine's rules: a CPU test and a
// registry row can ask for them without a device. Plain C++.
// Source: CUDA driver API, cuTensorMapEncodeTiled.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>

#include "gpu/primitives/sm90/shared_layout.hpp"

namespace tilescope::gpu::sm90 {

enum class MapElement : std::uint8_t { fp16, bf16, fp32, bytes };

constexpr int element_bytes(MapElement element) {
  return element == MapElement::fp32 ? 4 : element == MapElement::bytes ? 1 : 2;
}

/// Dimension 0 is contiguous. A box is what one copy moves; what of it lies outside the tensor reads as 0 and
/// is not written.
struct TensorMapParameters {
  MapElement element = MapElement::bf16;
  int rank = 2;
  std::array<std::uint64_t, 5> extent{};        // [elements]
  std::array<std::uint64_t, 5> stride_bytes{};  // [0] is the element's size and not passed on
  std::array<std::uint32_t, 5> box{};           // [elements]
  Swizzle swizzle = Swizzle::bytes128;

  /// What one copy adds to a barrier's count: whole boxes, also where they are clipped.
  constexpr std::uint32_t box_bytes() const {
    std::uint32_t bytes = static_cast<std::uint32_t>(element_bytes(element));
    for (int i = 0; i < rank; ++i) bytes *= box[static_cast<std::size_t>(i)];
    return bytes;
  }
};

/// The first rule that the parameters or the base address break, in words; none if TMA can describe it.
std::optional<std::string> broken_rule(const TensorMapParameters& parameters, std::uint64_t base);

/// A (B, H, N, D) tensor in boxes of one panel of `width`: 64 columns of 16 bits of `box_rows` rows of a
/// head. Rows beyond N and columns beyond D are outside. Strides in elements.
TensorMapParameters head_panels(MapElement element, std::int64_t batch, std::int64_t heads, std::int64_t rows,
                                std::int64_t cols, std::int64_t batch_stride, std::int64_t head_stride,
                                std::int64_t row_stride, int box_rows, Swizzle width = Swizzle::bytes128);

}  // namespace tilescope::gpu::sm90
