// SPDX-License-Identifier: Apache-2.0
// The sweep covers what it says, for any tile shape.
#include "cpu_ref/judge/verify_cases.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <set>

namespace tilescope {
namespace {

TEST_CASE("every case is valid, and no two are the same") {
  for (TileShape tile : {TileShape{16, 24}, {1, 1}, {64, 64}, {2, 3}, {128, 80}}) {
    for (SweepSize size : {SweepSize::quick, SweepSize::normal, SweepSize::full}) {
      std::set<std::string> seen;
      for (const VerifyCase& c : verify_cases(tile, size)) {
        CHECK_NOTHROW(validate(c.problem));
        CHECK(c.tile == tile);
        CHECK((c.direction == Direction::forward) ==
              (is_fp8(c.problem.kv_type()) || c.problem.page_size > 0 || c.problem.shared_kv));
        CHECK(c.problem.seed != 0);
        CHECK(seen.insert(describe(c.problem)).second);  // the seed is part of it
      }
    }
  }
}

TEST_CASE("a larger sweep has more cases, and the same ones every time") {
  const auto count = [](SweepSize size) { return verify_cases({16, 24}, size).size(); };
  CHECK(count(SweepSize::quick) * 3 < count(SweepSize::normal));
  CHECK(count(SweepSize::normal) * 3 / 2 < count(SweepSize::full));
  CHECK(count(SweepSize::normal) == count(SweepSize::normal));
}

TEST_CASE("the sweep holds every edge length under every mask") {
  const TileShape tile{16, 24};
  const std::vector<VerifyCase> cases = verify_cases(tile, SweepSize::normal);
  for (std::int64_t nq : {1, 15, 16, 17, 35}) {
    for (std::int64_t nk : {1, 23, 24, 25, 51}) {
      const auto with = [&](auto&& wanted) {
        return std::count_if(cases.begin(), cases.end(), [&](const VerifyCase& c) {
          return c.problem.seqlen_q == nq && c.problem.seqlen_k == nk && wanted(c.problem);
        });
      };
      CAPTURE(nq);
      CAPTURE(nk);
      CHECK(with([](const AttentionProblem& p) { return !p.masked(); }) >= 1);
      CHECK(with([](const AttentionProblem& p) { return p.causal && p.window_left < 0; }) >= 1);
      CHECK(with([](const AttentionProblem& p) { return p.causal && p.window_left >= 0; }) >= 1);
      CHECK(with([](const AttentionProblem& p) { return !p.causal && p.window_left >= 0; }) >= 2);
      for (ElementType dtype : {ElementType::fp32, ElementType::fp16, ElementType::bf16}) {
        CHECK(with([dtype](const AttentionProblem& p) { return p.dtype == dtype; }) >= 1);
      }
    }
  }
}

TEST_CASE("the sweep holds every element type, input kind, order, scan and head grouping, and empty rows") {
  const std::vector<VerifyCase> cases = verify_cases({16, 24}, SweepSize::normal);
  std::set<std::pair<ElementType, InputKind>> inputs;
  std::set<std::pair<TileOrder, Scan>> orders;
  std::set<std::int64_t> groups, head_dims;
  int empty_rows = 0, dropouts = 0;
  for (const VerifyCase& c : cases) {
    inputs.insert({c.problem.dtype, c.inputs});
    orders.insert({c.order, c.scan});
    groups.insert(c.problem.group_size());
    head_dims.insert(c.problem.head_dim);
    empty_rows += c.problem.causal && c.problem.seqlen_q > c.problem.seqlen_k;
    dropouts += c.problem.dropout > 0;
  }
  CHECK(inputs.size() == std::size(kElementTypes) * std::size(kInputKinds));
  CHECK(orders.size() == 9);
  CHECK(groups == std::set<std::int64_t>{1, 2, 3, 6});
  CHECK(head_dims.count(1) + head_dims.count(255) + head_dims.count(256) == 3);
  CHECK(empty_rows > 20);
  CHECK(dropouts > 50);
}

}  // namespace
}  // namespace tilescope
