// SPDX-License-Identifier: Apache-2.0
#include "emulator/counts/static_accesses.hpp"

#include <doctest/doctest.h>

#include "emulator/kernel_call.hpp"

namespace tilescope::gpu::emulator::static_accesses_test {

TEST_CASE("emulator: accesses to global memory are counted in PTX and in what disassemblers print") {
  const ptx::Module module = read_ptx(R"(.version 9.0
.target sm_90a
.visible .entry k(.param .u64 p)
{
.reg .b32 %r<9>;
.reg .b64 %rd<9>;
.shared .align 16 .b8 tile[64];
.shared .align 8 .b8 barrier[8];
ld.param.u64 %rd1, [p];
ld.global.nc.v2.u32 {%r1, %r2}, [%rd1];
ld.u32 %r3, [%rd1];
ld.shared.u32 %r3, [tile];
st.global.u32 [%rd1], %r1;
st.shared.u32 [tile], %r1;
red.global.add.u32 [%rd1], 1;
cp.async.cg.shared.global [tile], [%rd1], 16;
cp.async.commit_group;
cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [tile], [%rd1], 16, [barrier];
cp.async.bulk.prefetch.L2.global [%rd1], 16;
ret;
}
)");
  const auto of_ptx = accesses_in_ptx(*module.kernels.at(0));
  REQUIRE(of_ptx);
  CHECK(*of_ptx == StaticAccesses{2, 1, 1, 1, 1});

  const std::string body =
      "        /*0000*/                   LDC R1, c[0x0][0x28] ;         /* 0x00 */\n"
      "        /*0010*/              @!P0 LDG.E.64.CONSTANT R2, desc[UR4][R2.64] ;\n"
      "        /*0020*/                   LD.E R3, [R2.64] ;\n        /*0030*/  LDS R3, [UR4] ;\n"
      "        /*0040*/                   STG.E [R2.64], R2 ;\n        /*0050*/  RED.E.ADD [R2.64], R5 ;\n"
      "        /*0060*/                   LDGSTS.E.BYPASS.128 [R0], [R2.64] ;\n"
      "        /*0070*/              @UP0 UBLKCP.S.G [UR8], [UR4], UR6 ;\n        /*0080*/  REDUX.SUM UR4, "
      "R2 ;\n";
  const std::string by_cuobjdump = "\t\tFunction : other\n" + body + body + "\t\tFunction : k\n" + body;
  const std::string by_nvdisasm =
      "\t.section\t.text.k,\"ax\"\n.text.k:\n" + body + "\t.section\t.text.o\n.text.o:\n" + body;
  for (const std::string& sass : {by_cuobjdump, by_nvdisasm}) CHECK(accesses_in_sass(sass, "k") == of_ptx);
  CHECK_FALSE(accesses_in_sass(by_cuobjdump, "l"));
  CHECK_FALSE(difference(*of_ptx, *of_ptx));
  CHECK(difference({2, 1, 0, 0, 0}, {8, 1, 0, 0, 0})->starts_with("ptxas makes 8 loads of 2 loads in"));
}

}  // namespace tilescope::gpu::emulator::static_accesses_test
