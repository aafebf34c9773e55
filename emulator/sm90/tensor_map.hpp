// SPDX-License-Identifier: Apache-2.0
// Tensor maps: what cuTensorMapEncodeTiled takes, its 128 opaque bytes (ours: NVIDIA's are not published),
// and the boxes that copies move by them. Sources: CUDA driver API, cuTensorMapEncodeTiled; PTX ISA,
// "Tensors".
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "gpu/primitives/sm90/shared_layout.hpp"

namespace tilescope::gpu::emulator {

inline constexpr std::size_t kTensorMapBytes = 128;
inline constexpr int kMaxRank = 5;

/// The driver's numbers of the elements that a copy can move or add here.
enum class MapType : std::uint8_t {
  uint8,
  uint16,
  uint32,
  int32,
  uint64,
  int64,
  float16,
  float32,
  float64,
  bfloat16,
  float32_ftz,
  tfloat32,
  tfloat32_ftz
};

/// Dimension 0 is contiguous.
struct TensorMap {
  std::uint64_t address = 0;
  std::array<std::uint64_t, kMaxRank> extent{};  // [elements]
  std::array<std::uint64_t, kMaxRank> stride{};  // [bytes]; [0] the element's
  std::array<std::uint32_t, kMaxRank> box{};     // [elements]
  int rank = 0;
  MapType type{};
  sm90::Swizzle swizzle{};
  bool fill_nan = false;

  std::uint32_t row_bytes() const { return box[0] * static_cast<std::uint32_t>(stride[0]); }
  std::uint32_t box_bytes() const;
};

/// The arguments of cuTensorMapEncodeTiled, enumerations as their numbers; `strides` has rank - 1.
struct EncodeArguments {
  int type;
  std::uint32_t rank;
  std::uint64_t address;
  const std::uint64_t *extent, *strides;
  const std::uint32_t *box, *element_strides;
  int interleave, swizzle, l2_promotion, fill;
};

/// @return the driver's: 0, or 1 (CUDA_ERROR_INVALID_VALUE) where an argument breaks a rule or asks for
/// what this does not have: interleaved layouts, steps beyond one, packed types
int encode_tensor_map(void* map, const EncodeArguments& arguments);

/// tensormap.replace: writes one field, by its name in the instruction, of a map that may be all zeros
/// before.
/// @throws Fault at a value that no map has here
void replace_in_tensor_map(void* map, std::string_view field, std::uint32_t dimension, std::uint64_t value);

/// @throws Fault if these are not a map's bytes
TensorMap decode_tensor_map(const void* map);

/// What of a box's row lies in the tensor, and where the row lies in shared memory before it is swizzled.
struct BoxRow {
  std::uint32_t shared_offset;  // of the row's first byte in the box
  std::uint32_t begin, end;     // bytes of the row inside the tensor; equal if none is
  std::uint64_t address;        // in global memory, of byte `begin`
};
/// @param at  coordinates of the box's first element, `rank` of them, which may lie outside
void for_each_box_row(const TensorMap& map, std::span<const std::int32_t> at,
                      const std::function<void(const BoxRow&)>& visit);

/// The box as shared memory holds it, chunk by chunk of 16 bytes: (offset in the box, address).
void for_each_box_chunk(const TensorMap& map, std::uint32_t shared_address,
                        const std::function<void(std::uint32_t offset, std::uint32_t address)>& visit);

/// What a load brings: the box's bytes in order, unswizzled. `read` checks and reads global memory.
using ReadGlobal = std::function<void(std::uint64_t address, void* target, std::size_t bytes)>;
std::vector<std::byte> load_box(const TensorMap& map, std::span<const std::int32_t> at,
                                const ReadGlobal& read);
/// Hands over the runs of the box that lie in the tensor, to be written or added there.
using WriteGlobal = std::function<void(std::uint64_t address, const void* source, std::size_t bytes)>;
void store_box(const TensorMap& map, std::span<const std::int32_t> at, std::span<const std::byte> box,
               const WriteGlobal& write);

}  // namespace tilescope::gpu::emulator
