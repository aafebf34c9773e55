// SPDX-License-Identifier: Apache-2.0
#include "emulator/sm90/wgmma_operand.hpp"

#include <cstring>

#include "emulator/machine/launch.hpp"

namespace tilescope::gpu::emulator {
namespace {

/// K-major: rows of a panel's width, in groups of eight; without a swizzle, 16 bytes of K a panel.
std::uint32_t chunk_along_k(const sm90::MatrixDescriptor& operand, std::uint32_t row, std::uint32_t chunk) {
  const auto width = static_cast<std::uint32_t>(panel_row_bytes(operand.swizzle));
  const std::uint32_t from_chunk =
      chunk * (operand.swizzle == sm90::Swizzle::none ? operand.leading_bytes : kChunkBytes);
  return swizzled(operand.swizzle,
                  operand.start_address + row / 8 * operand.stride_bytes + row % 8 * width + from_chunk);
}

/// MN-major: K goes down the rows; each row holds as many of M or N as the swizzle spans. 16 bits.
std::uint32_t chunk_along_rows(const sm90::MatrixDescriptor& operand, std::uint32_t row, std::uint32_t k) {
  const auto width = static_cast<std::uint32_t>(panel_row_bytes(operand.swizzle));
  const std::uint32_t byte = 2 * row;
  return swizzled(operand.swizzle, operand.start_address + byte / width * operand.leading_bytes +
                                       byte % width + k / 8 * operand.stride_bytes + k % 8 * width);
}

}  // namespace

sm90::MatrixDescriptor decode_descriptor(std::uint64_t word) {
  const auto field = [word](int bit) { return static_cast<std::uint32_t>(word >> bit & 0x3FFF) << 4; };
  if ((word >> 49 & 7) != 0) throw Fault("a matrix descriptor with a base offset");
  return {field(0), field(16), field(32), static_cast<sm90::Swizzle>(word >> 62)};
}

std::vector<std::byte> gather_operand(std::uint64_t descriptor, Major major, int element_bytes, int first,
                                      int count, const ReadChunk& read) {
  const sm90::MatrixDescriptor operand = decode_descriptor(descriptor);
  std::vector<std::byte> rows(static_cast<std::size_t>(count * kProductDepthBytes));
  if (major == Major::k) {
    for (int row = 0; row < count; ++row) {
      for (int chunk = 0; chunk < kProductDepthBytes / kChunkBytes; ++chunk) {
        read(chunk_along_k(operand, static_cast<std::uint32_t>(first + row),
                           static_cast<std::uint32_t>(chunk)),
             &rows[static_cast<std::size_t>(row * kProductDepthBytes + chunk * kChunkBytes)]);
      }
    }
    return rows;
  }
  if (element_bytes != 2 || operand.swizzle == sm90::Swizzle::none) {
    throw Fault("a transposed operand is of 16 bits and swizzled");
  }
  for (int row = 0; row < count; row += 8) {
    for (int k = 0; k < kProductDepthBytes / 2; ++k) {
      std::byte chunk[kChunkBytes];
      read(chunk_along_rows(operand, static_cast<std::uint32_t>(first + row), static_cast<std::uint32_t>(k)),
           chunk);
      for (int i = 0; i < 8; ++i) {
        std::memcpy(&rows[static_cast<std::size_t>((row + i) * kProductDepthBytes + 2 * k)], &chunk[2 * i],
                    2);
      }
    }
  }
  return rows;
}

}  // namespace tilescope::gpu::emulator
