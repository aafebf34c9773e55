// SPDX-License-Identifier: Apache-2.0
// The warpgroup's matrix multiply-accumulate: D (64 x N, fp32, registers) += A (64 x K) B (N x K)^T, K = 16
// elements of 16 bits. A lies in shared memory ("SS") or in registers ("RS"), B in shared memory.
//
// Order: touch registers -> fence_wgmma() -> multiply() -> commit_wgmma() -> wait_for_wgmma(). From
// the first to the last, no register of a WGMMA may be touched; else ptxas makes them wait for each other,
// and says so (C7510 to C7520), which the build takes as an error. Source: PTX ISA, "wgmma.mma_async".
#pragma once

#include <cstdint>

#include "gpu/primitives/sm90/matrix_descriptor.hpp"

namespace tilescope::gpu::sm90 {

enum class WgmmaType : std::uint8_t { fp16, bf16, e4m3, e5m2 };
/// Whether operands are bytes: both lie along K then, and an instruction takes 32 of K in place of 16.
constexpr bool of_bytes(WgmmaType type) { return type == WgmmaType::e4m3 || type == WgmmaType::e5m2; }

__device__ __forceinline__ void fence_wgmma() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void commit_wgmma() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
/// Until all but the newest kGroups groups are done.
template <int kGroups>
__device__ __forceinline__ void wait_for_wgmma() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kGroups) : "memory");
}

template <int kN>
struct WgmmaWidth {
  static constexpr bool exists = false;
};

// An instruction takes its N / 2 result registers one by one, and inline assembly numbers its operands in the
// text. So: the text and the operands by eights, from which each width is put together.
#define TS_T0 "%0,%1,%2,%3,%4,%5,%6,%7"
#define TS_T1 ",%8,%9,%10,%11,%12,%13,%14,%15"
#define TS_T2 ",%16,%17,%18,%19,%20,%21,%22,%23"
#define TS_T3 ",%24,%25,%26,%27,%28,%29,%30,%31"
#define TS_T4 ",%32,%33,%34,%35,%36,%37,%38,%39"
#define TS_T5 ",%40,%41,%42,%43,%44,%45,%46,%47"
#define TS_T6 ",%48,%49,%50,%51,%52,%53,%54,%55"
#define TS_T7 ",%56,%57,%58,%59,%60,%61,%62,%63"
#define TS_T8 ",%64,%65,%66,%67,%68,%69,%70,%71"
#define TS_T9 ",%72,%73,%74,%75,%76,%77,%78,%79"
#define TS_T10 ",%80,%81,%82,%83,%84,%85,%86,%87"
#define TS_T11 ",%88,%89,%90,%91,%92,%93,%94,%95"
#define TS_T12 ",%96,%97,%98,%99,%100,%101,%102,%103"
#define TS_T13 ",%104,%105,%106,%107,%108,%109,%110,%111"
#define TS_T14 ",%112,%113,%114,%115,%116,%117,%118,%119"
#define TS_T15 ",%120,%121,%122,%123,%124,%125,%126,%127"
#define TS_TEXT2 TS_T0 TS_T1
#define TS_TEXT4 TS_TEXT2 TS_T2 TS_T3
#define TS_TEXT5 TS_TEXT4 TS_T4
#define TS_TEXT6 TS_TEXT5 TS_T5
#define TS_TEXT7 TS_TEXT6 TS_T6
#define TS_TEXT8 TS_TEXT7 TS_T7
#define TS_TEXT9 TS_TEXT8 TS_T8
#define TS_TEXT10 TS_TEXT9 TS_T9
#define TS_TEXT11 TS_TEXT10 TS_T10
#define TS_TEXT12 TS_TEXT11 TS_T11
#define TS_TEXT14 TS_TEXT12 TS_T12 TS_T13
#define TS_TEXT16 TS_TEXT14 TS_T14 TS_T15
#define TS_8(i)                                                                               \
  "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), \
      "+f"(d[i + 6]), "+f"(d[i + 7])
#define TS_REGISTERS2 TS_8(0), TS_8(8)
#define TS_REGISTERS4 TS_REGISTERS2, TS_8(16), TS_8(24)
#define TS_REGISTERS5 TS_REGISTERS4, TS_8(32)
#define TS_REGISTERS6 TS_REGISTERS5, TS_8(40)
#define TS_REGISTERS7 TS_REGISTERS6, TS_8(48)
#define TS_REGISTERS8 TS_REGISTERS7, TS_8(56)
#define TS_REGISTERS9 TS_REGISTERS8, TS_8(64)
#define TS_REGISTERS10 TS_REGISTERS9, TS_8(72)
#define TS_REGISTERS11 TS_REGISTERS10, TS_8(80)
#define TS_REGISTERS12 TS_REGISTERS11, TS_8(88)
#define TS_REGISTERS14 TS_REGISTERS12, TS_8(96), TS_8(104)
#define TS_REGISTERS16 TS_REGISTERS14, TS_8(112), TS_8(120)

// N; its sixteens; the types; the numbers of the operands behind the N / 2 results: A's (one or four), B's,
// whether to accumulate, and the transpose bits.
#define TS_SS(N, S, TYPE, A, B, P, TA, TB)                                                              \
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" #P ", 0;\nwgmma.mma_async.sync.aligned.m64n" #N     \
               "k16.f32." TYPE "." TYPE " {" TS_TEXT##S "}, %" #A ", %" #B ", p, 1, 1, %" #TA ", %" #TB \
                                                        ";\n}"                                          \
               : TS_REGISTERS##S                                                                        \
               : "l"(a), "l"(b), "r"(accumulate), "n"(kMajorA == Major::mn), "n"(kMajorB == Major::mn))
#define TS_RS(N, S, TYPE, A0, A1, A2, A3, B, P, TB)                                                        \
  asm volatile(                                                                                            \
      "{\n.reg .pred p;\nsetp.ne.b32 p, %" #P ", 0;\nwgmma.mma_async.sync.aligned.m64n" #N "k16.f32." TYPE \
      "." TYPE " {" TS_TEXT##S "}, {%" #A0 ",%" #A1 ",%" #A2 ",%" #A3 "}, %" #B ", p, 1, 1, %" #TB ";\n}"  \
      : TS_REGISTERS##S                                                                                    \
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate), "n"(kMajorB == Major::mn))
#define TS_SS_BYTES(N, S, TYPE, A, B, P)                                                            \
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" #P ", 0;\nwgmma.mma_async.sync.aligned.m64n" #N \
               "k32.f32." TYPE "." TYPE " {" TS_TEXT##S "}, %" #A ", %" #B ", p, 1, 1;\n}"          \
               : TS_REGISTERS##S                                                                    \
               : "l"(a), "l"(b), "r"(accumulate))
#define TS_RS_BYTES(N, S, TYPE, A0, A1, A2, A3, B, P)                                                    \
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" #P ", 0;\nwgmma.mma_async.sync.aligned.m64n" #N      \
               "k32.f32." TYPE "." TYPE " {" TS_TEXT##S "}, {%" #A0 ",%" #A1 ",%" #A2 ",%" #A3 "}, %" #B \
                                                        ", p, 1, 1;\n}"                                  \
               : TS_REGISTERS##S                                                                         \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate))
#define TS_WIDTH(N, S, R0, R1, R2, R3, R4, R5, R6)                                                       \
  template <>                                                                                            \
  struct WgmmaWidth<N> {                                                                                 \
    static constexpr bool exists = true;                                                                 \
    template <WgmmaType kType, Major kMajorA, Major kMajorB>                                             \
    static __device__ __forceinline__ void multiply(float (&d)[N / 2], std::uint64_t a, std::uint64_t b, \
                                                    int accumulate) {                                    \
      if constexpr (kType == WgmmaType::fp16) {                                                          \
        TS_SS(N, S, "f16", R0, R1, R2, R3, R4);                                                          \
      } else if constexpr (kType == WgmmaType::bf16) {                                                   \
        TS_SS(N, S, "bf16", R0, R1, R2, R3, R4);                                                         \
      } else if constexpr (kType == WgmmaType::e4m3) {                                                   \
        TS_SS_BYTES(N, S, "e4m3", R0, R1, R2);                                                           \
      } else {                                                                                           \
        TS_SS_BYTES(N, S, "e5m2", R0, R1, R2);                                                           \
      }                                                                                                  \
    }                                                                                                    \
    template <WgmmaType kType, Major kMajorB>                                                            \
    static __device__ __forceinline__ void multiply(float (&d)[N / 2], const std::uint32_t* a,           \
                                                    std::uint64_t b, int accumulate) {                   \
      if constexpr (kType == WgmmaType::fp16) {                                                          \
        TS_RS(N, S, "f16", R0, R1, R2, R3, R4, R5, R6);                                                  \
      } else if constexpr (kType == WgmmaType::bf16) {                                                   \
        TS_RS(N, S, "bf16", R0, R1, R2, R3, R4, R5, R6);                                                 \
      } else if constexpr (kType == WgmmaType::e4m3) {                                                   \
        TS_RS_BYTES(N, S, "e4m3", R0, R1, R2, R3, R4, R5);                                               \
      } else {                                                                                           \
        TS_RS_BYTES(N, S, "e5m2", R0, R1, R2, R3, R4, R5);                                               \
      }                                                                                                  \
    }                                                                                                    \
  };

TS_WIDTH(32, 2, 16, 17, 18, 19, 20, 21, 22)
TS_WIDTH(64, 4, 32, 33, 34, 35, 36, 37, 38)
TS_WIDTH(80, 5, 40, 41, 42, 43, 44, 45, 46)
TS_WIDTH(96, 6, 48, 49, 50, 51, 52, 53, 54)
TS_WIDTH(112, 7, 56, 57, 58, 59, 60, 61, 62)
TS_WIDTH(128, 8, 64, 65, 66, 67, 68, 69, 70)
TS_WIDTH(160, 10, 80, 81, 82, 83, 84, 85, 86)
TS_WIDTH(192, 12, 96, 97, 98, 99, 100, 101, 102)
TS_WIDTH(224, 14, 112, 113, 114, 115, 116, 117, 118)
TS_WIDTH(256, 16, 128, 129, 130, 131, 132, 133, 134)

#undef TS_WIDTH
#undef TS_RS_BYTES
#undef TS_SS_BYTES
#undef TS_RS
#undef TS_SS

/// d += A B^T (d = A B^T if not `accumulate`), both operands from shared memory.
template <int kN, WgmmaType kType, Major kMajorA = Major::k, Major kMajorB = Major::k>
__device__ __forceinline__ void multiply(float (&d)[kN / 2], std::uint64_t a, std::uint64_t b,
                                         bool accumulate) {
  static_assert(WgmmaWidth<kN>::exists, "this N has no wrapper yet");
  static_assert(!of_bytes(kType) || (kMajorA == Major::k && kMajorB == Major::k));
  WgmmaWidth<kN>::template multiply<kType, kMajorA, kMajorB>(d, a, b, accumulate);
}
/// The same with A's four registers, in the order of left_operand_entry(), of bytes left_byte_entry().
template <int kN, WgmmaType kType, Major kMajorB = Major::k>
__device__ __forceinline__ void multiply(float (&d)[kN / 2], const std::uint32_t* a, std::uint64_t b,
                                         bool accumulate) {
  static_assert(WgmmaWidth<kN>::exists, "this N has no wrapper yet");
  static_assert(!of_bytes(kType) || kMajorB == Major::k);
  WgmmaWidth<kN>::template multiply<kType, kMajorB>(d, a, b, accumulate);
}

/// Where an operand lies, in wgmma's terms: the first K step's descriptor, its low word apart, since that is
/// all that a step or a stage changes.
struct Operand {
  std::uint32_t low = 0;
  std::uint32_t high = 0;

  __device__ __forceinline__ Operand(const PanelTile& tile, Major major, std::uint32_t address) {
    const std::uint64_t word = describe(tile, major, 0).word();
    low = static_cast<std::uint32_t>(word) + (address >> 4);
    high = static_cast<std::uint32_t>(word >> 32);
  }
  /// The descriptor of a K step: `step` of k_step().
  __device__ __forceinline__ std::uint64_t at(std::uint32_t step) const {
    std::uint64_t word;
    asm("mov.b64 %0, {%1, %2};" : "=l"(word) : "r"(low + step), "r"(high));
    return word;
  }
};

}  // namespace tilescope::gpu::sm90
