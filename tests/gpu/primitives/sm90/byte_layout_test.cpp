// SPDX-License-Identifier: Apache-2.0
// The orders of 8-bit operands against what the instructions are documented to do: V as the copy engine
// brings it -> ldmatrix -> prmt -> stmatrix -> the product's right operand, beside P -> the left one.
#include "gpu/primitives/sm90/byte_layout.hpp"

#include <doctest/doctest.h>

#include <array>
#include <cstdint>
#include <set>
#include <vector>

#include "gpu/kernels/flash3/fp8/shapes.hpp"

using namespace tilescope;
using namespace tilescope::gpu::sm90;

namespace {

using Bytes = std::vector<int>;  // shared memory that knows the key and column of each byte: key * 1000 + col
using Register = std::array<int, 4>;

Bytes copied_bytes(const PanelTile& tile) {
  Bytes shared(static_cast<std::size_t>(tile.bytes()), -1);
  for (int key = 0; key < tile.rows; ++key) {
    for (int col = 0; col < tile.cols; ++col) shared.at(tile.offset(key, col)) = key * 1000 + col;
  }
  return shared;
}

/// prmt: four bytes of the eight of two registers, by the selector's nibbles.
Register permuted(const Register& a, const Register& b, unsigned selector) {
  Register result{};
  for (unsigned i = 0; i < 4; ++i) {
    const unsigned from = selector >> (4 * i) & 7;
    result[i] = from < 4 ? a[from] : b[from - 4];
  }
  return result;
}

/// ldmatrix.trans of block `block`: element (r, c), two bytes, goes to lane 4 c + r / 2, half r % 2.
Register loaded_transposed(const Bytes& shared, const PanelTile& tile, int key, int col, int block,
                           int lane) {
  Register result{};
  for (int half = 0; half < 2; ++half) {
    const int row = lane % 4 * 2 + half;
    const Entry from = transposed_source(8 * block + row);
    for (int byte = 0; byte < 2; ++byte) {
      result[static_cast<std::size_t>(2 * half + byte)] =
          shared.at(tile.offset(key + from.row, col) + static_cast<std::uint32_t>(2 * (lane / 4) + byte));
    }
  }
  return result;
}

/// As gpu/primitives/sm90/transpose_bytes.cuh does it, a warp's lanes one after the other.
Bytes transposed(const Bytes& source, const PanelTile& from, const PanelTile& to) {
  Bytes shared(static_cast<std::size_t>(to.bytes()), -1);
  for (int key = 0; key < from.rows; key += 32) {
    for (int col = 0; col < from.cols; col += 16) {
      for (int lane = 0; lane < 32; ++lane) {
        std::array<Register, 4> x{}, y{};
        for (int block = 0; block < 4; ++block) {
          x[static_cast<std::size_t>(block)] = loaded_transposed(source, from, key, col, block, lane);
        }
        y = {permuted(x[0], x[1], kEvenBytes), permuted(x[2], x[3], kEvenBytes),
             permuted(x[0], x[1], kOddBytes), permuted(x[2], x[3], kOddBytes)};
        for (int block = 0; block < 4; ++block) {  // stmatrix: lane l holds bytes 4 (l % 4) ... of row l / 4
          const Entry row = transposed_target(8 * block + lane / 4);
          for (int byte = 0; byte < 4; ++byte) {
            shared.at(to.offset(col + row.row, key + row.col) +
                      static_cast<std::uint32_t>(4 * (lane % 4) + byte)) =
                y[static_cast<std::size_t>(block)][static_cast<std::size_t>(byte)];
          }
        }
      }
    }
  }
  return shared;
}

}  // namespace

TEST_CASE("V is transposed into the order of row_of_column() and key_at(), every byte once") {
  for (const int head_dim : kFlash3Fp8HeadDims) {
    const Flash3Fp8Shape shape = flash3_fp8_shape(head_dim);
    const PanelTile from = shape.kv_tile(), to = shape.transposed_tile();
    const Bytes shared = transposed(copied_bytes(from), from, to);
    bool all = true;
    for (int col = 0; col < head_dim; ++col) {
      for (int place = 0; place < shape.tile.block_n; ++place) {
        all = all && shared.at(to.offset(row_of_column(col), place)) == key_at(place) * 1000 + col;
      }
    }
    CHECK(all);
  }
}

TEST_CASE("P's bytes stand at the places of the keys that V^T has there") {
  bool all = true;
  for (int thread = 0; thread < kWarpgroupThreads; ++thread) {
    for (int index = 0; index < 4; ++index) {
      for (int byte = 0; byte < 4; ++byte) {
        const Entry operand = left_byte_entry(thread, index, byte);
        const Entry score = accumulator_entry(thread, accumulator_of_byte(index, byte));
        all = all && score == Entry{operand.row, key_at(operand.col)};
      }
    }
  }
  CHECK(all);
}

TEST_CASE("a left operand's bytes cover 64 x 32 once") {
  std::set<std::pair<int, int>> seen;
  for (int thread = 0; thread < kWarpgroupThreads; ++thread) {
    for (int index = 0; index < 4; ++index) {
      for (int byte = 0; byte < 4; ++byte) {
        const Entry entry = left_byte_entry(thread, index, byte);
        CHECK((entry.row >= 0 && entry.row < 64 && entry.col >= 0 && entry.col < 32));
        seen.insert({entry.row, entry.col});
      }
    }
  }
  CHECK(seen.size() == 64 * 32);
}

TEST_CASE("a thread has four neighbouring columns of O in each 16") {
  bool all = true;
  for (int thread = 0; thread < kWarpgroupThreads; ++thread) {
    for (int group = 0; group < 4; ++group) {
      for (int half = 0; half < 2; ++half) {
        for (int i = 0; i < 4; ++i) {
          const Entry held = accumulator_entry(thread, accumulator_of_column(group, half, i));
          const Entry row = accumulator_entry(thread, 2 * half);
          all = all && held == Entry{row.row, row_of_column(16 * group + 4 * (thread % 4) + i)};
        }
      }
    }
  }
  CHECK(all);
}

TEST_CASE("rows and keys are permuted inside of sixteen") {
  std::set<int> rows, keys;
  for (int i = 0; i < 64; ++i) {
    CHECK(row_of_column(i) / 16 == i / 16);
    CHECK(key_at(i) / 16 == i / 16);
    rows.insert(row_of_column(i));
    keys.insert(key_at(i));
  }
  CHECK(rows.size() == 64);
  CHECK(keys.size() == 64);
}

TEST_CASE("eight rows that are loaded or stored together lie in different banks") {
  for (const int head_dim : kFlash3Fp8HeadDims) {
    const Flash3Fp8Shape shape = flash3_fp8_shape(head_dim);
    for (int block = 0; block < 4; ++block) {
      std::set<std::uint32_t> loaded, stored;
      for (int lane = 8 * block; lane < 8 * block + 8; ++lane) {
        const Entry to = transposed_target(lane);
        loaded.insert(shape.kv_tile().offset(transposed_source(lane).row, 16) / 16 % 8);
        stored.insert(shape.transposed_tile().offset(to.row, to.col) / 16 % 8);
      }
      CHECK(loaded.size() == 8);
      CHECK(stored.size() == 8);
    }
  }
}
