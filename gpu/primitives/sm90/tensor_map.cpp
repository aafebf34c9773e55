// SPDX-License-Identifier: Apache-2.0
#include "gpu/primitives/sm90/tensor_map.hpp"

namespace tilescope::gpu::sm90 {

std::optional<std::string> broken_rule(const TensorMapParameters& parameters, std::uint64_t base) {
  constexpr std::uint64_t kMaxExtent = std::uint64_t{1} << 32, kMaxStride = std::uint64_t{1} << 40;
  if (base == 0 || base % 16 != 0) return "the base address must be a multiple of 16 bytes";
  if (parameters.rank < 1 || parameters.rank > 5) return "a tensor map has 1 to 5 dimensions";
  for (std::size_t i = 0; i < static_cast<std::size_t>(parameters.rank); ++i) {
    const std::string dimension = "dimension " + std::to_string(i) + ": ";
    if (parameters.extent[i] < 1 || parameters.extent[i] > kMaxExtent) {
      return dimension + "an extent lies between 1 and 2^32";
    }
    if (parameters.box[i] < 1 || parameters.box[i] > 256) return dimension + "a box has 1 to 256 elements";
    if (i > 0 && (parameters.stride_bytes[i] % 16 != 0 || parameters.stride_bytes[i] == 0)) {
      return dimension + "a stride is a multiple of 16 bytes";
    }
    if (i > 0 && parameters.stride_bytes[i] >= kMaxStride) return dimension + "a stride is below 2^40 bytes";
  }
  const std::uint32_t inner =
      parameters.box[0] * static_cast<std::uint32_t>(element_bytes(parameters.element));
  if (inner % 16 != 0) return "a box's row is a multiple of 16 bytes";
  if (parameters.swizzle != Swizzle::none &&
      inner > static_cast<std::uint32_t>(panel_row_bytes(parameters.swizzle))) {
    return "a box's row is no wider than the swizzle";
  }
  return std::nullopt;
}

TensorMapParameters head_panels(MapElement element, std::int64_t batch, std::int64_t heads, std::int64_t rows,
                                std::int64_t cols, std::int64_t batch_stride, std::int64_t head_stride,
                                std::int64_t row_stride, int box_rows, Swizzle width) {
  const auto size = [](std::int64_t n) { return static_cast<std::uint64_t>(n); };
  const std::uint64_t bytes = size(element_bytes(element));
  TensorMapParameters map;
  map.element = element;
  map.rank = 4;
  map.extent = {size(cols), size(rows), size(heads), size(batch), 0};
  // A dimension of one row, head or batch has a stride that nobody uses: any legal one.
  const auto stride = [&](std::int64_t n, std::int64_t elements) {
    return n > 1 ? size(elements) * bytes : 16;
  };
  map.stride_bytes = {bytes, stride(rows, row_stride), stride(heads, head_stride),
                      stride(batch, batch_stride), 0};
  map.box = {static_cast<std::uint32_t>(panel_row_bytes(width) / element_bytes(element)),
             static_cast<std::uint32_t>(box_rows), 1, 1, 0};
  map.swizzle = width;
  return map;
}

}  // namespace tilescope::gpu::sm90
