// SPDX-License-Identifier: Apache-2.0
#include "emulator/machine/launch_limits.hpp"

#include <doctest/doctest.h>

#include "emulator/ptx/module.hpp"

namespace tilescope::gpu::emulator::launch_limits_test {

using Kind = Refusal::Kind;

/// A launch of a kernel with directives, and `static_shared` bytes of its own.
struct Tried {
  std::string directives = "";
  int static_shared = 0;
  Extent grid{16}, block{128}, cluster{};
  std::uint32_t dynamic_shared = 0;
  HostAttributes attributes{};
  std::optional<int> registers{};
  ChipLimits chip{};

  std::optional<Refusal> refused() const {
    const ptx::Module module = ptx::parse(
        ".version 8.0\n.target sm_90a\n.visible .entry k()\n" + directives + "\n{\n" +
        (static_shared > 0 ? ".shared .b8 own[" + std::to_string(static_shared) + "];\n" : "") + "ret;\n}\n");
    Launch launch{.kernel = module.find("k"), .grid = grid, .block = block, .cluster = {}, .parameters = {}};
    launch.cluster = cluster_or_required(*launch.kernel, cluster);
    launch.dynamic_shared_bytes = dynamic_shared;
    return refusal_of(launch, attributes, registers, chip);
  }
  /// Refused for a reason of this kind, in these words.
  bool refused(Kind kind, const char* words) const {
    const std::optional<Refusal> told = refused();
    CAPTURE(words);
    CAPTURE((told ? told->text : "not refused"));
    const bool as_said = told && told->kind == kind && told->text.find(words) != std::string::npos;
    CHECK(as_said);
    return as_said;
  }
};

TEST_CASE("emulator: more than 48 KiB of shared memory, static and dynamic, must be asked for") {
  CHECK_FALSE(Tried{.dynamic_shared = 49152}.refused());
  CHECK(Tried{.dynamic_shared = 49153}.refused(Kind::value, "did not ask for more than 49152 B"));
  CHECK_FALSE(Tried{.static_shared = 1024, .dynamic_shared = 48128}.refused());
  CHECK(Tried{.static_shared = 1024, .dynamic_shared = 48129}.refused(
      Kind::value,
      "48129 B of dynamic shared memory beside 1024 B of static, where host code did not ask for more "
      "than 48128 B"));
  const HostAttributes asked{.max_dynamic_shared = 100000};
  CHECK_FALSE(Tried{.static_shared = 1024, .dynamic_shared = 100000, .attributes = asked}.refused());
  CHECK(Tried{.dynamic_shared = 100001, .attributes = asked}.refused(Kind::value, "asked for 100000 B"));
  CHECK(Tried{.static_shared = 49153}.refused(Kind::value, "of which ptxas allows 49152"));
  const HostAttributes all{.max_dynamic_shared = 232448};
  CHECK_FALSE(Tried{.dynamic_shared = 232448, .attributes = all}.refused());
  CHECK(Tried{.static_shared = 16, .dynamic_shared = 232448, .attributes = all}.refused(
      Kind::value, "a CTA has 232448 at most"));
}

TEST_CASE("emulator: a CTA has the shared memory of the chip that its kernel was compiled for") {
  const std::pair<const char*, std::uint32_t> kChips[] = {
      {"sm_75", 65536},  {"sm_80", 166912},  {"sm_86", 101376},   {"sm_87", 166912},  {"sm_89", 101376},
      {"sm_90", 232448}, {"sm_90a", 232448}, {"sm_100a", 232448}, {"sm_120", 101376}, {"sm_999", 232448}};
  for (const auto& [target, most] : kChips) {
    const ChipLimits chip = limits_of_target(target);
    const HostAttributes all{.max_dynamic_shared = most + 1};
    CHECK_FALSE(Tried{.dynamic_shared = most, .attributes = all, .chip = chip}.refused());
    CHECK(Tried{.dynamic_shared = most + 1, .attributes = all, .chip = chip}.refused(Kind::value, target));
  }
  CHECK_FALSE(limits_of_target("sm_89").has_clusters);
  CHECK(limits_of_target("sm_90").has_clusters);
}

TEST_CASE("emulator: CTAs of other threads than the kernel was compiled for, or of too many registers") {
  CHECK(Tried{.block = {1024, 2}}.refused(Kind::configuration, "CTAs of 1024x2x1 threads"));
  CHECK(Tried{.block = {1, 1, 65}}.refused(Kind::configuration, "64 in z"));
  CHECK(Tried{.directives = ".maxntid 64, 1, 1"}.refused(Kind::resources, "at most 64 (.maxntid)"));
  CHECK_FALSE(Tried{.directives = ".maxntid 64, 2, 1"}.refused());
  CHECK(Tried{.directives = ".reqntid 256"}.refused(Kind::configuration, "compiled for 256x1x1 (.reqntid)"));
  CHECK_FALSE(Tried{.directives = ".reqntid 128, 1, 1"}.refused());
  CHECK_FALSE(Tried{.block = {1024}, .registers = 64}.refused());
  CHECK(Tried{.block = {1024}, .registers = 65}.refused(Kind::resources,
                                                        "take 73728 registers; an SM has 65536"));
  // Registers are given to four warps together.
  CHECK_FALSE(Tried{.block = {256}, .registers = 255}.refused());
  CHECK(Tried{.block = {257}, .registers = 255}.refused(Kind::resources, "take 98304 registers"));
}

TEST_CASE("emulator: grids and clusters beyond what a chip takes") {
  HostAttributes large;
  large.non_portable_cluster = true;
  CHECK(Tried{.grid = {0}}.refused(Kind::configuration, "a grid of 0x1x1"));
  CHECK(Tried{.grid = {1, 65536}}.refused(Kind::configuration, "at most 2147483647x65535x65535"));
  CHECK(Tried{.cluster = {3}}.refused(Kind::cluster, "no multiple"));
  CHECK_FALSE(Tried{.cluster = {8}}.refused());
  CHECK(Tried{.cluster = {16}}.refused(Kind::cluster, "more than 8 CTAs, which host code did not ask for"));
  CHECK_FALSE(Tried{.cluster = {16}, .attributes = large}.refused());
  CHECK(Tried{.grid = {32}, .cluster = {32}, .attributes = large}.refused(Kind::cluster, "at most 16 CTAs"));
  CHECK(Tried{.cluster = {2}, .chip = {.has_clusters = false}}.refused(Kind::cluster, "without clusters"));
  CHECK(Tried{.directives = ".reqnctapercluster 2, 1, 1", .cluster = {4}}.refused(Kind::cluster,
                                                                                  "compiled for 2x1x1"));
  CHECK_FALSE(Tried{.directives = ".explicitcluster\n.reqnctapercluster 2, 1, 1"}.refused());
  CHECK(Tried{.directives = ".maxclusterrank 2", .cluster = {4}}.refused(Kind::cluster, "at most 2 CTAs"));
}

}  // namespace tilescope::gpu::emulator::launch_limits_test
