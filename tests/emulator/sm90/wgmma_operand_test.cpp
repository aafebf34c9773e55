// SPDX-License-Identifier: Apache-2.0
// Operands as the tensor cores find them, against tiles laid out by the kernels' own functions.
#include "emulator/sm90/wgmma_operand.hpp"

#include <doctest/doctest.h>

#include <cstring>
#include <stdexcept>

namespace tilescope::gpu::emulator::wgmma_operand_test {

using sm90::PanelTile;
using sm90::Swizzle;

constexpr std::uint32_t kBase = 5 * 1024;

std::byte value_of(int row, int col) {
  return static_cast<std::byte>((7 * row + 13 * col + row / 16) & 0xFF);
}

/// Shared memory that holds a tile of `element_bytes`, every byte a function of its place.
std::vector<std::byte> shared_with(const PanelTile& tile) {
  std::vector<std::byte> shared(kBase + static_cast<std::uint32_t>(tile.bytes()));
  for (int row = 0; row < tile.rows; ++row) {
    for (int col = 0; col < tile.cols; ++col) {
      for (int byte = 0; byte < tile.element_bytes; ++byte) {
        shared.at(kBase + tile.offset(row, col) + static_cast<std::uint32_t>(byte)) =
            value_of(row, tile.element_bytes * col + byte);
      }
    }
  }
  return shared;
}

int wrong_bytes(const PanelTile& tile, Major major, int first, int count) {
  const std::vector<std::byte> shared = shared_with(tile);
  const auto read = [&](std::uint32_t address, std::byte* target) {
    REQUIRE(address + kChunkBytes <= shared.size());
    std::memcpy(target, &shared[address], kChunkBytes);
  };
  const int size = tile.element_bytes, depth = kProductDepthBytes / size;
  const int steps = (major == Major::k ? tile.cols : tile.rows) / depth;
  int wrong = 0;
  for (int step = 0; step < steps; ++step) {
    const std::uint64_t word = describe(tile, major, kBase).word() + k_step(tile, major, step);
    const auto rows = gather_operand(word, major, size, first, count, read);
    for (int i = 0; i < count; ++i) {
      for (int k = 0; k < depth; ++k) {
        const int along = first + i, down = step * depth + k;
        for (int byte = 0; byte < size; ++byte) {
          const std::byte expected =
              major == Major::k ? value_of(along, size * down + byte) : value_of(down, size * along + byte);
          wrong += rows[static_cast<std::size_t>(i * kProductDepthBytes + k * size + byte)] != expected;
        }
      }
    }
  }
  return wrong;
}

TEST_CASE("emulator: descriptors lead to the elements of tiles of every swizzle, major and size") {
  for (const Swizzle swizzle : {Swizzle::bytes128, Swizzle::bytes64, Swizzle::bytes32}) {
    for (const int element_bytes : {1, 2}) {
      CAPTURE(static_cast<int>(swizzle));
      CAPTURE(element_bytes);
      CHECK(wrong_bytes({64, 128, element_bytes, swizzle}, Major::k, 0, 64) == 0);
      CHECK(wrong_bytes({128, 64, element_bytes, swizzle}, Major::k, 80, 16) == 0);
    }
    CHECK(wrong_bytes({64, 128, 2, swizzle}, Major::mn, 0, 128) == 0);
    CHECK(wrong_bytes({32, 192, 2, swizzle}, Major::mn, 112, 16) == 0);
  }
}

TEST_CASE("emulator: without a swizzle, 16 bytes of K lie the leading offset apart") {
  const PanelTile tile{64, 8, 2, Swizzle::none};  // a panel; the next one lies behind it
  const PanelTile both{64, 16, 2, Swizzle::none};
  sm90::MatrixDescriptor descriptor = describe(tile, Major::k, kBase);
  descriptor.leading_bytes = static_cast<std::uint32_t>(tile.panel_bytes());
  const std::vector<std::byte> shared = shared_with(both);
  const auto rows =
      gather_operand(descriptor.word(), Major::k, 2, 0, 64,
                     [&](std::uint32_t at, std::byte* x) { std::memcpy(x, &shared.at(at), kChunkBytes); });
  int wrong = 0;
  for (int row = 0; row < 64; ++row) {
    for (int byte = 0; byte < 32; ++byte) {
      wrong += rows[static_cast<std::size_t>(32 * row + byte)] != value_of(row, byte);
    }
  }
  CHECK(wrong == 0);
}

TEST_CASE("emulator: a descriptor that is not known is refused") {
  const auto nothing = [](std::uint32_t, std::byte*) {};
  CHECK_THROWS_AS(decode_descriptor(std::uint64_t{1} << 49), std::runtime_error);
  const PanelTile bytes{64, 64, 1};
  CHECK_THROWS_AS(gather_operand(describe(bytes, Major::mn, 0).word(), Major::mn, 1, 0, 8, nothing),
                  std::runtime_error);
}

}  // namespace tilescope::gpu::emulator::wgmma_operand_test
