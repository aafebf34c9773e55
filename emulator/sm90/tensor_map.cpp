// SPDX-License-Identifier: Apache-2.0
#include "emulator/sm90/tensor_map.hpp"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <optional>
#include <string>

#include "emulator/machine/launch.hpp"

namespace tilescope::gpu::emulator {
namespace {

constexpr int kSuccess = 0, kInvalidValue = 1;
constexpr std::uint64_t kMark = 0x70614D726F736E65;  // what begins so was encoded

struct OpaqueMap {
  std::uint64_t mark, address;
  std::uint64_t extent[kMaxRank], stride[kMaxRank - 1];
  std::uint16_t box[kMaxRank];
  std::uint8_t rank, type, swizzle, fill;
};
static_assert(sizeof(OpaqueMap) <= kTensorMapBytes);

std::optional<std::uint64_t> element_bytes(int type) {
  switch (static_cast<MapType>(type)) {
    case MapType::uint8:
      return 1;
    case MapType::uint16:
    case MapType::float16:
    case MapType::bfloat16:
      return 2;
    case MapType::uint32:
    case MapType::int32:
    case MapType::float32:
    case MapType::float32_ftz:
    case MapType::tfloat32:
    case MapType::tfloat32_ftz:
      return 4;
    case MapType::uint64:
    case MapType::int64:
    case MapType::float64:
      return 8;
  }
  return std::nullopt;
}

sm90::Swizzle swizzle_of(int driver) {
  constexpr sm90::Swizzle kByNumber[] = {sm90::Swizzle::none, sm90::Swizzle::bytes32, sm90::Swizzle::bytes64,
                                         sm90::Swizzle::bytes128};
  return kByNumber[driver];
}

bool within(std::uint64_t value, std::uint64_t least, std::uint64_t most) {
  return least <= value && value <= most;
}

bool dimensions_allowed(const EncodeArguments& arguments) {
  constexpr std::uint64_t kMaxExtent = std::uint64_t{1} << 32, kMaxStride = std::uint64_t{1} << 40;
  for (std::uint32_t i = 0; i < arguments.rank; ++i) {
    if (!within(arguments.extent[i], 1, kMaxExtent) || !within(arguments.box[i], 1, 256)) return false;
    if (i == 0) continue;
    if (!within(arguments.element_strides[i], 1, 8)) return false;
    const std::uint64_t stride = arguments.strides[i - 1];
    if (stride % 16 != 0 || !within(stride, 16, kMaxStride - 1)) return false;
  }
  return true;
}

bool allowed(const EncodeArguments& arguments) {
  if (!within(arguments.rank, 1, kMaxRank) || arguments.address == 0 || arguments.address % 16 != 0) {
    return false;
  }
  const auto bytes = element_bytes(arguments.type);
  if (!bytes || !within(static_cast<std::uint64_t>(arguments.swizzle), 0, 3)) return false;
  if (!within(static_cast<std::uint64_t>(arguments.l2_promotion), 0, 3)) return false;
  if (!within(static_cast<std::uint64_t>(arguments.fill), 0, 1)) return false;
  if (arguments.fill == 1 && static_cast<MapType>(arguments.type) == MapType::uint8) return false;
  if (!dimensions_allowed(arguments)) return false;
  const std::uint64_t row = arguments.box[0] * *bytes;
  const sm90::Swizzle swizzle = swizzle_of(arguments.swizzle);
  return row % 16 == 0 &&
         (swizzle == sm90::Swizzle::none || row <= static_cast<std::uint64_t>(panel_row_bytes(swizzle)));
}

/// What this does not have, of what the driver allows.
bool known(const EncodeArguments& arguments) {
  return arguments.interleave == 0 &&
         std::all_of(arguments.element_strides + 1, arguments.element_strides + arguments.rank,
                     [](std::uint32_t step) { return step == 1; });
}

}  // namespace

std::uint32_t TensorMap::box_bytes() const {
  std::uint32_t bytes = static_cast<std::uint32_t>(stride[0]);
  for (int i = 0; i < rank; ++i) bytes *= box[static_cast<std::size_t>(i)];
  return bytes;
}

int encode_tensor_map(void* map, const EncodeArguments& arguments) {
  if (map == nullptr || reinterpret_cast<std::uintptr_t>(map) % 64 != 0 || !allowed(arguments) ||
      !known(arguments)) {
    return kInvalidValue;
  }
  OpaqueMap opaque{};
  opaque.mark = kMark;
  opaque.address = arguments.address;
  for (std::uint32_t i = 0; i < arguments.rank; ++i) {
    opaque.extent[i] = arguments.extent[i];
    if (i > 0) opaque.stride[i - 1] = arguments.strides[i - 1];
    opaque.box[i] = static_cast<std::uint16_t>(arguments.box[i]);
  }
  opaque.rank = static_cast<std::uint8_t>(arguments.rank);
  opaque.type = static_cast<std::uint8_t>(arguments.type);
  opaque.swizzle = static_cast<std::uint8_t>(swizzle_of(arguments.swizzle));
  opaque.fill = static_cast<std::uint8_t>(arguments.fill);
  std::memset(map, 0, kTensorMapBytes);
  std::memcpy(map, &opaque, sizeof(opaque));
  return kSuccess;
}

void replace_in_tensor_map(void* map, std::string_view field, std::uint32_t dimension, std::uint64_t value) {
  // Kernels number types of 64 and fewer bits otherwise than the driver does (PTX ISA, "tensormap.replace").
  constexpr MapType kTypes[] = {MapType::uint8,       MapType::uint16,  MapType::uint32,   MapType::int32,
                                MapType::uint64,      MapType::int64,   MapType::float16,  MapType::float32,
                                MapType::float32_ftz, MapType::float64, MapType::bfloat16, MapType::tfloat32,
                                MapType::tfloat32_ftz};
  OpaqueMap opaque;
  std::memcpy(&opaque, map, sizeof(opaque));
  const auto limit = [&](std::uint64_t end) {
    if (value >= end)
      throw Fault("a tensor map takes no " + std::string(field) + " of " + std::to_string(value));
  };
  if (dimension >= static_cast<std::uint32_t>(kMaxRank)) throw Fault("a tensor map has at most 5 dimensions");
  if (field == "global_address") {
    opaque.mark = kMark;
    opaque.address = value;
  } else if (field == "rank") {
    limit(kMaxRank);
    opaque.rank = static_cast<std::uint8_t>(value + 1);
  } else if (field == "box_dim") {
    limit(257);
    opaque.box[dimension] = static_cast<std::uint16_t>(value);
  } else if (field == "global_dim") {
    opaque.extent[dimension] = value;
  } else if (field == "global_stride") {
    if (dimension + 1 >= static_cast<std::uint32_t>(kMaxRank))
      throw Fault("a tensor map has at most 4 strides");
    opaque.stride[dimension] = value;
  } else if (field == "elemtype") {
    limit(std::size(kTypes));
    opaque.type = static_cast<std::uint8_t>(kTypes[value]);
  } else if (field == "swizzle_mode") {
    limit(4);
    opaque.swizzle = static_cast<std::uint8_t>(swizzle_of(static_cast<int>(value)));
  } else if (field == "fill_mode") {
    limit(2);
    opaque.fill = static_cast<std::uint8_t>(value);
  } else if (value != (field == "element_stride" ? 1 : 0)) {
    throw Fault("tensor maps with steps or interleaved layouts are not known");
  }
  std::memcpy(map, &opaque, sizeof(opaque));
}

TensorMap decode_tensor_map(const void* map) {
  OpaqueMap opaque;
  std::memcpy(&opaque, map, sizeof(opaque));
  if (opaque.mark != kMark) throw Fault("a copy by something that is no tensor map");
  if (opaque.rank == 0 || opaque.rank > kMaxRank) throw Fault("a copy by a tensor map without a rank");
  TensorMap decoded;
  decoded.address = opaque.address;
  std::copy(opaque.extent, opaque.extent + kMaxRank, decoded.extent.begin());
  decoded.stride[0] = *element_bytes(opaque.type);
  std::copy(std::begin(opaque.stride), std::end(opaque.stride), decoded.stride.begin() + 1);
  std::copy(opaque.box, opaque.box + kMaxRank, decoded.box.begin());
  decoded.rank = opaque.rank;
  decoded.type = static_cast<MapType>(opaque.type);
  decoded.swizzle = static_cast<sm90::Swizzle>(opaque.swizzle);
  decoded.fill_nan = opaque.fill != 0;
  return decoded;
}

void for_each_box_row(const TensorMap& map, std::span<const std::int32_t> at,
                      const std::function<void(const BoxRow&)>& visit) {
  if (at.size() != static_cast<std::size_t>(map.rank)) {
    throw Fault("a copy with another number of coordinates than the map has dimensions");
  }
  const auto extent = [&](std::size_t i) { return static_cast<std::int64_t>(map.extent[i]); };
  // Along dimension 0, the elements from `begin` of the box to `end` exist.
  const std::int64_t begin = std::clamp<std::int64_t>(-std::int64_t{at[0]}, 0, map.box[0]);
  const std::int64_t end = std::clamp<std::int64_t>(extent(0) - at[0], begin, map.box[0]);
  const std::uint32_t rows = map.box_bytes() / map.row_bytes();
  for (std::uint32_t row = 0; row < rows; ++row) {
    bool inside = true;
    std::uint64_t address = map.address + static_cast<std::uint64_t>(at[0] + begin) * map.stride[0];
    std::uint32_t rest = row;
    for (std::size_t i = 1; i < at.size(); ++i) {
      const std::int64_t place = std::int64_t{at[i]} + rest % map.box[i];
      rest /= map.box[i];
      inside = inside && 0 <= place && place < extent(i);
      address += static_cast<std::uint64_t>(place) * map.stride[i];
    }
    const auto bytes = [&](std::int64_t elements) {
      return static_cast<std::uint32_t>(elements) * static_cast<std::uint32_t>(map.stride[0]);
    };
    visit({row * map.row_bytes(), bytes(begin), inside ? bytes(end) : bytes(begin), address});
  }
}

void for_each_box_chunk(const TensorMap& map, std::uint32_t shared_address,
                        const std::function<void(std::uint32_t offset, std::uint32_t address)>& visit) {
  for (std::uint32_t offset = 0; offset < map.box_bytes(); offset += 16) {
    visit(offset, swizzled(map.swizzle, shared_address + offset));
  }
}

std::vector<std::byte> load_box(const TensorMap& map, std::span<const std::int32_t> at,
                                const ReadGlobal& read) {
  std::vector<std::byte> box(map.box_bytes(), map.fill_nan ? std::byte{0xFF} : std::byte{0});
  for_each_box_row(map, at, [&](const BoxRow& row) {
    if (row.begin < row.end) {
      read(row.address, &box[row.shared_offset + row.begin], row.end - row.begin);
    }
  });
  return box;
}

void store_box(const TensorMap& map, std::span<const std::int32_t> at, std::span<const std::byte> box,
               const WriteGlobal& write) {
  for_each_box_row(map, at, [&](const BoxRow& row) {
    if (row.begin < row.end) {
      write(row.address, &box[row.shared_offset + row.begin], row.end - row.begin);
    }
  });
}

}  // namespace tilescope::gpu::emulator
