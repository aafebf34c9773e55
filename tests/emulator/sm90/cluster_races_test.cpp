// SPDX-License-Identifier: Apache-2.0
// Races through the shared memory of another CTA of the cluster: what is right is let pass, and each of its
// mutants, without a barrier, a fence or a wait, is named.
#include <doctest/doctest.h>

#include "tests/emulator/sm90/run_ptx.hpp"

namespace tilescope::gpu::emulator::cluster_races_test {

using testing::PtxRun;

std::vector<Race> races_of(const std::string& body, std::uint64_t seed = 1) {
  PtxRun run;
  run.ctas = run.cluster = 2;
  run.options.races = true;
  run.options.seed = seed;
  return run(body).races;
}

// %r3: this thread's word, of this CTA; %r5: the same of the other.
const std::string kPlaces = R"(
  mov.u32 %r2, %cluster_ctarank;
  xor.b32 %r4, %r2, 1;
  shl.b32 %r3, %r0, 2;
  add.u32 %r3, %r3, %r1;
  mapa.shared::cluster.u32 %r5, %r3, %r4;
)";
const std::string kWrite = "st.shared.u32 [%r3], %r0;\n";
const std::string kReadOther = "ld.shared::cluster.u32 %r6, [%r5];\n";
const std::string kArrive = "barrier.cluster.arrive.aligned;\n",
                  kRelaxed = "barrier.cluster.arrive.relaxed.aligned;\n",
                  kWait = "barrier.cluster.wait.aligned;\n", kMeet = kArrive + kWait;

TEST_CASE("emulator: words of another CTA are read between two barriers of the cluster") {
  CHECK(races_of(kPlaces + kWrite + kMeet + kReadOther + kMeet).empty());
  const auto races = races_of(kPlaces + kWrite + kReadOther + kMeet);
  REQUIRE_FALSE(races.empty());
  CHECK(races[0].text.find("of CTA 0 of the cluster") != std::string::npos);
  CHECK(races[0].text.find("of CTA 1 of the cluster") != std::string::npos);
  CHECK(races[0].text.ends_with("and nothing orders the two"));
  // A barrier of each CTA alone orders nothing between them.
  CHECK_FALSE(races_of(kPlaces + kWrite + "bar.sync 0;\n" + kReadOther + kMeet).empty());
}

TEST_CASE("emulator: a relaxed arrival orders what a fence of the cluster stood behind") {
  CHECK_FALSE(races_of(kPlaces + kWrite + kRelaxed + kWait + kReadOther + kMeet).empty());
  CHECK_FALSE(races_of(kPlaces + "fence.acq_rel.cluster;\n" + kWrite + kRelaxed + kWait + kReadOther + kMeet)
                  .empty());
  CHECK_FALSE(
      races_of(kPlaces + kWrite + "fence.acq_rel.cta;\n" + kRelaxed + kWait + kReadOther + kMeet).empty());
  CHECK(races_of(kPlaces + kWrite + "fence.acq_rel.cluster;\n" + kRelaxed + kWait + kReadOther + kMeet)
            .empty());
}

TEST_CASE("emulator: a CTA that others reach into may not end before") {
  for (const std::string& reach : {kReadOther, std::string("st.shared::cluster.u32 [%r5+4096], %r0;\n"),
                                   std::string("red.shared::cluster.add.u32 [%r5+4096], %r0;\n")}) {
    const std::string body = kPlaces + kWrite + kMeet + reach;
    CHECK(races_of(body + kMeet).empty());
    const auto races = races_of(body);
    REQUIRE(races.size() == 1);
    CHECK(races[0].text.find("which may have ended by then") != std::string::npos);
  }
}

TEST_CASE("emulator: an arrival at the mbarrier of another CTA hands over what was written there") {
  const std::string begin = kPlaces + R"(
    mov.u32 %r7, barrier;
    setp.ne.u32 %p1, %r0, 0;
    @!%p1 mbarrier.init.shared::cta.b64 [%r7], 128;
    fence.mbarrier_init.release.cluster;
  )" + kMeet;
  const std::string send = R"(
    st.shared::cluster.u32 [%r5], %r0;
    mapa.shared::cluster.u32 %r8, %r7, %r4;
    mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r8];
  )";
  const std::string wait = R"(
    WAIT: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p2, [%r7], 0;
    @!%p2 bra WAIT;
  )";
  const std::string read = "ld.shared.u32 %r6, [%r3];\n";
  CHECK(races_of(begin + send + wait + read).empty());
  CHECK_FALSE(races_of(begin + send + read + wait).empty());
}

TEST_CASE("emulator: what a copy to another CTA reads stays until that has it") {
  const auto body = [](bool waits) {
    const std::string rewrite = "@!%p1 st.shared.u32 [%r3], %r0;\n";
    const std::string acknowledged = R"(
      WAIT: mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r7], 0;
      @!%p2 bra WAIT;
    )" + kMeet;
    return kPlaces + kWrite + R"(
      fence.proxy.async;
      mov.u32 %r7, barrier;
      setp.ne.u32 %p1, %r0, 0;
      @!%p1 mbarrier.init.shared::cta.b64 [%r7], 1;
      @!%p1 mbarrier.arrive.expect_tx.shared::cta.b64 %rd9, [%r7], 512;
      fence.mbarrier_init.release.cluster;
      fence.proxy.async;
    )" + kMeet +
           R"(
      mapa.shared::cluster.u32 %r8, %r7, %r4;
      mapa.shared::cluster.u32 %r10, %r1, %r4;
      @!%p1 cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%r10+4096], [%r1], 512, [%r8];
    )" + (waits ? acknowledged + rewrite : rewrite + acknowledged);
  };
  for (const std::uint64_t seed : {1, 2, 3}) {
    CHECK(races_of(body(true), seed).empty());
    CHECK_FALSE(races_of(body(false), seed).empty());
  }
}

}  // namespace tilescope::gpu::emulator::cluster_races_test
