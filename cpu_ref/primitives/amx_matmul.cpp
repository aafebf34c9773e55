// SPDX-License-Identifier: Apache-2.0
#include "cpu_ref/primitives/amx_matmul.hpp"

#include <cstdint>
#include <stdexcept>

#include "cpu_ref/primitives/bf16_matmul.hpp"

#if defined(__x86_64__) && defined(__linux__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "cpu_ref/primitives/tile_registers.hpp"

namespace tilescope {
namespace {

/// AMX's own. In assembly, since intrinsics take the number of a register as a token alone.
struct AmxRegisters {
  template <int r>
  static void clear() {
    asm volatile("tilezero %%tmm%c0" : : "i"(r));
  }
  template <int r>
  static void load(const float* from, std::ptrdiff_t stride) {
    asm volatile("tileloadd (%0,%1,1), %%tmm%c2" : : "r"(from), "r"(stride * 4), "i"(r) : "memory");
  }
  template <int r>
  static void store(float* to, std::ptrdiff_t stride) {
    asm volatile("tilestored %%tmm%c2, (%0,%1,1)" : : "r"(to), "r"(stride * 4), "i"(r) : "memory");
  }
  template <int c, int a, int b>
  static void add_products() {
    asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(c), "i"(a), "i"(b));
  }
};

/// What LDTILECFG reads: all registers have 16 rows of 64 bytes.
struct alignas(64) Configuration {
  std::uint8_t palette = 1, start_row = 0, reserved[14] = {};
  std::uint16_t row_bytes[16] = {};
  std::uint8_t rows[16] = {};

  Configuration() {
    for (int r = 0; r < 8; ++r) row_bytes[r] = kRegisterWords * 4, rows[r] = kRegisterRows;
  }
};
static_assert(sizeof(Configuration) == 64);

/// Linux keeps the registers of a process only once it has asked for them (arch_prctl of asm/prctl.h).
bool has_amx() {
  constexpr unsigned kOsXsave = 1u << 27, kBf16 = 1u << 22, kTiles = 1u << 24;
  constexpr unsigned kTileState = 1u << 17 | 1u << 18;
  constexpr int kRequestPermission = 0x1023, kTileData = 18;
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (!__get_cpuid(1, &a, &b, &c, &d) || (c & kOsXsave) == 0) return false;
  if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || (d & kBf16) == 0 || (d & kTiles) == 0) return false;
  unsigned enabled = 0, upper = 0;
  asm volatile("xgetbv" : "=a"(enabled), "=d"(upper) : "c"(0));
  return (enabled & kTileState) == kTileState && syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

}  // namespace

struct AmxMatmul::Products : RegisterMatmul<AmxRegisters> {};

bool multiplies_by_amx() {
  static const bool has = has_amx();
  return has && multiplies_bf16_pairs();
}

AmxMatmul::AmxMatmul() : products_(std::make_unique<Products>()) {
  static const Configuration configuration;
  asm volatile("ldtilecfg %0" : : "m"(configuration));
}

AmxMatmul::~AmxMatmul() { asm volatile("tilerelease"); }

void AmxMatmul::operator()(const LeftOperand& a, const float* b, std::ptrdiff_t b_stride, float* c,
                           std::ptrdiff_t c_stride, int rows, int cols, int words, Accumulate accumulate) {
  (*products_)(a, b, b_stride, c, c_stride, rows, cols, words, accumulate);
}

}  // namespace tilescope

#else
namespace tilescope {

struct AmxMatmul::Products {};
bool multiplies_by_amx() { return false; }
AmxMatmul::AmxMatmul() { throw std::logic_error("this processor has no AMX"); }
AmxMatmul::~AmxMatmul() = default;
void AmxMatmul::operator()(const LeftOperand&, const float*, std::ptrdiff_t, float*, std::ptrdiff_t, int, int,
                           int, Accumulate) {}

}  // namespace tilescope
#endif
