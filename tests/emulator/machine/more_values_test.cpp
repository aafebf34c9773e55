// SPDX-License-Identifier: Apache-2.0
// What halves, directed roundings, carries, fields and functions give, by the PTX ISA.
#include <doctest/doctest.h>

#include <string>

#include "tests/emulator/machine/check_values.hpp"

namespace tilescope::gpu::emulator::more_values_test {

using testing::bits;
using testing::bits_of;
using testing::check_values;
using testing::number;
using testing::predicate;
using testing::PtxRun;
using testing::upper;

std::string halves(const char* a, const char* b, const std::string& instruction) {
  return std::string("mov.b16 %h1, ") + a + ";\nmov.b16 %h2, " + b + ";\nmov.b16 %h3, 0x3C00;\n" +
         instruction + ";\ncvt.u32.u16 %r10, %h4";
}
std::string pairs(const char* a, const char* b, const std::string& instruction) {
  return std::string("mov.b32 %r1, ") + a + ";\nmov.b32 %r2, " + b + ";\n" + instruction;
}

TEST_CASE("emulator: arithmetic of fp16 and bf16 is rounded once") {
  check_values({
      {halves("0x3C01", "0x3C01", "mul.rn.f16 %h4, %h1, %h2"), 0x3c02},
      // (1 + 2^-10)^2 + 1 lies behind a tie of fp16, which a sum rounded in fp32 first would keep
      {halves("0x3C01", "0x3C01", "fma.rn.f16 %h4, %h1, %h2, %h3"), 0x4001},
      {halves("0x3F80", "0x3F81", "fma.rn.bf16 %h4, %h1, %h2, %h1"), 0x4000},
      {halves("0x0001", "0x3800", "mul.ftz.f16 %h4, %h1, %h2"), 0},
      {halves("0x4200", "0xC000", "add.sat.f16 %h4, %h1, %h2"), 0x3c00},
      {halves("0xC200", "0x3C00", "fma.rn.relu.f16 %h4, %h1, %h2, %h2"), 0},
      {halves("0x8000", "0x0000", "min.f16 %h4, %h1, %h2"), 0x8000},
      {halves("0x7E00", "0x3C00", "max.f16 %h4, %h1, %h2"), 0x3c00},
      {halves("0x7E00", "0x3C00", "max.NaN.f16 %h4, %h1, %h2"), 0x7fff},
      {halves("0xBF80", "0", "abs.bf16 %h4, %h1"), 0x3f80},
      {halves("0x3F80", "0", "neg.bf16 %h4, %h1"), 0xbf80},
      {halves("0x0000", "0", "ex2.approx.f16 %h4, %h1"), 0x3c00},
      {pairs("0x40003C00", "0x3C004000", "sub.f16x2 %r10, %r1, %r2"), 0x3c00bc00},
      {pairs("0x40003C00", "0x3C004000", "fma.rn.f16x2 %r10, %r1, %r2, %r2"), 0x42004400},
      {pairs("0x3F804000", "0x40003F80", "max.bf16x2 %r10, %r1, %r2"), 0x40004000},
  });
}

TEST_CASE("emulator: halves are compared as numbers") {
  check_values({
      {predicate(halves("0xC000", "0x3C00", "setp.lt.f16 %p1, %h1, %h2;\nmov.b16 %h4, %h1")), 1},
      {predicate(halves("0x7FC0", "0x3F80", "setp.gtu.bf16 %p1, %h1, %h2;\nmov.b16 %h4, %h1")), 1},
      {pairs("0x3C00C000", "0x3C003C00", "setp.lt.f16x2 %p1|%p2, %r1, %r2;\nselp.u32 %r10, 1, 0, %p1"), 1},
      {pairs("0x3C00C000", "0x3C003C00", "setp.lt.f16x2 %p1|%p2, %r1, %r2;\nselp.u32 %r10, 1, 0, %p2"), 0},
      {pairs("0x3C00C000", "0x3C003C00", "set.lt.u32.f16x2 %r10, %r1, %r2"), 0x0000ffff},
      {pairs("0x3C00C000", "0x3C003C00", "set.ge.f16x2.f16x2 %r10, %r1, %r2"), 0x3c000000},
      {"mov.f32 %f1, " + number(2) + ";\nset.gt.f32.f32 %f10, %f1, " + number(1) + ";\nmov.b32 %r10, %f10",
       bits_of(1)},
      {"mov.b32 %f1, 1;\nsetp.eq.ftz.f32 %p1, %f1, " + number(0) + ";\nselp.u32 %r10, 1, 0, %p1", 1},
      {"slct.u32.s32 %r10, 3, 4, -1", 4},
      {"mov.f32 %f1, " + number(-0.0f) + ";\nslct.u32.f32 %r10, 3, 4, %f1", 3},
  });
}

TEST_CASE("emulator: floating-point numbers are rounded in every direction") {
  const auto third = [](const char* rounding) {
    return bits("mov.f32 %f1, " + number(1) + ";\ndiv." + rounding + ".f32 %f10, %f1, " + number(3));
  };
  const auto plus = [](const char* rounding) {
    return bits("mov.f32 %f1, " + number(1) + ";\nadd." + rounding + ".f32 %f10, %f1, " + number(1e-30f));
  };
  check_values({
      {third("rn"), 0x3eaaaaab},
      {third("rz"), 0x3eaaaaaa},
      {third("rm"), 0x3eaaaaaa},
      {third("rp"), 0x3eaaaaab},
      {plus("rn"), 0x3f800000},
      {plus("rp"), 0x3f800001},
      {bits("mov.f32 %f1, " + number(2) + ";\nsqrt.rm.f32 %f10, %f1"), 0x3fb504f3},
      {bits("mov.f32 %f1, " + number(2) + ";\nsqrt.rp.f32 %f10, %f1"), 0x3fb504f4},
      {bits("mov.f32 %f1, " + number(3) + ";\nrcp.rp.f32 %f10, %f1"), 0x3eaaaaab},
      {bits("mov.f32 %f1, " + number(3) + ";\nadd.sat.f32 %f10, %f1, %f1"), 0x3f800000},
      {bits("mov.f32 %f1, " + number(3) + ";\nfma.rm.ftz.f32 %f10, %f1, %f1, %f1"), bits_of(12)},
      {upper("mov.f64 %rd1, 0d3FF0000000000000;\ndiv.rp.f64 %rd10, %rd1, 0d4008000000000000"), 0x3fd55555},
      {bits("mov.b32 %f1, 0x7FC00000;\nmin.NaN.f32 %f10, %f1, " + number(1)), 0x7fffffff},
      {bits("mov.f32 %f1, " + number(-2) + ";\ncopysign.f32 %f10, %f1, " + number(3)), bits_of(-3)},
  });
}

TEST_CASE("emulator: extremes of magnitudes have the product's sign") {
  const auto of = [](float a, float b, const char* instruction) {
    return bits("mov.f32 %f1, " + number(a) + ";\nmov.f32 %f2, " + number(b) + ";\n" + instruction +
                " %f10, %f1, %f2");
  };
  check_values({
      {of(1, -3, "min.xorsign.abs.f32"), bits_of(-1)},
      {of(-1, -3, "min.xorsign.abs.f32"), bits_of(1)},
      {of(-1, 3, "max.ftz.xorsign.abs.f32"), bits_of(-3)},
      {of(-0.0f, 3, "min.xorsign.abs.f32"), bits_of(-0.0f)},
      {bits("mov.b32 %f1, 0x7FC00000;\nmin.NaN.xorsign.abs.f32 %f10, %f1, " + number(1)), 0x7fffffff},
      {bits("mov.b32 %f1, 0x7FC00000;\nmin.xorsign.abs.f32 %f10, %f1, " + number(1)), bits_of(1)},
  });
}

TEST_CASE("emulator: carries, sums of bytes, fields") {
  check_values({
      {pairs("0x7FFF0001", "0x0001FFFF", "add.s16x2 %r10, %r1, %r2"), 0x80000000},
      {pairs("0x7FFF0001", "0x8000FFFF", "max.s16x2 %r10, %r1, %r2"), 0x7fff0001},
      {pairs("0x7FFF0001", "0x8000FFFF", "max.u16x2 %r10, %r1, %r2"), 0x8000ffff},
      {pairs("0x7FFF0001", "0x8000FFFF", "min.s16x2 %r10, %r1, %r2"), 0x8000ffff},
      {"mov.u32 %r1, -1;\nadd.cc.u32 %r2, %r1, 1;\naddc.u32 %r10, 5, 0", 6},
      {"mov.u32 %r1, 1;\nadd.cc.u32 %r2, %r1, 1;\naddc.u32 %r10, 5, 0", 5},
      {"mov.u32 %r1, 0;\nsub.cc.u32 %r2, %r1, 1;\nsubc.u32 %r10, 5, 0", 4},
      {"mov.u32 %r1, -1;\nmad.lo.cc.u32 %r2, %r1, 1, 1;\nmadc.hi.u32 %r10, %r1, 2, 0", 2},
      {upper("mov.u64 %rd1, -1;\nadd.cc.s64 %rd2, %rd1, 1;\naddc.s64 %rd10, 4294967295, 0"), 1},
      {"mov.u32 %r1, 0x01FF02FE;\nmov.u32 %r2, 0x02030405;\ndp4a.s32.s32 %r10, %r1, %r2, 10", 7},
      {"mov.u32 %r1, 0x01FF02FE;\nmov.u32 %r2, 0x02030405;\ndp4a.u32.u32 %r10, %r1, %r2, 10", 2055},
      {"mov.u32 %r1, 0xFFFF0002;\nmov.u32 %r2, 0x02030405;\ndp2a.lo.s32.s32 %r10, %r1, %r2, 1", 7},
      {"mov.u32 %r1, 3;\nsad.s32 %r10, %r1, -4, 10", 17},
      {"bfind.u32 %r10, 0x00010000", 16},
      {"bfind.s32 %r10, -1", 0xffffffff},
      {"bfind.shiftamt.u32 %r10, 0x00010000", 15},
      {"bmsk.clamp.b32 %r10, 4, 8", 0xff0},
      {"bmsk.clamp.b32 %r10, 4, 40", 0xfffffff0},
      {"szext.clamp.s32 %r10, 0xff, 8", 0xffffffff},
      {"szext.clamp.u32 %r10, 0x1ff, 8", 0xff},
      {"createpolicy.fractional.L2::evict_first.b64 %rd1, 1.0;\nmov.u32 %r10, 3", 3},
  });
}

TEST_CASE("emulator: lanes that have one key find each other") {
  PtxRun run;
  run.threads = 32;
  run("and.b32 %r2, %r0, 3;\nmatch.any.sync.b32 %r3, %r2, -1;\nmatch.all.sync.b32 %r4|%p1, %r2, -1;\n"
      "match.all.sync.b32 %r5|%p2, 7, -1;\nmul.wide.u32 %rd1, %r0, 16;\nadd.s64 %rd1, %rd0, %rd1;\n"
      "st.global.v2.u32 [%rd1], {%r3, %r4};\nselp.u32 %r6, 1, 0, %p2;\nst.global.v2.u32 [%rd1+8], {%r5, "
      "%r6};");
  for (std::uint32_t lane = 0; lane < 32; ++lane) {
    CHECK(run.out[4 * lane] == 0x11111111u << lane % 4);
    CHECK(run.out[4 * lane + 1] == 0);
    CHECK(run.out[4 * lane + 2] == 0xffffffff);
    CHECK(run.out[4 * lane + 3] == 1);
  }
}

TEST_CASE("emulator: atomics add halves, alone and side by side") {
  PtxRun run;
  run.threads = 32;
  run("mov.b32 %r2, 0x3C003C00;\nred.global.add.noftz.f16x2 [%rd0], %r2;\nmov.b16 %h1, 0x3F80;\n"
      "red.global.add.noftz.bf16 [%rd0+4], %h1;\nred.global.add.noftz.v2.f16x2 [%rd0+8], {%r2, %r2};\n"
      "atom.global.max.noftz.f16x2 %r3, [%rd0+16], %r2;");
  CHECK(run.out[0] == 0x50005000);  // 32
  CHECK(run.out[1] == 0x4200);      // bf16 has 32 as 0x4200
  CHECK(run.out[2] == 0x50005000);
  CHECK(run.out[3] == 0x50005000);
  CHECK(run.out[4] == 0x3c003c00);
}

TEST_CASE("emulator: an mbarrier's state tells which phase to wait for") {
  PtxRun run;
  run.threads = 32;
  run("mov.u32 %r2, barrier;\nsetp.eq.u32 %p1, %r0, 0;\n@%p1 mbarrier.init.shared.b64 [%r2], 32;\n"
      "bar.sync 0;\nmbarrier.arrive.shared.b64 %rd1, [%r2];\nbar.sync 0;\n"
      "mbarrier.test_wait.shared.b64 %p2, [%r2], %rd1;\nselp.u32 %r3, 1, 0, %p2;\n"
      "mbarrier.arrive.shared.b64 %rd2, [%r2];\nst.global.u32 [%rd0], %r3;\ncvt.u32.u64 %r4, %rd2;\n"
      "st.global.u32 [%rd0+4], %r4;");
  CHECK(run.out[0] == 1);
  CHECK(run.out[1] == 1);  // one phase was over
}

}  // namespace tilescope::gpu::emulator::more_values_test
