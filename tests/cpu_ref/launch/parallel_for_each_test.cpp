// SPDX-License-Identifier: Apache-2.0
// What is thrown on other threads arrives: memory that runs out in the judge is not the end of the process.
#include "cpu_ref/launch/parallel_for_each.hpp"

#include <doctest/doctest.h>

#include <cstdlib>
#include <new>
#include <vector>

#include "cpu_ref/judge/equivalence.hpp"
#include "cpu_ref/judge/error_scale.hpp"
#include "cpu_ref/judge/sampled_rows.hpp"

// ThreadSanitizer brings allocation functions of its own, beside which no others can be linked.
#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define TILESCOPE_ALLOCATES_FOR_SANITIZER
#endif
#endif

#ifndef TILESCOPE_ALLOCATES_FOR_SANITIZER
namespace {

/// Allocations inside parallel regions that still succeed; negative: all do.
std::atomic<int> allocations_left = -1;

}  // namespace

// Not inlined: the compiler would miss the pair of malloc and free.
[[gnu::noinline]] void* operator new(std::size_t bytes) {
  if (allocations_left >= 0 && omp_get_level() > 0 && allocations_left-- <= 0) {
    allocations_left = 0;
    throw std::bad_alloc();
  }
  if (void* memory = std::malloc(bytes > 0 ? bytes : 1)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
#endif

namespace tilescope {

TEST_CASE("a loop on all threads does each once, with a copy of the body for each thread") {
  std::vector<int> done(1000);
  std::atomic<int> copies = 0;
  struct Counted {
    std::atomic<int>* copies;
    explicit Counted(std::atomic<int>* all) : copies(all) {}
    Counted(const Counted& other) : copies(other.copies) { ++*copies; }
  };
  parallel_for_each(1000, [&done, mine = Counted(&copies)](std::int64_t i) mutable { ++done[i]; });
  CHECK(done == std::vector<int>(1000, 1));
  CHECK(copies <= omp_get_max_threads() + 1);
  parallel_for_each(0, [](std::int64_t) { FAIL("there is nothing to do"); });
}

TEST_CASE("the first exception of a loop on all threads ends it and is thrown at its end") {
  std::atomic<int> calls = 0;
  const auto body = [&](std::int64_t i) {
    ++calls;
    if (i == 3) throw std::bad_alloc();
  };
  CHECK_THROWS_AS(parallel_for_each(1'000'000'000, body), std::bad_alloc);
  CHECK(calls < 1'000'000'000);
}

#ifndef TILESCOPE_ALLOCATES_FOR_SANITIZER
namespace {

class MemoryRunsOut {
 public:
  explicit MemoryRunsOut(int after) { allocations_left = after; }
  ~MemoryRunsOut() { allocations_left = -1; }
};

AttentionProblem problem_of_two_heads() {
  AttentionProblem problem;
  problem.batch = 1;
  problem.heads = problem.heads_kv = 2;
  problem.seqlen_q = problem.seqlen_k = 48;
  problem.head_dim = 16;
  return problem;
}

}  // namespace

TEST_CASE("memory that runs out in a loop of the judge is thrown to who called it") {
  const AttentionProblem problem = problem_of_two_heads();
  TensorSet inputs(problem);
  fill_random_inputs(inputs, Direction::backward, InputKind::normal);
  const ExactAttention exact = exact_attention(inputs, Direction::backward);
  CHECK_THROWS_AS((MemoryRunsOut(0), exact_attention(inputs, Direction::backward)), std::bad_alloc);
  CHECK_THROWS_AS((MemoryRunsOut(0), error_scale(inputs, exact)), std::bad_alloc);
}

TEST_CASE("memory that runs out in a loop over sampled rows is thrown to who called it") {
  const AttentionProblem problem = problem_of_two_heads();
  TensorSet tensors(problem);
  fill_random_inputs(tensors, Direction::backward, InputKind::normal);
  for (const TensorName name :
       {TensorName::out, TensorName::lse, TensorName::dq, TensorName::dk, TensorName::dv})
    tensors.allocate(name);
  const auto read = [&](TensorName name, std::int64_t head) { return copy_head(tensors[name], head); };
  int failed = 0;
  for (int after = 0; after < 400; ++after) {
    RowJudge judge(problem, Algorithm::flash2, Direction::backward, 8);
    const MemoryRunsOut soon(after);
    try {
      judge.forward(read);
      judge.backward(read);
      break;
    } catch (const std::bad_alloc&) {
      ++failed;
    }
  }
  CHECK(failed > 100);
}
#endif

}  // namespace tilescope
