// SPDX-License-Identifier: Apache-2.0
// What single instructions give, by the PTX ISA.
#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <string>

#include "tests/emulator/machine/check_values.hpp"

namespace tilescope::gpu::emulator {
namespace {

using testing::PtxRun;

using testing::bits;
using testing::bits_of;
using testing::check_values;
using testing::kInfinity;
using testing::kNan;
using testing::lower;
using testing::number;
using testing::predicate;
using testing::upper;

TEST_CASE("emulator: integer arithmetic") {
  check_values({
      {"add.s32 %r10, 2147483647, 1", 0x80000000},
      {"sub.u32 %r10, 0, 1", 0xffffffff},
      {"mul.lo.s32 %r10, 65537, 65537", 131073},
      {"mul.hi.s32 %r10, -2, 3", 0xffffffff},
      {"mul.hi.u32 %r10, -2, 3", 2},
      {upper("mul.wide.s32 %rd10, -2, 3"), 0xffffffff},
      {upper("mul.wide.u32 %rd10, -2, 3"), 2},
      {upper("mul.hi.u64 %rd10, -1, -1"), 0xffffffff},
      {"mov.u16 %h1, 65535;\nmul.wide.u16 %r10, %h1, %h1", 0xfffe0001},
      {"mad.lo.s32 %r10, 3, -4, 5", 0xfffffff9},
      {lower("mad.wide.s32 %rd10, 3, -4, 5"), 0xfffffff9},
      {"div.s32 %r10, -7, 2", 0xfffffffd},
      {"div.u32 %r10, -7, 2", 0x7ffffffc},
      {"rem.s32 %r10, -7, 2", 0xffffffff},
      {"div.s32 %r10, -2147483648, -1", 0x80000000},
      {"min.s32 %r10, -1, 1", 0xffffffff},
      {"min.u32 %r10, -1, 1", 1},
      {"max.s32 %r10, -1, 1", 1},
      {"abs.s32 %r10, -5", 5},
      {"neg.s32 %r10, 5", 0xfffffffb},
  });
}

TEST_CASE("emulator: bits") {
  check_values({
      {"and.b32 %r10, 12, 10", 8},
      {"or.b32 %r10, 12, 10", 14},
      {"xor.b32 %r10, 12, 10", 6},
      {"not.b32 %r10, 12", 0xfffffff3},
      {"shl.b32 %r10, 3, 31", 0x80000000},
      {"shl.b32 %r10, 3, 32", 0},
      {"shr.u32 %r10, -1, 28", 15},
      {"shr.s32 %r10, -16, 2", 0xfffffffc},
      {"shr.s32 %r10, -16, 99", 0xffffffff},
      {upper("shl.b64 %rd10, 1, 33"), 2},
      {"shf.l.wrap.b32 %r10, 0x80000000, 1, 33", 3},
      {"shf.r.clamp.b32 %r10, 1, 7, 40", 7},
      {"lop3.b32 %r10, 12, 10, 6, 0x96", 0},  // a ^ b ^ c
      {"lop3.b32 %r10, 12, 10, 1, 0xEA", 9},  // (a & b) | c
      {"prmt.b32 %r10, 0x33221100, 0x77665544, 0x7520", 0x77552200},
      {"prmt.b32 %r10, 0x80, 0, 0x0008", 0x808080ff},
      {"bfi.b32 %r10, 0xff, 0x12345678, 8, 4", 0x12345f78},
      {"bfi.b32 %r10, 5, -1, 0, 32", 5},
      {"bfe.u32 %r10, 0x12345678, 8, 8", 0x56},
      {"bfe.s32 %r10, 0x0000f000, 12, 4", 0xffffffff},
      {"popc.b32 %r10, 0xf0f0", 8},
      {"clz.b32 %r10, 1", 31},
      {"brev.b32 %r10, 1", 0x80000000},
  });
}

TEST_CASE("emulator: floating-point arithmetic is rounded once, and NaN is one") {
  const std::string tiny = number(std::numeric_limits<float>::denorm_min());
  check_values({
      {bits("add.f32 %f10, " + number(1.0f) + ", " + number(0x1p-24f)), bits_of(1.0f)},
      {bits("fma.rn.f32 %f10, " + number(1.0f + 0x1p-23f) + ", " + number(1.0f - 0x1p-23f) + ", " +
            number(-1.0f)),
       bits_of(-0x1p-46f)},
      {bits("fma.rm.f32 %f10, " + number(1.0f) + ", " + number(1.0f) + ", " + number(-0x1p-60f)),
       bits_of(1.0f - 0x1p-24f)},
      {bits("fma.rm.f32 %f10, " + number(1.0f) + ", " + number(1.0f) + ", " + number(0x1p-60f)),
       bits_of(1.0f)},
      {bits("fma.rm.f32 %f10, " + number(-1.0f) + ", " + number(1.0f) + ", " + number(-0x1p-25f)),
       bits_of(-1.0f - 0x1p-23f)},
      {bits("fma.rm.f32 %f10, " + number(3.0f) + ", " + number(0.5f) + ", " + number(-1.5f)), 0x80000000},
      {bits("fma.rm.f32 %f10, " + number(-0.0f) + ", " + number(1.0f) + ", " + number(0.0f)), 0x80000000},
      {bits("fma.rm.f32 %f10, " + number(-0.0f) + ", " + number(1.0f) + ", " + number(-0.0f)), 0x80000000},
      {bits("fma.rm.f32 %f10, " + number(0.0f) + ", " + number(1.0f) + ", " + number(0.0f)), 0},
      {bits("fma.rm.f32 %f10, " + tiny + ", " + number(0x1p-20f) + ", " + number(0.0f)), 0},
      {bits("fma.rn.f32 %f10, " + number(3.0f) + ", " + number(0.5f) + ", " + number(-1.5f)), 0},
      {bits("cvt.sat.f32.f32 %f10, " + number(-1.0f)), 0},
      {bits("cvt.sat.f32.f32 %f10, " + number(1.5f)), bits_of(1.0f)},
      {"mov.b16 %h1, 0x3F80;\nadd.bf16 %h1, %h1, %h1;\ncvt.u32.u16 %r10, %h1", 0x4000},
      {"mov.b32 %r1, 0x3c004000;\nmul.f16x2 %r10, %r1, %r1", 0x3c004400},
      {bits("mul.f32 %f10, " + number(kInfinity) + ", " + number(0.0f)), kNan},
      {bits("sub.f32 %f10, " + number(kInfinity) + ", " + number(kInfinity)), kNan},
      {bits("mul.f32 %f10, " + tiny + ", " + number(1.0f)), 1},
      {bits("mul.ftz.f32 %f10, " + tiny + ", " + number(1.0f)), 0},
      {bits("max.f32 %f10, 0f7FC00000, " + number(-3.0f)), bits_of(-3.0f)},
      {bits("max.f32 %f10, " + number(-0.0f) + ", " + number(0.0f)), 0},
      {bits("min.f32 %f10, " + number(0.0f) + ", " + number(-0.0f)), 0x80000000},
      {bits("div.rn.f32 %f10, " + number(1.0f) + ", " + number(3.0f)), bits_of(1.0f / 3.0f)},
      {bits("rcp.rn.f32 %f10, " + number(-0.0f)), bits_of(-kInfinity)},
      {bits("sqrt.rn.f32 %f10, " + number(2.0f)), bits_of(std::sqrt(2.0f))},
      {bits("ex2.approx.ftz.f32 %f10, " + number(-3.0f)), bits_of(0.125f)},
      {bits("ex2.approx.ftz.f32 %f10, " + number(-kInfinity)), 0},
      {bits("ex2.approx.ftz.f32 %f10, " + number(-140.0f)), 0},
      {bits("ex2.approx.f32 %f10, " + number(-140.0f)), bits_of(0x1p-140f)},
      {bits("lg2.approx.f32 %f10, " + number(8.0f)), bits_of(3.0f)},
      {bits("abs.f32 %f10, " + number(-2.0f)), bits_of(2.0f)},
      {bits("neg.f32 %f10, " + number(0.0f)), 0x80000000},
      {upper("mov.f64 %rd10, 0d3FF0000000000000;\nadd.f64 %rd10, %rd10, %rd10"), 0x40000000},
  });
}

TEST_CASE("emulator: comparisons, ordered and not, and what they are combined with") {
  const std::string nan = "0f7FC00000", one = number(1.0f), two = number(2.0f);
  check_values({
      {predicate("setp.lt.s32 %p1, -1, 1"), 1},
      {predicate("setp.lt.u32 %p1, -1, 1"), 0},
      {predicate("setp.hi.u32 %p1, -1, 1"), 1},
      {predicate("setp.lt.f32 %p1, " + one + ", " + two), 1},
      {predicate("setp.ne.f32 %p1, " + nan + ", " + one), 0},
      {predicate("setp.neu.f32 %p1, " + nan + ", " + one), 1},
      {predicate("setp.geu.f32 %p1, " + nan + ", " + one), 1},
      {predicate("setp.ge.f32 %p1, " + nan + ", " + one), 0},
      {predicate("setp.nan.f32 %p1, " + nan + ", " + one), 1},
      {predicate("setp.num.f32 %p1, " + two + ", " + one), 1},
      {predicate("setp.num.f32 %p1, " + nan + ", " + one), 0},
      {predicate("setp.ltu.f32 %p1, " + two + ", " + one), 0},
      {predicate("setp.gtu.f32 %p1, " + two + ", " + one), 1},
      {predicate("setp.leu.f32 %p1, " + one + ", " + nan), 1},
      {predicate("setp.equ.f32 %p1, " + one + ", " + two), 0},
      {predicate("setp.equ.f32 %p1, " + one + ", " + nan), 1},
      {predicate("mov.pred %p2, -1;\nsetp.eq.xor.s32 %p1, 1, 1, %p2"), 0},
      {predicate("mov.pred %p2, -1;\nsetp.eq.and.s32 %p1, 1, 1, !%p2"), 0},
      {predicate("mov.pred %p2, 0;\nsetp.eq.or.s32 %p1|%p3, 1, 1, %p2"), 1},
      {predicate("mov.pred %p2, 0;\nsetp.eq.or.s32 %p3|%p1, 1, 1, %p2"), 0},
      {predicate("setp.eq.s32 %p2, 1, 1;\nnot.pred %p1, %p2"), 0},
      {predicate("setp.eq.s32 %p2, 1, 1;\nxor.pred %p1, %p2, %p2"), 0},
      {lower("setp.eq.s32 %p1, 1, 2;\nselp.b64 %rd10, 3, 4, %p1"), 4},
  });
}

TEST_CASE("emulator: conversions round as their modifiers say, and saturate") {
  const auto to_integer = [](const std::string& form, float value) {
    return "mov.f32 %f1, " + number(value) + ";\ncvt." + form + ".f32 %r10, %f1";
  };
  const auto pair = [](const std::string& form, float a, float b) {
    return "mov.f32 %f1, " + number(a) + ";\nmov.f32 %f2, " + number(b) + ";\ncvt.rn." + form +
           ".f32 %r10, %f1, %f2";
  };
  const auto bytes = [](const std::string& form, float a, float b) {
    return "mov.f32 %f1, " + number(a) + ";\nmov.f32 %f2, " + number(b) + ";\ncvt.rn.satfinite." + form +
           "x2.f32 %h1, %f1, %f2;\ncvt.u32.u16 %r10, %h1";
  };
  check_values({
      {to_integer("rni.s32", 2.5f), 2},
      {to_integer("rzi.s32", -2.5f), 0xfffffffe},
      {to_integer("rmi.s32", -2.5f), 0xfffffffd},
      {to_integer("rpi.s32", 2.25f), 3},
      {to_integer("rzi.s32", 3e9f), 0x7fffffff},
      {to_integer("rzi.u32", -1.0f), 0},
      {to_integer("rzi.s32", std::nanf("")), 0},
      {bits("mov.u32 %r1, 16777217;\ncvt.rn.f32.s32 %f10, %r1"), bits_of(16777216.0f)},
      {upper("mov.u32 %r1, -1;\ncvt.s64.s32 %rd10, %r1"), 0xffffffff},
      {upper("mov.u32 %r1, -1;\ncvt.u64.u32 %rd10, %r1"), 0},
      {"mov.u16 %h1, 0x1ff;\ncvt.u32.u8 %r10, %h1", 0xff},
      {"mov.u16 %h1, 0x1ff;\ncvt.s32.s8 %r10, %h1", 0xffffffff},
      {"mov.u32 %r1, 0x12348;\ncvt.u16.u32 %h1, %r1;\ncvt.u32.u16 %r10, %h1", 0x2348},
      {pair("f16x2", 1.0f, -2.0f), 0x3c00c000},
      {pair("f16x2", 65520.0f, 2049.0f), 0x7c006800},
      {pair("bf16x2", 1.00390625f, 1.01171875f), 0x3f803f82},
      {bytes("e4m3", 500.0f, -1.0f), 0x7eb8},
      {bytes("e5m2", 1.0f, 1e9f), 0x3c7b},
      {"mov.u16 %h1, 0x38b8;\ncvt.rn.f16x2.e4m3x2 %r10, %h1", 0x3c00bc00},
      {bits("mov.b16 %h1, 0xBC00;\ncvt.f32.f16 %f10, %h1"), bits_of(-1.0f)},
      {upper("mov.f32 %f1, " + number(1.5f) + ";\ncvt.f64.f32 %rd10, %f1"), 0x3ff80000},
      {"mov.b32 {%h1, %h2}, 0x12345678;\nmov.b32 %r10, {%h2, %h1}", 0x56781234},
  });
}

TEST_CASE("emulator: a form of an instruction that is not known is refused with its line") {
  for (const std::string ptx :
       {"add.rq.f32 %f1, %f1, %f1;", "cvt.rz.e4m3x2.f32 %h1, %f1, %f1;", "st.async.b32 [%r1], %r1, [%r1];",
        "tex.1d %r1;", "mul.s32 %r1, %r1;", "setp.eq.and.s32 %p1, %r1, %r1;",
        "setp.eq.s32 %p1, %r1, %r1, %p2;",
        "wmma.load.a.sync.aligned.row.m16n16k16.tf32 {%r1, %r1, %r1, %r1}, [%rd1];"}) {
    CAPTURE(ptx);
    CHECK_THROWS_WITH_AS(PtxRun{}("mov.u32 %r1, 0;\n" + ptx), doctest::Contains("PTX line 17: "),
                         std::runtime_error);
  }
}

}  // namespace
}  // namespace tilescope::gpu::emulator
