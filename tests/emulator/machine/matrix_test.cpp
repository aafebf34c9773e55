// SPDX-License-Identifier: Apache-2.0
// Matrices across a warp, against what the PTX ISA says of each lane's fragments.
#include <doctest/doctest.h>

#include <cmath>
#include <string>

#include "cpu_ref/numeric/numeric.hpp"
#include "tests/emulator/sm90/run_ptx.hpp"

namespace tilescope::gpu::emulator {
namespace {

using testing::PtxRun;

const std::string kRows =  // four matrices, each of 128 bytes; lane l gives row l
    "mul.lo.u32 %r2, %r0, 16;\nadd.u32 %r3, %r1, %r2;\ncvt.u64.u32 %rd1, %r2;\nadd.s64 %rd1, %rd1, %rd0;\n";
const std::string kStoreFour = "st.global.v4.u32 [%rd1], {%r10, %r11, %r12, %r13};\n";

/// Element (row, col) of matrix m is 1000 m + 8 row + col.
PtxRun run_on_matrices(const std::string& body) {
  PtxRun run;
  run.threads = 32;
  for (std::uint32_t i = 0; i < 128; ++i) {
    const std::uint32_t element = i / 32 * 1000 + i % 32 * 2;
    run.out[i] = (element + 1) << 16 | element;
  }
  run(kRows + "ld.global.v4.u32 {%r4, %r5, %r6, %r7}, [%rd1];\n" + body);
  return run;
}

TEST_CASE("emulator: ldmatrix gives each lane two neighbours of a row, transposed of a column") {
  for (const bool transposed : {false, true}) {
    const PtxRun run = run_on_matrices(
        std::string("st.shared.v4.u32 [%r3], {%r4, %r5, %r6, %r7};\nbar.warp.sync "
                    "-1;\nldmatrix.sync.aligned.m8n8.x4") +
        (transposed ? ".trans" : "") + ".shared.b16 {%r10, %r11, %r12, %r13}, [%r3];\n" + kStoreFour);
    for (std::uint32_t lane = 0; lane < 32; ++lane) {
      for (std::uint32_t matrix = 0; matrix < 4; ++matrix) {
        const std::uint32_t major = lane / 4, minor = lane % 4 * 2;
        const auto element = [&](std::uint32_t i) {
          return 1000 * matrix + (transposed ? 8 * (minor + i) + major : 8 * major + minor + i);
        };
        CHECK(run.out[4 * lane + matrix] == (element(1) << 16 | element(0)));
      }
    }
  }
}

TEST_CASE("emulator: movmatrix turns twice into what was") {
  const PtxRun run = run_on_matrices(
      "st.shared.v4.u32 [%r3], {%r4, %r5, %r6, %r7};\nbar.warp.sync -1;\n"
      "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r10, %r11, %r12, %r13}, [%r3];\n"
      "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%r14, %r15, %r16, %r17}, [%r3];\n"
      "movmatrix.sync.aligned.m8n8.trans.b16 %r20, %r10;\nmovmatrix.sync.aligned.m8n8.trans.b16 %r21, %r20;\n"
      "xor.b32 %r10, %r10, %r21;\nxor.b32 %r11, %r14, %r20;\n" +
      kStoreFour);
  for (std::uint32_t lane = 0; lane < 32; ++lane) {
    CHECK(run.out[4 * lane] == 0);
    CHECK(run.out[4 * lane + 1] == 0);
  }
}

TEST_CASE("emulator: stmatrix is the way back") {
  for (const std::string form : {"x4", "x4.trans"}) {
    const PtxRun run = run_on_matrices(
        "st.shared.v4.u32 [%r3], {%r4, %r5, %r6, %r7};\nbar.warp.sync -1;\nldmatrix.sync.aligned.m8n8." +
        form + ".shared.b16 {%r10, %r11, %r12, %r13}, [%r3];\nstmatrix.sync.aligned.m8n8." + form +
        ".shared.b16 [%r3+1024], {%r10, %r11, %r12, %r13};\nbar.warp.sync -1;\n" +
        "ld.shared.v4.u32 {%r10, %r11, %r12, %r13}, [%r3+1024];\n" + kStoreFour);
    for (std::uint32_t i = 0; i < 128; ++i)
      CHECK(run.out[i] == ((i / 32 * 1000 + i % 32 * 2 + 1) << 16 | (i / 32 * 1000 + i % 32 * 2)));
  }
}

TEST_CASE("emulator: mma.sync multiplies the fragments that the ISA describes") {
  struct Type {
    std::string name;
    std::uint16_t (*narrow)(float);
    float (*widen)(std::uint16_t);
  };
  for (const Type& type :
       {Type{"f16", fp32_to_fp16, fp16_to_fp32}, Type{"bf16", fp32_to_bf16, bf16_to_fp32}}) {
    PtxRun run;
    run.threads = 32;
    // Eight words a lane: four of A, two of B, two unused; then four of C, and of D.
    for (std::uint32_t i = 0; i < 256; ++i) {
      const auto half = [&](std::uint32_t j) {
        return std::uint32_t{type.narrow(std::sin(static_cast<float>(2 * i + j)))};
      };
      run.out[i] = half(1) << 16 | half(0);
    }
    for (std::uint32_t i = 256; i < 384; ++i)
      run.out[i] = std::bit_cast<std::uint32_t>(static_cast<float>(i));
    run("mul.wide.u32 %rd1, %r0, 32;\nadd.s64 %rd1, %rd1, %rd0;\nmul.wide.u32 %rd2, %r0, 16;\nadd.s64 %rd2, "
        "%rd2, %rd0;\n"
        "ld.global.v4.u32 {%r2, %r3, %r4, %r5}, [%rd1];\nld.global.v2.u32 {%r6, %r7}, [%rd1+16];\n"
        "ld.global.v4.f32 {%f1, %f2, %f3, %f4}, [%rd2+1024];\nmma.sync.aligned.m16n8k16.row.col.f32." +
        type.name + "." + type.name +
        ".f32 {%f1, %f2, %f3, %f4}, {%r2, %r3, %r4, %r5}, {%r6, %r7}, {%f1, %f2, %f3, %f4};\n"
        "st.global.v4.f32 [%rd2+1536], {%f1, %f2, %f3, %f4};\n");
    const auto half_of = [&](std::uint32_t word, std::uint32_t half) {
      return type.widen(static_cast<std::uint16_t>(word >> (16 * half)));
    };
    const auto a = [&](std::uint32_t row, std::uint32_t k) {
      const std::uint32_t lane = row % 8 * 4 + k % 8 / 2, index = row / 8 + 2 * (k / 8);
      return half_of(run.out[8 * lane + index], k % 2);
    };
    const auto b = [&](std::uint32_t k, std::uint32_t column) {
      return half_of(run.out[8 * (column * 4 + k % 8 / 2) + 4 + k / 8], k % 2);
    };
    for (std::uint32_t row = 0; row < 16; ++row) {
      for (std::uint32_t column = 0; column < 8; ++column) {
        const std::uint32_t place = 4 * (row % 8 * 4 + column / 2) + row / 8 * 2 + column % 2;
        double sum = std::bit_cast<float>(run.out[256 + place]);
        for (std::uint32_t k = 0; k < 16; ++k)
          sum += static_cast<double>(a(row, k)) * static_cast<double>(b(k, column));
        CHECK(std::bit_cast<float>(run.out[384 + place]) == static_cast<float>(sum));
      }
    }
  }
}

TEST_CASE("emulator: matrices take a whole warp, and as many registers as their form says") {
  const auto refusal = [](const std::string& instruction, unsigned threads) -> std::string {
    PtxRun run;
    run.threads = threads;
    try {
      run(kRows + instruction + ";\n");
    } catch (const std::runtime_error& error) {
      return error.what();
    }
    return {};
  };
  const std::string load = "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r10, %r11, %r12, %r13}, [%r3]";
  const std::string store = "stmatrix.sync.aligned.m8n8.x4.shared.b16 [%r3], {%r10, %r11, %r12, %r13}";
  const std::string multiply =
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f0, %f1, %f2, %f3}, {%r10, %r11, %r12, %r13}, "
      "{%r14, %r15}, {%f0, %f1, %f2, %f3}";
  for (const std::string& whole : {load, store, multiply}) {
    CAPTURE(whole);
    CHECK(refusal(whole, 64).empty());
    CHECK(refusal(whole, 33).find("all 32 lanes of a warp take part") != std::string::npos);
    std::string fewer = whole;
    fewer.replace(fewer.find("%r12, %r13"), 10, "%r12");
    CHECK(refusal(fewer, 32).find("a list of 4 registers expected") != std::string::npos);
    std::string wider = whole;
    wider.replace(wider.find("%r13"), 4, "%rd3");
    CHECK(refusal(wider, 32).find("registers of 4 bytes expected") != std::string::npos);
  }
}

}  // namespace
}  // namespace tilescope::gpu::emulator
