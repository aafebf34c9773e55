// SPDX-License-Identifier: Apache-2.0
// Branches by an index, functions by their address, and what lanes tell one another in bits.
#include <doctest/doctest.h>

#include "emulator/kernel_call.hpp"
#include "tests/emulator/sm90/run_ptx.hpp"

namespace tilescope::gpu::emulator::calls_test {

using testing::PtxRun;

/// Lane i goes to target i modulo 4 of three.
const std::string kBranches = R"(
and.b32 %r2, %r0, 3;
targets: .branchtargets ONE, TWO, THREE;
brx.idx %r2, targets;
ONE:
mov.u32 %r3, 10;
bra DONE;
TWO:
mov.u32 %r3, 20;
bra DONE;
THREE:
mov.u32 %r3, 30;
DONE:
shl.b32 %r4, %r0, 2;
cvt.u64.u32 %rd1, %r4;
add.s64 %rd1, %rd0, %rd1;
st.global.u32 [%rd1], %r3;
)";

TEST_CASE("emulator: a branch by an index takes each lane where its index says, and no further") {
  PtxRun run;
  run.threads = 3;
  run(kBranches);
  CHECK(run.out[0] == 10);
  CHECK(run.out[1] == 20);
  CHECK(run.out[2] == 30);
  PtxRun beyond;
  beyond.threads = 4;
  CHECK_THROWS_WITH_AS(beyond(kBranches), doctest::Contains("branch target 3 of 3"), DeviceError);
}

std::string module_of(const std::string& table, const std::string& call) {
  return ".version 8.0\n.target sm_90\n.address_size 64\n"
         ".func (.param .b32 result) twice(.param .b32 a)\n{\n.reg .b32 %r<3>;\nld.param.u32 %r1, [a];\n"
         "add.u32 %r2, %r1, %r1;\nst.param.b32 [result], %r2;\nret;\n}\n"
         ".func (.param .b32 result) next(.param .b32 a)\n{\n.reg .b32 %r<3>;\nld.param.u32 %r1, [a];\n"
         "add.u32 %r2, %r1, 1;\nst.param.b32 [result], %r2;\nret;\n}\n" +
         table +
         ".visible .entry k(.param .u64 out)\n{\n.reg.b32 %r<9>;\n.reg .b64 %rd<9>;\nld.param.u64 %rd1, "
         "[out];\n"
         "mov.u32 %r1, %tid.x;\nmul.wide.u32 %rd2, %r1, 8;\nmul.wide.u32 %rd3, %r1, 4;\nadd.s64 %rd1, %rd1, "
         "%rd3;\n"
         "mov.u64 %rd4, table;\nadd.s64 %rd4, %rd4, %rd2;\nld.global.u64 %rd5, [%rd4];\n{\n.param .b32 a;\n"
         "st.param.b32 [a], %r1;\n.param .b32 result;\nproto: .callprototype (.param .b32 _) _ (.param .b32 "
         "_);\n" +
         call + "ld.param.b32 %r2, [result];\n}\nst.global.u32 [%rd1], %r2;\nret;\n}\n";
}

std::vector<Finding> found_in(const std::string& ptx, std::array<std::uint32_t, 4>& out) {
  KernelCall call{.grid = {1}, .block = {4}};
  call.arguments = {buffer_argument("out", std::span<std::uint32_t>(out))};
  return call_kernel(read_ptx(ptx), call).findings;
}

TEST_CASE("emulator: functions are called through a table of their addresses, each lane's its own") {
  const std::string call = "call (result), %rd5, (a), proto;\n";
  std::array<std::uint32_t, 4> out{};
  CHECK(found_in(module_of(".global .align 8 .u64 table[4] = {twice, next, generic(twice), next};\n", call),
                 out)
            .empty());
  CHECK(out == std::array<std::uint32_t, 4>{0, 2, 4, 4});
  const auto found =
      found_in(module_of(".global .align 8 .u64 table[4] = {twice, next, 5, next};\n", call), out);
  REQUIRE(found.size() == 1);
  CHECK(found[0].text.find("an address that no function has") != std::string::npos);
  CHECK_THROWS_WITH(read_ptx(module_of(".global .align 8 .u64 table[1] = {nobody};\n", call)),
                    doctest::Contains("the name of a variable or a function, expected"));
}

/// Calls malloc for %rd4 bytes, whose address is %rd5.
const std::string kAllocate = R"(
{
.param .b64 bytes;
.param .b64 result;
st.param.b64 [bytes], %rd4;
call.uni (result), malloc, (bytes);
ld.param.b64 %rd5, [result];
}
)";
const std::string kFree = R"(
{
.param .b64 address;
st.param.b64 [address], %rd5;
call.uni free, (address);
}
)";

TEST_CASE("emulator: malloc gives memory that is checked, and 8 MiB of it") {
  PtxRun run;
  run.threads = 1;
  run("mov.u64 %rd4, 40;\n" + kAllocate +
      "st.u32 [%rd5+36], 7;\nld.u32 %r2, [%rd5+36];\nst.global.u32 [%rd0], %r2;\n" + kFree +
      "mov.u64 %rd4, 8388608;\n" + kAllocate + "st.global.u64 [%rd0+8], %rd5;\n" + kAllocate +
      "st.global.u64 [%rd0+16], %rd5;\n" + kFree);
  CHECK(run.out[0] == 7);
  CHECK((run.out[2] | run.out[3]) != 0);
  CHECK((run.out[4] | run.out[5]) == 0);
  const auto fails = [](const std::string& body, const char* words) {
    PtxRun wrong;
    wrong.threads = 1;
    CHECK_THROWS_WITH_AS(wrong("mov.u64 %rd4, 40;\n" + kAllocate + body), doctest::Contains(words),
                         DeviceError);
  };
  fails("st.u32 [%rd5+40], 7;\n", "0 bytes beyond the end of 'memory of malloc' of 40 bytes");
  fails(kFree + "st.u32 [%rd5], 7;\n", "memory that was freed");
  fails(kFree + kFree, "free of what malloc did not give");
}

TEST_CASE("emulator: redux of bits") {
  PtxRun run;
  run.threads = 32;
  run("or.b32 %r2, %r0, 64;\nredux.sync.and.b32 %r3, %r2, -1;\nredux.sync.or.b32 %r4, %r2, -1;\n"
      "redux.sync.xor.b32 %r5, %r2, -1;\nst.global.u32 [%rd0], %r3;\nst.global.u32 [%rd0+4], %r4;\n"
      "st.global.u32 [%rd0+8], %r5;");
  CHECK(run.out[0] == 64);
  CHECK(run.out[1] == 95);
  CHECK(run.out[2] == 0);
}

}  // namespace tilescope::gpu::emulator::calls_test
