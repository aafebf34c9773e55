// SPDX-License-Identifier: Apache-2.0
// The layout functions of gpu/primitives/sm90 against what the hardware is documented to do, element by
// element: box -> swizzled shared memory -> descriptor -> operand of the product.
#include <doctest/doctest.h>

#include <cstdint>
#include <set>

#include "gpu/primitives/sm90/fragments.hpp"
#include "tests/gpu/primitives/sm90/shared_memory_model.hpp"

using namespace tilescope::gpu::sm90;
using namespace tilescope::testing;

TEST_CASE("a tile's offsets are where the copy engine puts its elements") {
  for (const Swizzle swizzle : {Swizzle::bytes128, Swizzle::bytes64, Swizzle::bytes32}) {
    for (const int rows : {8, 64, 80, 128, 176}) {
      const PanelTile tile{rows, 128, 2, swizzle};
      SharedMemory shared = copied(tile);
      bool all = true;
      for (int row = 0; row < rows; ++row) {
        for (int col = 0; col < tile.cols; ++col) {
          all = all && shared.at(kBase + tile.offset(row, col)) == id(row, col);
        }
      }
      CHECK(all);
      CHECK(tile.bytes() == rows * 128 * 2);
    }
  }
  CHECK(PanelTile{64, 96}.panels() == 2);
}

TEST_CASE("swizzling is its own inverse and stays inside its pattern") {
  for (const Swizzle swizzle : {Swizzle::none, Swizzle::bytes128, Swizzle::bytes64, Swizzle::bytes32}) {
    std::set<std::uint32_t> seen;
    bool inverse = true;
    for (std::uint32_t address = 0; address < 4096; ++address) {
      const std::uint32_t moved = swizzled(swizzle, address);
      inverse = inverse && swizzled(swizzle, moved) == address && moved / 128 == address / 128;
      seen.insert(moved);
    }
    CHECK(inverse);
    CHECK(seen.size() == 4096);
  }
}

TEST_CASE("eight rows of a 128-byte panel's column lie in different banks") {
  const PanelTile tile{64, 64};
  for (int col = 0; col < 64; col += 8) {
    std::set<std::uint32_t> chunks;
    for (int row = 0; row < 8; ++row) chunks.insert(tile.offset(row, col) / 16 % 8);
    CHECK(chunks.size() == 8);
  }
}

TEST_CASE("K-major descriptors take element (row, k) of every K step") {
  for (const Swizzle swizzle : {Swizzle::bytes128, Swizzle::bytes64, Swizzle::bytes32}) {
    for (const int rows : {64, 80, 128, 176, 192}) {
      for (const int cols : {64, 96, 128, 192, 256}) {
        const PanelTile tile{rows, cols, 2, swizzle};
        if (cols % tile.panel_cols() != 0 || tile.bytes() > 96 * 1024) continue;
        SharedMemory shared = copied(tile);
        bool all = true;
        for (int step = 0; step < cols / 16; ++step) {
          const std::uint64_t word = describe(tile, Major::k, kBase).word() + k_step(tile, Major::k, step);
          for (int row = 0; row < rows; ++row) {
            for (int k = 0; k < 16; ++k)
              all = all && taken(shared, word, Major::k, row, k) == id(row, 16 * step + k);
          }
        }
        CHECK(all);
      }
    }
  }
}

TEST_CASE("MN-major descriptors take element (k, column) of every K step") {
  for (const int rows : {64, 80, 112, 128, 176}) {
    for (const int cols : {64, 128, 192, 256}) {
      const PanelTile tile{rows, cols};
      if (tile.bytes() > 96 * 1024) continue;
      SharedMemory shared = copied(tile);
      bool all = true;
      for (int step = 0; step < rows / 16; ++step) {
        const std::uint64_t word = describe(tile, Major::mn, kBase).word() + k_step(tile, Major::mn, step);
        for (int col = 0; col < cols; ++col) {
          for (int k = 0; k < 16; ++k) {
            all = all && taken(shared, word, Major::mn, col, k) == id(16 * step + k, col);
          }
        }
      }
      CHECK(all);
    }
  }
}

TEST_CASE("a warpgroup's rows of a left operand start one slab further") {
  const PanelTile tile{192, 128};
  SharedMemory shared = copied(tile);
  bool all = true;
  for (int group = 0; group < 3; ++group) {
    const std::uint32_t slab = kBase + static_cast<std::uint32_t>(group * 64 * 128);
    for (int step = 0; step < 8; ++step) {
      const std::uint64_t word = describe(tile, Major::k, slab).word() + k_step(tile, Major::k, step);
      for (int row = 0; row < 64; ++row) {
        for (int k = 0; k < 16; ++k) {
          all = all && taken(shared, word, Major::k, row, k) == id(64 * group + row, 16 * step + k);
        }
      }
    }
  }
  CHECK(all);
}

TEST_CASE("descriptor words") {
  // 128 x 128 of 16 bits at 0x2400: start 0x240, stride 1024 / 16 = 64, 128-byte swizzle = 1.
  const PanelTile tile{128, 128};
  CHECK(describe(tile, Major::k, 0x2400).word() == 0x4000004000010240);
  CHECK(describe(tile, Major::mn, 0x2400).word() == 0x4000004004000240);
  CHECK(k_step(tile, Major::k, 1) == 2);
  CHECK(k_step(tile, Major::k, 4) == 1024);
  CHECK(k_step(tile, Major::mn, 1) == 128);
  CHECK(describe(PanelTile{64, 32, 2, Swizzle::bytes64}, Major::k, 1024).word() == 0x8000002000010040);
}

TEST_CASE("an accumulator's registers hold each entry once, a row in one quad") {
  for (const int n : {8, 64, 176, 256}) {
    std::set<std::pair<int, int>> seen;
    bool in_quad = true;
    for (int thread = 0; thread < kWarpgroupThreads; ++thread) {
      for (int index = 0; index < n / 2; ++index) {
        const Entry entry = accumulator_entry(thread, index);
        in_quad = in_quad && entry.row / 16 == thread / 32 && entry.row % 8 == thread % 32 / 4;
        seen.insert({entry.row, entry.col});
      }
    }
    CHECK(in_quad);
    CHECK(seen.size() == static_cast<std::size_t>(64 * n));
    CHECK(seen.rbegin()->second < n);
  }
}

TEST_CASE("an accumulator turns into a left operand in place") {
  bool all = true;
  for (int thread = 0; thread < kWarpgroupThreads; ++thread) {
    for (int step = 0; step < 8; ++step) {
      for (int index = 0; index < 4; ++index) {
        for (int half = 0; half < 2; ++half) {
          const Entry from = accumulator_entry(thread, 8 * step + 2 * index + half);
          const Entry to = left_operand_entry(thread, index, half);
          all = all && from == Entry{to.row, to.col + 16 * step};
        }
      }
    }
  }
  CHECK(all);
}

TEST_CASE("stmatrix puts an operand's registers where their entries belong") {
  // Block b holds register b: lane l gives row l % 8 of block l / 8; the block's thread t has columns 2 (t %
  // 4).
  bool all = true;
  for (int lane = 0; lane < 32; ++lane) {
    for (int index = 0; index < 4; ++index) {
      for (int half = 0; half < 2; ++half) {
        const Entry row = stored_row(8 * index + lane / 4);
        const Entry held = left_operand_entry(lane, index, half);
        all = all && held == Entry{row.row, row.col + 2 * (lane % 4) + half};
      }
    }
  }
  CHECK(all);
}
