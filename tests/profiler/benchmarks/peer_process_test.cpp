// SPDX-License-Identifier: Apache-2.0
// The talk with the peers' process, with shell scripts in its place.
#include "profiler/benchmarks/peer_process.hpp"

#include <doctest/doctest.h>

#include "common/errors.hpp"

namespace tilescope {
namespace {

const std::string kHello = R"(echo '{"peers": ["a:b", "c:d"], "versions": "A 1"}';)";
const AttentionProblem kProblem{.heads = 2, .heads_kv = 2, .seqlen_q = 64, .seqlen_k = 64, .head_dim = 32};

std::vector<std::string> shell(const std::string& script) { return {"sh", "-c", script}; }

std::string lack_of(const std::vector<std::string>& command) {
  try {
    PeerProcess process(command, 5);
  } catch (const MachineLacks& lack) {
    return lack.what();
  }
  return "";
}

TEST_CASE("peers answer with samples or with what they lack") {
  PeerProcess process(shell(kHello + R"(
    read request; case $request in *'"peer":"a:b"'*) echo '{"samples_s": [0.5, 0.25], "sm_clock_hz": 1.5e9}';; esac
    read request; case $request in *'"peer":"c:d"'*) echo '{"lacks": "head_dim 32"}';; esac
    read request)"),
                      5);
  CHECK(process.names() == std::vector<std::string>{"a:b", "c:d"});
  CHECK(process.versions() == "A 1");
  const PeerAnswer first = process.time("a:b", kProblem, Direction::forward, {});
  CHECK(first.samples_s == std::vector<double>{0.5, 0.25});
  CHECK(first.sm_clock_hz == 1.5e9);
  const PeerAnswer second = process.time("c:d", kProblem, Direction::forward, {});
  CHECK(second.samples_s.empty());
  CHECK(second.lacks == "head_dim 32");
  CHECK(second.sm_clock_hz == 0);
}

TEST_CASE("what no peer computes is not asked for") {
  PeerProcess process(shell(kHello + "read request; exit 1"), 5);
  AttentionProblem dropped = kProblem;
  dropped.dropout = 0.5;
  CHECK(process.time("a:b", dropped, Direction::forward, {}).lacks.find("dropout") != std::string::npos);
}

TEST_CASE("peers are told of groups, both lengths, those of batch entries and the window") {
  PeerProcess process(shell(kHello + R"(
    read request; case $request in
    *'"heads":2,"heads_kv":1,"key_lengths":[40]'*'"seqlen_k":64,"seqlen_q":16'*'"window":[8,0]'*) echo '{"samples_s": [1.0]}';;
    *) echo '{"lacks": "another problem"}';; esac)"),
                      5);
  AttentionProblem problem = kProblem;
  problem.heads_kv = 1;
  problem.seqlen_q = 16;
  problem.window_left = 8;
  problem.window_right = 0;
  problem.key_lengths = {40};
  CHECK(process.time("a:b", problem, Direction::forward, {}).lacks.empty());
}

TEST_CASE("peers are told of pages, the mask and the score modifiers that are there") {
  PeerProcess process(shell(kHello + R"(
    read request; case $request in
    *'"mask":{"kind":"sink","numbers":[4]}'*'"page_size":16'*'"score_mods":{"softcap":50.0}'*) echo '{"samples_s": [1.0]}';;
    *) echo '{"lacks": "another problem"}';; esac
    read request; case $request in
    *'"kv_dtype":"fp32"'*'"mask":null'*'"page_size":0'*'"score_mods":{}'*) echo '{"samples_s": [1.0]}';; esac
    read request; case $request in
    *'"kv_dtype":"fp8e4m3"'*) echo '{"samples_s": [1.0]}';; esac)"),
                      5);
  AttentionProblem problem = kProblem;
  problem.page_size = 16;
  problem.window_left = 8;
  problem.mask = {MaskKind::sink, {4}};
  problem.score_mods.softcap = 50;
  CHECK(process.time("a:b", problem, Direction::forward, {}).lacks.empty());
  CHECK(process.time("a:b", kProblem, Direction::forward, {}).lacks.empty());
  AttentionProblem narrow = kProblem;
  narrow.kv_dtype = ElementType::fp8e4m3;
  CHECK(process.time("a:b", narrow, Direction::forward, {}).lacks.empty());
}

TEST_CASE("a missing interpreter or library is named, with what works instead") {
  CHECK(lack_of({"no-such-python"}).find("no-such-python") != std::string::npos);
  const std::string lack = lack_of(shell(R"(echo '{"lacks": "no torch"}')"));
  CHECK(lack.find("no torch") != std::string::npos);
  CHECK(lack.find("without --peers") != std::string::npos);
  CHECK(lack_of(shell("exit 0")).find("ended") != std::string::npos);
  CHECK(lack_of(shell("echo hello")).find("cannot be timed") != std::string::npos);
}

TEST_CASE("a process that dies, babbles or hangs is given up, once") {
  for (const char* end : {"exit 3", "echo '{'; read more", "exec sleep 60"}) {
    CAPTURE(end);
    PeerProcess process(shell(kHello + "read request; " + end), 1);
    for (int again = 0; again < 2; ++again) {
      const PeerAnswer answer = process.time("a:b", kProblem, Direction::backward, {});
      CHECK(answer.samples_s.empty());
      CHECK(answer.lacks.find("lost") != std::string::npos);
    }
  }
}

}  // namespace
}  // namespace tilescope
