// SPDX-License-Identifier: Apache-2.0
// What an H200 counted of kernels that vary one thing at a time, and what the model says of the same stores.
#include "emulator/counts/store_merging.hpp"

#include <doctest/doctest.h>

#include <string>

namespace tilescope::gpu::emulator::store_merging_test {

/// The sectors that leave of stores of one CTA.
class Stores {
 public:
  explicit Stores(const StoreRuns& runs = {}) : runs_(runs), merging_(runs_) {}

  void load(std::uint32_t warp) { merging_.load(warp, barriers_); }
  void barrier() { ++barriers_; }
  /// So many lines of 128 bytes from one on, all their sectors in part.
  void store(std::uint32_t warp, std::uint64_t first_line, std::uint64_t lines = 1, bool whole = false) {
    if (merging_.is_due(barriers_)) decide();
    merging_.store(warp, barriers_, site_++);
    for (std::uint64_t i = 0; i < 4 * lines; ++i) merging_.add(4 * first_line + i, whole);
  }
  /// The next store stands where the first stood.
  void jump_back() { site_ = 0; }
  std::uint64_t left() {
    decide();
    return left_;
  }

 private:
  void decide() {
    merging_.decide([&](std::uint32_t, std::uint64_t) { ++left_; });
  }
  StoreRuns runs_;
  StoreMerging merging_;
  std::uint64_t barriers_ = 0, left_ = 0;
  std::uint32_t site_ = 0;
};

TEST_CASE("emulator: stores of a warp in a row leave as one") {
  for (const std::uint64_t lines : {1, 4, 8}) {
    for (const int count : {2, 4, 16}) {
      Stores stores;
      for (int i = 0; i < count; ++i) stores.store(0, 100, lines);
      CHECK(stores.left() == 4 * lines);
    }
  }
  Stores in_turn;  // two places, one after the other
  for (int i = 0; i < 4; ++i) {
    for (const std::uint64_t line : {100, 200}) in_turn.store(0, line, 4);
  }
  CHECK(in_turn.left() == 2 * 16);
}

TEST_CASE("emulator: a narrow store between two leaves L1 the time to send the first") {
  for (const std::uint64_t lines : {1, 4}) {
    Stores stores;
    stores.store(0, 100, lines);
    stores.store(0, 200);
    stores.store(0, 100, lines);
    CHECK(stores.left() == (lines == 1 ? 4 + 4 + 4 : 16 + 4));
  }
}

TEST_CASE("emulator: a load, a barrier or a jump back ends what merges") {
  const auto left_with = [](auto&& between) {
    Stores stores;
    stores.store(0, 100);
    between(stores);
    stores.store(0, 100);
    return stores.left();
  };
  CHECK(left_with([](Stores&) {}) == 4);
  CHECK(left_with([](Stores& stores) { stores.load(0); }) == 8);
  CHECK(left_with([](Stores& stores) { stores.load(1); }) == 4);
  CHECK(left_with([](Stores& stores) { stores.barrier(); }) == 8);
  CHECK(left_with([](Stores& stores) { stores.jump_back(); }) == 8);
}

TEST_CASE("emulator: what scatters over 32 lines, and whole sectors, never merge") {
  Stores scattered, whole;
  for (int i = 0; i < 4; ++i) {
    scattered.store(0, 100, 32);
    whole.store(0, 100, 4, true);
    whole.store(0, 100);
    whole.store(0, 100, 4, true);
  }
  CHECK(scattered.left() == 4 * 128);
  CHECK(whole.left() == 4);
}

TEST_CASE("emulator: warps that a barrier released arrive together, and merge while few lines are open") {
  const auto left_by = [](std::uint32_t warps, std::uint64_t lines, bool together) {
    Stores stores;
    stores.barrier();
    for (std::uint32_t warp = 0; warp < warps; ++warp) {
      if (!together) stores.load(warp);
      stores.jump_back();
      for (int i = 0; i < 2; ++i) stores.store(warp, 100 * warp, lines);
    }
    return stores.left();
  };
  struct Fit {
    std::uint32_t warps, lines;
    bool merges;  // else none, if the warps stay in step
  };
  for (const Fit fit : {Fit{4, 1, true},
                        {8, 1, false},
                        {6, 2, true},
                        {8, 2, false},
                        {7, 4, true},
                        {8, 4, false},
                        {3, 8, true},
                        {4, 8, false}}) {
    CAPTURE(fit.warps);
    CAPTURE(fit.lines);
    const std::uint64_t once = std::uint64_t{fit.warps} * fit.lines * 4;
    CHECK((left_by(fit.warps, fit.lines, true) == once) == fit.merges);
    CHECK(left_by(fit.warps, fit.lines, true) < 2 * once);
    CHECK(left_by(fit.warps, fit.lines, false) == once);
  }

  const auto rows = [](bool together) {
    Stores stores;
    stores.barrier();
    for (std::uint32_t warp = 0; warp < 8; ++warp) {
      if (!together) stores.load(warp);
      stores.jump_back();
      stores.store(warp, 100);  // all of them the same line
    }
    return stores.left();
  };
  CHECK(rows(true) == 4);
  CHECK(rows(false) == 4 + 7 * 4 / 2);  // half of those behind the first
}

TEST_CASE("emulator: of stores that ptxas sets apart, the share that stands in a row merges") {
  StoreRuns runs;
  runs.meeting = 3;
  runs.in_a_row[0] = 2;
  Stores stores(runs);
  for (int i = 0; i < 4; ++i) stores.store(0, 100, 4);
  CHECK(stores.left() == 2 * 16);
}

TEST_CASE("emulator: ptxas' stores in a row are found in what disassemblers print") {
  const auto runs_of = [](const std::string& lines) {
    std::string sass = "\t\tFunction : k\n";
    for (std::size_t begin = 0; begin < lines.size();) {
      const std::size_t end = lines.find('\n', begin);
      sass += "        /*0000*/   " + lines.substr(begin, end - begin) + " ;   /* 0x00 */\n";
      begin = end + 1;
    }
    const auto runs = store_runs_in_sass(sass, "k");
    REQUIRE(runs);
    return *runs;
  };
  const std::string arithmetic = "FADD R17, R17, R14\n";
  std::string apart = "STG.E desc[UR4][R4.64], R17\n";
  for (int i = 0; i < 4; ++i) apart += arithmetic;
  apart += "@!P4 STG.E desc[UR4][R4.64+0x4], R21\n@!P3 STG.E desc[UR4][R4.64+0x8], R9\n" + arithmetic;
  const StoreRuns runs =
      runs_of(apart + "STG.E desc[UR4][R4.64+0xc], R9\n@P6 EXIT\nSTG.E desc[UR4][R4.64+0x800], R9\n");
  CHECK(runs.meeting == 3);
  CHECK(runs.in_a_row[0] == 2);
  CHECK(runs.share(4) == doctest::Approx(2.0 / 3));

  // Another place between, which is too much where many lines are open.
  const StoreRuns in_turn = runs_of(
      "STG.E.U16 [R4.64], R1\nSTG.E.U16 [R4.64+-0x800], R1\nSTG.E.U16 [R4.64+0x2], R1\n"
      "STG.E.U16 [R4.64+-0x7fe], R1\n");
  CHECK(in_turn.meeting == 2);
  CHECK(in_turn.in_a_row[1] == 2);
  CHECK(in_turn.share(4) == 1);
  CHECK(in_turn.share(16) == 0);

  // A register that is written anew, or another block, is another place.
  CHECK(runs_of("STG.E [R4.64], R1\nIADD3 R4, P0, R4, 0x8, RZ\nSTG.E [R4.64], R1\n").meeting == 0);
  CHECK(runs_of("STG.E [R4.64], R1\nBRA `(.L_x_1)\nSTG.E [R4.64], R1\n").meeting == 0);
  CHECK(runs_of("STG.E [R4.64], R1\n").share(4) == 1);
  CHECK_FALSE(store_runs_in_sass("", "k"));
}

}  // namespace tilescope::gpu::emulator::store_merging_test
