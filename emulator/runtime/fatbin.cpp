// SPDX-License-Identifier: Apache-2.0
// NVIDIA documents the wrapper (fatbinary_section.h) but not what it points to, which is seen in any object:
// a header of 16 bytes, then entries of a header and a payload each.
#include "emulator/runtime/fatbin.hpp"

#include <cstdint>
#include <cstring>
#include <stdexcept>

namespace tilescope::gpu::emulator {
namespace {

struct Wrapper {
  std::uint32_t magic, version;
  const std::byte* fatbin;
  const void* of_linked_objects;
};
constexpr std::uint32_t kWrapperMagic = 0x466243b1;

struct Header {
  std::uint32_t magic;
  std::uint16_t version, header_bytes;
  std::uint64_t payload_bytes;  // of all entries with their headers
};
constexpr std::uint32_t kMagic = 0xba55ed50;

/// The header of one entry, as far as it matters here; the fields behind are options and names.
struct Entry {
  std::uint16_t kind, version;
  std::uint32_t header_bytes;
  std::uint64_t payload_bytes;
  std::uint32_t compressed_bytes, options_at;
  std::uint16_t isa_minor, isa_major;
  std::uint32_t compute_capability;
  std::uint32_t name_at, name_bytes;
  std::uint64_t flags;
};
constexpr std::uint16_t kPtx = 1;
constexpr std::uint64_t kCompressedFlags = 0x2000 | 0x8000;  // LZ4, Zstandard

template <typename T>
T read(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

/// Without the zeros that fill its last word.
std::string_view text_of(const std::byte* from, std::uint64_t bytes) {
  const std::string_view text(reinterpret_cast<const char*>(from), bytes);
  return text.substr(0, text.find('\0'));
}

}  // namespace

std::vector<PtxText> ptx_texts(const void* wrapper) {
  const auto wrapped = read<Wrapper>(static_cast<const std::byte*>(wrapper));
  if (wrapped.magic != kWrapperMagic) throw std::runtime_error("not the wrapper of a fat binary");
  const auto header = read<Header>(wrapped.fatbin);
  if (header.magic != kMagic || header.version != 1)
    throw std::runtime_error("not a fat binary of version 1");
  const std::byte* at = wrapped.fatbin + header.header_bytes;
  const std::byte* const end = at + header.payload_bytes;
  std::vector<PtxText> texts;
  while (at < end) {
    const auto entry = read<Entry>(at);
    if (entry.header_bytes < sizeof(Entry)) throw std::runtime_error("a damaged entry of a fat binary");
    if (entry.kind == kPtx) {
      if (entry.flags & kCompressedFlags) {
        throw std::runtime_error(
            "the PTX in this program is compressed: compile with nvcc --compress-mode=none");
      }
      texts.push_back({static_cast<int>(entry.compute_capability),
                       text_of(at + entry.header_bytes, entry.payload_bytes)});
    }
    at += entry.header_bytes + entry.payload_bytes;
  }
  return texts;
}

}  // namespace tilescope::gpu::emulator
