// SPDX-License-Identifier: Apache-2.0
// Tensor maps from the driver's arguments, and the boxes they move, against brute force.
#include "emulator/sm90/tensor_map.hpp"
#include "emulator/sm90/reduction.hpp"

#include <doctest/doctest.h>

#include <cstring>
#include <numeric>
#include <stdexcept>

#include "cpu_ref/numeric/numeric.hpp"

namespace tilescope::gpu::emulator::tensor_map_test {

struct alignas(64) Bytes {
  std::byte bytes[kTensorMapBytes];
};

/// A 3 x 5 x 40 tensor of 16 bits in boxes of 2 x 4 x 32.
struct Case {
  std::uint64_t extent[5] = {40, 5, 3, 1, 1}, strides[4] = {96, 512, 16, 16};
  std::uint32_t box[5] = {32, 4, 2, 1, 1}, steps[5] = {1, 1, 1, 1, 1};
  EncodeArguments arguments{6, 3, 0x1000, extent, strides, box, steps, 0, 2, 0, 0};

  int encode(Bytes& map) const { return encode_tensor_map(map.bytes, arguments); }
  int encode() const {
    Bytes map;
    return encode(map);
  }
};

TEST_CASE("emulator: a tensor map's bytes say what the driver was told") {
  Case given;
  Bytes bytes;
  REQUIRE(given.encode(bytes) == 0);
  const TensorMap map = decode_tensor_map(bytes.bytes);
  CHECK(map.address == 0x1000);
  CHECK(map.rank == 3);
  CHECK(map.extent == std::array<std::uint64_t, 5>{40, 5, 3, 0, 0});
  CHECK(map.stride == std::array<std::uint64_t, 5>{2, 96, 512, 0, 0});
  CHECK(map.swizzle == sm90::Swizzle::bytes64);
  CHECK(map.type == MapType::float16);
  CHECK(map.box_bytes() == 512);
  std::memset(&bytes, 0, 8);
  CHECK_THROWS_AS(decode_tensor_map(bytes.bytes), std::runtime_error);
}

TEST_CASE("emulator: tensor maps that break a rule of the driver are invalid values") {
  const auto refused = [](auto&& change) {
    Case given;
    change(given);
    return given.encode() == 1;
  };
  CHECK(refused([](Case& c) { c.arguments.address = 0x1008; }));
  CHECK(refused([](Case& c) { c.arguments.address = 0; }));
  CHECK(refused([](Case& c) { c.arguments.rank = 6; }));
  CHECK(refused([](Case& c) { c.arguments.rank = 0; }));
  CHECK(refused([](Case& c) { c.strides[0] = 88; }));
  CHECK(refused([](Case& c) { c.strides[1] = std::uint64_t{1} << 40; }));
  CHECK(refused([](Case& c) { c.extent[1] = 0; }));
  CHECK(refused([](Case& c) { c.extent[1] = (std::uint64_t{1} << 32) + 1; }));
  CHECK(refused([](Case& c) { c.box[1] = 257; }));
  CHECK(refused([](Case& c) { c.box[0] = 4; }));   // 8 bytes
  CHECK(refused([](Case& c) { c.box[0] = 40; }));  // wider than the swizzle
  CHECK(refused([](Case& c) { c.steps[1] = 9; }));
  CHECK(refused([](Case& c) { c.arguments.type = 42; }));
  CHECK(refused([](Case& c) { c.arguments.swizzle = 7; }));
  CHECK(refused([](Case& c) { c.arguments.interleave = 1; }));
  CHECK_FALSE(refused([](Case& c) { c.extent[1] = std::uint64_t{1} << 32; }));
  CHECK_FALSE(refused([](Case& c) { c.strides[2] = 8; }));  // of a dimension that there is not
  alignas(64) std::byte shifted[kTensorMapBytes + 16];
  CHECK(encode_tensor_map(shifted + 16, Case().arguments) == 1);
}

TEST_CASE("emulator: boxes bring zeros from outside and leave it alone") {
  std::vector<std::uint16_t> tensor(3 * 256);
  std::iota(tensor.begin(), tensor.end(), std::uint16_t{1});
  Case given;
  given.arguments.address = 0x1000;
  Bytes bytes;
  REQUIRE(given.encode(bytes) == 0);
  const TensorMap map = decode_tensor_map(bytes.bytes);
  const auto host = [&](std::uint64_t address) {
    REQUIRE(address >= 0x1000);
    return reinterpret_cast<std::byte*>(tensor.data()) + (address - 0x1000);
  };
  const std::vector<std::uint16_t> before = tensor;
  for (const std::int32_t x : {-8, 0, 16, 48}) {
    for (const std::int32_t y : {-2, 0, 3, 7}) {
      for (const std::int32_t z : {-1, 0, 2}) {
        const std::int32_t at[] = {x, y, z};
        const auto box = load_box(map, at, [&](std::uint64_t address, void* target, std::size_t size) {
          std::memcpy(target, host(address), size);
        });
        std::vector<std::uint16_t> expected;
        for (int k = z; k < z + 2; ++k) {
          for (int j = y; j < y + 4; ++j) {
            for (int i = x; i < x + 32; ++i) {
              const bool inside = 0 <= i && i < 40 && 0 <= j && j < 5 && 0 <= k && k < 3;
              expected.push_back(inside ? before[static_cast<std::size_t>(256 * k + 48 * j + i)] : 0);
            }
          }
        }
        REQUIRE(box.size() == 2 * expected.size());
        CHECK(std::memcmp(box.data(), expected.data(), box.size()) == 0);
        // Stored where it came from, nothing changes; set to zero first, what comes back is inside.
        store_box(map, at, std::vector<std::byte>(box.size()),
                  [&](std::uint64_t address, const void* source, std::size_t size) {
                    std::memcpy(host(address), source, size);
                  });
        store_box(map, at, box, [&](std::uint64_t address, const void* source, std::size_t size) {
          std::memcpy(host(address), source, size);
        });
        CHECK(tensor == before);
      }
    }
  }
  const std::int32_t two[] = {0, 0};
  CHECK_THROWS_AS(load_box(map, two, [](std::uint64_t, void*, std::size_t) {}), std::runtime_error);
}

TEST_CASE("emulator: chunks of a box lie where the swizzle puts them") {
  Case given;
  Bytes bytes;
  REQUIRE(given.encode(bytes) == 0);
  const TensorMap map = decode_tensor_map(bytes.bytes);
  const sm90::PanelTile tile{8, 32, 2, sm90::Swizzle::bytes64};
  std::uint32_t count = 0;
  for_each_box_chunk(map, 4096, [&](std::uint32_t offset, std::uint32_t address) {
    CHECK(address == 4096 + tile.offset(static_cast<int>(offset / 64), static_cast<int>(offset % 64 / 2)));
    ++count;
  });
  CHECK(count == map.box_bytes() / 16);
}

TEST_CASE("emulator: copies reduce element by element") {
  const auto add = [](MapType type, void* target, const void* source, std::size_t bytes) {
    reduce_elements(Reduction::add, type, target, source, bytes);
  };
  float sums[2] = {1.5f, -2.0f};
  const float terms[2] = {0.25f, 3.0f};
  add(MapType::float32, sums, terms, sizeof(sums));
  CHECK(sums[0] == 1.75f);
  CHECK(sums[1] == 1.0f);
  std::uint16_t half[2] = {fp32_to_fp16(2048.0f), fp32_to_fp16(1.0f)};
  const std::uint16_t more[2] = {fp32_to_fp16(1.0f), fp32_to_fp16(0.5f)};
  add(MapType::float16, half, more, sizeof(half));
  CHECK(half[0] == fp32_to_fp16(2048.0f));  // to the nearest, ties to even
  CHECK(half[1] == fp32_to_fp16(1.5f));
  CHECK_THROWS_AS(add(MapType::uint8, half, more, 2), std::runtime_error);
  const auto reduced = [](Reduction reduction, MapType type, std::uint32_t old, std::uint32_t term) {
    reduce_elements(reduction, type, &old, &term, sizeof old);
    return old;
  };
  CHECK(reduced(Reduction::minimum, MapType::int32, 3, ~0u) == ~0u);
  CHECK(reduced(Reduction::minimum, MapType::uint32, 3, ~0u) == 3);
  CHECK(reduced(Reduction::maximum, MapType::int32, 3, ~0u) == 3);
  CHECK(reduced(Reduction::bit_and, MapType::uint32, 12, 10) == 8);
  CHECK(reduced(Reduction::bit_or, MapType::uint32, 12, 10) == 14);
  CHECK(reduced(Reduction::bit_xor, MapType::uint32, 12, 10) == 6);
  CHECK(reduced(Reduction::increment, MapType::uint32, 10, 10) == 0);
  CHECK(reduced(Reduction::decrement, MapType::uint32, 0, 10) == 10);
  CHECK_THROWS_AS(reduced(Reduction::bit_and, MapType::float32, 1, 1), std::runtime_error);
}

}  // namespace tilescope::gpu::emulator::tensor_map_test
