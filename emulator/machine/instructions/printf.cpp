// SPDX-License-Identifier: Apache-2.0
#include "emulator/machine/instructions/printf.hpp"

#include <fmt/printf.h>

#include <cstring>
#include <string_view>

#include "emulator/machine/memory_access.hpp"
#include "emulator/ptx/lexer.hpp"

namespace tilescope::gpu::emulator {
namespace {

/// The arguments of a call, one after the other.
class Arguments {
 public:
  Arguments(Warp& warp, int lane, std::uint64_t at) : warp_(warp), lane_(lane), at_(at) {}

  template <class T>
  T next() {
    at_ = (at_ + sizeof(T) - 1) / sizeof(T) * sizeof(T);
    T value;
    std::memcpy(&value, generic_target(warp_, at_, sizeof(T), lane_), sizeof(T));
    at_ += sizeof(T);
    return value;
  }

 private:
  Warp& warp_;
  int lane_;
  std::uint64_t at_;
};

/// One conversion, such as "%-5.2f", with `*` taken from the arguments.
std::string converted(Warp& warp, int lane, std::string_view spec, Arguments& arguments) {
  std::string plain;  // without the words of size: fmt knows the type
  bool is_long = false;
  for (const char c : spec.substr(0, spec.size() - 1)) {
    if (c == '*') {
      plain += std::to_string(arguments.next<std::int32_t>());
    } else if (c == 'l' || c == 'j' || c == 'z' || c == 't') {
      is_long = true;
    } else if (c != 'h') {
      plain += c;
    }
  }
  const char kind = spec.back();
  plain += kind == 'p' ? 'x' : kind;
  switch (kind) {
    case 'd':
    case 'i':
      return is_long ? fmt::sprintf(plain, arguments.next<std::int64_t>())
                     : fmt::sprintf(plain, arguments.next<std::int32_t>());
    case 'u':
    case 'o':
    case 'x':
    case 'X':
      return is_long ? fmt::sprintf(plain, arguments.next<std::uint64_t>())
                     : fmt::sprintf(plain, arguments.next<std::uint32_t>());
    case 'c':
      return fmt::sprintf(plain, static_cast<char>(arguments.next<std::int32_t>()));
    case 'p':
      return "0x" + fmt::sprintf(plain, arguments.next<std::uint64_t>());
    case 's':
      return fmt::sprintf(plain, text_at(warp, arguments.next<std::uint64_t>(), lane));
    default:
      return fmt::sprintf(plain, arguments.next<double>());
  }
}

}  // namespace

std::string text_at(Warp& warp, std::uint64_t address, int lane) {
  constexpr std::size_t kMost = 4096;
  std::string text;
  while (text.size() < kMost) {
    const char c = static_cast<char>(*generic_target(warp, address + text.size(), 1, lane));
    if (c == '\0') break;
    text += c;
  }
  return text;
}

std::string formatted(Warp& warp, int lane, std::uint64_t format_address, std::uint64_t arguments_address) {
  const std::string format = text_at(warp, format_address, lane);
  Arguments arguments(warp, lane, arguments_address);
  std::string text;
  for (std::size_t at = 0; at < format.size();) {
    const std::size_t percent = std::min(format.find('%', at), format.size());
    text += format.substr(at, percent - at);
    if (percent >= format.size()) break;
    if (format.substr(percent, 2) == "%%") {
      text += '%';
      at = percent + 2;
      continue;
    }
    const std::size_t kind = format.find_first_of("diouxXeEfFgGaAcsp", percent);
    if (kind == std::string::npos) return text + format.substr(percent);
    const std::string_view spec = std::string_view(format).substr(percent, kind + 1 - percent);
    try {
      text += converted(warp, lane, spec, arguments);
    } catch (const fmt::format_error&) {
      throw Fault("printf with '" + ptx::printable(spec) + "', which prints nothing", lane);
    }
    at = kind + 1;
  }
  return text;
}

}  // namespace tilescope::gpu::emulator
