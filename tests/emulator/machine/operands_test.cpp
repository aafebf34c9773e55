// SPDX-License-Identifier: Apache-2.0
// Damaged PTX: instructions with operands that they do not have are refused before anything runs.
#include <doctest/doctest.h>

#include <string>

#include "emulator/kernel_call.hpp"

namespace tilescope::gpu::emulator::operands_test {

std::vector<std::string> unknown(const std::string& instruction) {
  const ptx::Module module = read_ptx(
      ".version 9.0\n.target sm_90a\n.visible .entry k()\n{\n.reg .pred %p<4>;\n.reg .b32 %r<9>;\n.reg .f32 "
      "%f<9>;\n"
      ".reg .b64 %rd<9>;\n.shared .b8 tile[64];\n" +
      instruction + ";\nret;\n}\n");
  return unknown_instructions(*module.kernels.at(0));
}

TEST_CASE("emulator: too few operands, too many, and those of another kind are refused") {
  const char* const kDamaged[] = {
      "bra",
      "brev.b32 %r1",
      "bar.sync",
      "bar.red.or.pred",
      "cvta.to.global.u64",
      "cvt.sat.f32.f32",
      "st.global.b64 [%rd1], {%f1, %f2, %f3, %f4}",
      "st.global.b32 [%rd1], [%rd2]",
      "ld.global.v4.b32 {%r1, %r2}, [%rd1]",
      "atom.global.cas.b32 {%r1, %r2}, [%rd1], {%r1, %r2}, %r3",
      "atom.global.cas.b32 %r1, [%rd1], %r2, [%rd2]",
      "mapa.u64 %rd1, %rd2",
      "mbarrier.init.shared.b64 %r1, 1",
      "mbarrier.arrive.shared.b64 %r1, %r2",
      "mbarrier.try_wait.parity.shared.b64 %p1, %r1, 0",
      "cp.async.wait_group",
      "cp.async.ca.shared.global [tile], %r1, 16",
      "cp.async.bulk.wait_group",
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [tile], 7, 16",
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [tile], [%rd1], "
      "16, [tile]",
      "cp.async.bulk.tensor.2d.shared::cta.global.mbarrier::complete_tx::bytes [%rd1, {%r1, %r2}], [tile], "
      "[tile]",
      "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.b32 [%r1], %r2",
      "red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.add.u32 [%r1], {%r2, %r3}, "
      "[%r4]",
      "wgmma.wait_group.sync.aligned",
      "wmma.load.a.sync.aligned.row.m16n16k16.global.f16 %r2, tile",
      "setmaxnreg.inc.sync.aligned.u32",
  };
  for (const std::string instruction : kDamaged) {
    CAPTURE(instruction);
    const std::vector<std::string> named = unknown(instruction);
    REQUIRE(named.size() == 1);
    CHECK(named[0].starts_with("PTX line 10: "));
  }
  CHECK(unknown(
            "bra here;\nhere:\nbar.sync 0, 32;\nmapa.u64 %rd1, %rd2, 0;\nst.global.v2.b32 [%rd1], {%r1, %r2}")
            .empty());
}

}  // namespace tilescope::gpu::emulator::operands_test
