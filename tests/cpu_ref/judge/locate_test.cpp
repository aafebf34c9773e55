// SPDX-License-Identifier: Apache-2.0
// Right kernels have no divergence in any tile; damaged ones are located where they were damaged.
#include "cpu_ref/judge/locate.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include "cpu_ref/judge/tile_replay.hpp"
#include "tests/cpu_ref/kernels/kernel_cases.hpp"
#include "tests/random_problems.hpp"

namespace tilescope {
namespace {

constexpr int kLocatedProblems = 40;
constexpr TileShape kLocatedTile{16, 24};

TEST_CASE("every tile of every kernel holds what fp64 says") {
  for (unsigned seed = 0; seed < kLocatedProblems; ++seed) {
    testing::ProblemGenerator random(seed);
    const TileShape tile = random.tile();
    AttentionProblem p = random.problem(tile);
    p.dtype = kElementTypes[seed % 5];
    if (random.chance(0.3)) p.dropout = 0.25;
    if (random.chance(0.3)) p.softmax_scale = random.between(-4, 4) / 8.0;
    const Direction direction = is_fp8(p.dtype) ? Direction::forward : Direction::backward;
    Reference reference(p, kInputKinds[seed / 5 % 4], direction);
    CAPTURE(seed);
    CAPTURE(describe(p));
    for (const testing::KernelCase& c : testing::kernel_cases()) {
      CAPTURE(c.name());
      ProgramOptions options = ProgramOptions::with_tile(tile);
      options.backward = c.backward;
      const auto where = locate(reference, *c.kernel, options, direction);
      CHECK((where ? describe(*where, p) : "nowhere") == "nowhere");
    }
  }
}

const AttentionProblem kProblem{
    .batch = 2, .heads = 4, .heads_kv = 2, .seqlen_q = 35, .seqlen_k = 53, .head_dim = 16, .causal = true};

/// cpu:flash2 of which the state of one tile is changed as it is observed.
template <PassName pass, double TileState::*quantity>
void run_with_wrong_state(const ProgramOptions& options, Direction direction, TensorSet& tensors,
                          TileObserver* observer) {
  testing::kernel_cases()[2].kernel->run(options, direction, tensors, observer);
  if (observer == nullptr) return;
  for (PassLog& log : observer->passes) {
    if (log.pass != pass) continue;
    for (CtaLog& cta : log.ctas) {
      for (TileState& state : cta.states) {
        if (state.batch == 1 && state.head == 2 && state.m_block == 1 && state.n_block == 1) {
          state.*quantity += 0.1;
        }
      }
    }
  }
}

/// cpu:flash2 that walks its tiles in another order than its program says.
void run_backwards(const ProgramOptions& options, Direction direction, TensorSet& tensors,
                   TileObserver* observer) {
  ProgramOptions other = options;
  other.scan = Scan::descending;
  testing::kernel_cases()[2].kernel->run(other, direction, tensors, observer);
}

/// cpu:flash2 with a wrong element in its output, though every tile was right.
void run_with_wrong_output(const ProgramOptions& options, Direction direction, TensorSet& tensors,
                           TileObserver* observer) {
  testing::kernel_cases()[2].kernel->run(options, direction, tensors, observer);
  if (direction == Direction::forward) return;
  Tensor& dk = tensors[TensorName::dk];
  dk.set(dk.row_index(1, 0, 30) + 5, 7.0f);
}

/// cpu:standard with one wrong element in a matrix that a pass stores.
template <TensorName matrix>
void run_with_wrong_matrix(const ProgramOptions& options, Direction direction, TensorSet& tensors,
                           TileObserver* observer) {
  testing::kernel_cases()[0].kernel->run(options, direction, tensors, observer);
  Tensor& damaged = tensors[matrix];
  if (!damaged.empty()) damaged.set(damaged.row_index(1, 2, 20) + 30, 0.5f);
}

std::string located(decltype(Kernel::run) run, int kernel_case = 2) {
  Kernel kernel = *testing::kernel_cases()[static_cast<std::size_t>(kernel_case)].kernel;
  REQUIRE(kernel.name == (kernel_case == 0 ? "cpu:standard" : "cpu:flash2"));
  kernel.run = run;
  Reference reference(kProblem, InputKind::normal, Direction::backward);
  ProgramOptions options = ProgramOptions::with_tile(kLocatedTile);
  options.backward = BackwardOrder::split;
  const auto where = locate(reference, kernel, options, Direction::backward);
  return where ? describe(*where, kProblem) : "nowhere";
}

TEST_CASE("a wrong sum is located: pass, tile and quantity") {
  const auto check = [](const std::string& where, const char* pass, const char* quantity) {
    CAPTURE(where);
    CAPTURE(std::string(pass));
    CAPTURE(std::string(quantity));
    CHECK(where.starts_with(std::string("pass ") + pass +
                            ", batch 1, head 2, m_block 1 (queries 16 ... 31), n_block 1 (keys 24 ... 47): " +
                            quantity + ": the tile's sum is "));
  };
  check(located(run_with_wrong_state<PassName::forward, &TileState::scores>), "forward", "scores");
  check(located(run_with_wrong_state<PassName::forward, &TileState::row_max>), "forward", "row_max");
  check(located(run_with_wrong_state<PassName::forward, &TileState::row_sum>), "forward", "row_sum");
  check(located(run_with_wrong_state<PassName::forward, &TileState::accum>), "forward", "accum");
  check(located(run_with_wrong_state<PassName::dkdv, &TileState::probs>), "dkdv", "probs");
  check(located(run_with_wrong_state<PassName::dkdv, &TileState::dprobs>), "dkdv", "dprobs");
  check(located(run_with_wrong_state<PassName::dq, &TileState::dscores>), "dq", "dscores");
  check(located(run_with_wrong_state<PassName::dq, &TileState::accum>), "dq", "accum");
}

// One query, so that a tile's sums are those of one row.
const AttentionProblem kOneQuery{.batch = 2,
                                 .heads = 4,
                                 .heads_kv = 4,
                                 .seqlen_q = 1,
                                 .seqlen_k = 120,
                                 .head_dim = 16,
                                 .dtype = ElementType::fp32};

/// cpu:flash2 that keeps the maximum of a row's first tile, and says so: P, sums and O are then larger.
void run_with_lagging_maxima(const ProgramOptions& options, Direction direction, TensorSet& tensors,
                             TileObserver* observer) {
  testing::kernel_cases()[2].kernel->run(options, direction, tensors, observer);
  if (observer == nullptr) return;
  for (CtaLog& cta : observer->passes.at(0).ctas) {
    const double kept = cta.states.at(0).row_max;
    for (TileState& state : cta.states) {
      const double factor = std::exp(kOneQuery.scale() * (state.row_max - kept));
      for (double TileState::*sum : {&TileState::row_sum, &TileState::probs, &TileState::accum}) {
        state.*sum *= factor;
      }
      state.row_max = kept;
      state.maxima.assign(static_cast<std::size_t>(kLocatedTile.block_m),
                          std::numeric_limits<float>::quiet_NaN());
      state.maxima[0] = static_cast<float>(kept);
    }
  }
}
/// The same, of which one tile is wrong in one sum.
template <double TileState::*sum>
void run_lagging_with_wrong(const ProgramOptions& options, Direction direction, TensorSet& tensors,
                            TileObserver* observer) {
  run_with_lagging_maxima(options, direction, tensors, observer);
  if (observer) observer->passes.at(0).ctas.at(3).states.at(2).*sum += 0.1;
}

std::string located_of_one_query(decltype(Kernel::run) run, double largest_prob) {
  Kernel kernel = *testing::kernel_cases()[2].kernel;
  kernel.run = run;
  kernel.arithmetic = {.rescaling = Rescaling::conditional, .largest_prob = largest_prob};
  Reference reference(kOneQuery, InputKind::normal, Direction::forward);
  const auto where = locate(reference, kernel, ProgramOptions::with_tile(kLocatedTile), Direction::forward);
  return where ? describe(*where, kOneQuery) : "nowhere";
}

TEST_CASE("maxima may lag as far as the kernel says, and are followed") {
  CHECK(located_of_one_query(run_with_lagging_maxima, 4096) == "nowhere");
  const auto has = [](const std::string& where, const char* quantity) {
    CAPTURE(where);
    CHECK(where.find(std::string(": ") + quantity + ": the tile's sum is ") != std::string::npos);
  };
  has(located_of_one_query(run_with_lagging_maxima, 0.25), "row_max");  // none may
  has(located_of_one_query(run_lagging_with_wrong<&TileState::row_max>, 4096), "row_max");
  has(located_of_one_query(run_lagging_with_wrong<&TileState::row_sum>, 4096), "row_sum");
  has(located_of_one_query(run_lagging_with_wrong<&TileState::probs>, 4096), "probs");
  has(located_of_one_query(run_lagging_with_wrong<&TileState::accum>, 4096), "accum");
}

TEST_CASE("no row that sees a key of a tile may be left out there") {
  const std::string where = located_of_one_query(run_lagging_with_wrong<&TileState::left_out>, 4096);
  CAPTURE(where);
  CHECK(where.find(": left_out: the tile's sum is 0.1") != std::string::npos);
}

TEST_CASE("a wrong element of a stored matrix is located: pass, tile and matrix") {
  const auto check = [](const std::string& where, const std::string& pass, const std::string& matrix) {
    CAPTURE(where);
    CHECK(where.starts_with("pass " + pass +
                            ", batch 1, head 2, m_block 1 (queries 16 ... 31), n_block 1 (keys 24 ... 47): " +
                            matrix + ": at query 20, key 30 it is 0.5, exact "));
  };
  check(located(run_with_wrong_matrix<TensorName::scores>, 0), "scores", "scores");
  check(located(run_with_wrong_matrix<TensorName::probs>, 0), "softmax", "probs");
  check(located(run_with_wrong_matrix<TensorName::dprobs>, 0), "dprobs", "dprobs");
  check(located(run_with_wrong_matrix<TensorName::dscores>, 0), "dscores", "dscores");
}

TEST_CASE("a wrong walk is located by its first access") {
  const std::string where = located(run_backwards);
  CAPTURE(where);
  CHECK(where.starts_with(
      "pass forward, batch 0, head 0, n_block 0 (keys 0 ... 23): access: access 1 of CTA 0"));
  CHECK(where.find("the program has load k of head 0") != std::string::npos);
}

TEST_CASE("a wrong epilogue is located by its output") {
  const std::string where = located(run_with_wrong_output);
  CAPTURE(where);
  CHECK(where.find("batch 1, head 0, n_block 1 (keys 24 ... 47): dk: after every tile was right") !=
        std::string::npos);
  CHECK(where.find("[batch 1, head 0, row 30, col 5] is 7") != std::string::npos);
}

/// cpu:flash2 that leaves tensors of a backward pass as if a pass had written them wrongly.
template <TensorName... names>
void run_with_wrong_tensors(const ProgramOptions& options, Direction direction, TensorSet& tensors,
                            TileObserver* observer) {
  testing::kernel_cases()[2].kernel->run(options, direction, tensors, observer);
  if (direction == Direction::forward) return;
  for (TensorName name : {names...}) {
    Tensor& tensor = tensors[name];
    tensor.set(tensor.row_index(1, 0, 30), 7.0f);
  }
}

template <TensorName... names>
Divergence divergence_of(BackwardOrder order, TileShape dq_tile = kLocatedTile) {
  Kernel kernel = *testing::kernel_cases()[2].kernel;
  kernel.run = run_with_wrong_tensors<names...>;
  Reference reference(kProblem, InputKind::normal, Direction::backward);
  ProgramOptions options = ProgramOptions::with_tile(kLocatedTile);
  options.backward = order;
  options[PassName::dq].tile = dq_tile;
  const auto where = locate(reference, kernel, options, Direction::backward);
  REQUIRE(where);
  return *where;
}

TEST_CASE("a wrong tensor is blamed on the pass that wrote it, in that pass's tiles") {
  using enum TensorName;
  const auto check = [](const Divergence& where, PassName pass, TensorName tensor, int m_block, int n_block) {
    CAPTURE(describe(where, kProblem));
    CHECK(where.pass == pass);
    CHECK(where.quantity == to_string(tensor));
    CHECK(where.batch == 1);
    CHECK(where.head == 0);
    CHECK(where.m_block == m_block);
    CHECK(where.n_block == n_block);
  };
  // Row 30 lies in q tile 1 and kv tile 1; in dq's own tiles of 5 queries it lies in the sixth.
  check(divergence_of<delta>(BackwardOrder::split), PassName::delta, delta, 1, -1);
  check(divergence_of<dk>(BackwardOrder::split), PassName::dkdv, dk, -1, 1);
  check(divergence_of<dq>(BackwardOrder::split, {5, 8}), PassName::dq, dq, 6, -1);
  // The fused order rounds dQ in a pass of its own, the rows order dK and dV.
  check(divergence_of<dk>(BackwardOrder::fused), PassName::dkdvdq, dk, -1, 1);
  check(divergence_of<dq>(BackwardOrder::fused), PassName::convert, dq, 1, -1);
  check(divergence_of<dq, dq_accum>(BackwardOrder::fused), PassName::dkdvdq, dq_accum, 1, -1);
  check(divergence_of<dq>(BackwardOrder::q_outer), PassName::dqdkdv, dq, 1, -1);
  check(divergence_of<dv>(BackwardOrder::q_outer), PassName::convert, dv, -1, 1);
  check(divergence_of<dv, dv_accum>(BackwardOrder::q_outer), PassName::dqdkdv, dv_accum, -1, 1);
}

TEST_CASE("a missing access and a missing pass are located") {
  const ProgramOptions options = ProgramOptions::with_tile(kLocatedTile);
  const Kernel& flash2 = *testing::kernel_cases()[2].kernel;
  Reference reference(kProblem, InputKind::normal, Direction::forward);
  TileObserver observer;
  reference.run(flash2, options, Direction::forward, &observer);
  const TileProgram program = flash2.programs(Direction::forward, kProblem, options)[0];
  CHECK_FALSE(first_wrong_access(program, observer.passes[0]));
  observer.passes[0].ctas[2].accesses.pop_back();
  const auto missing = first_wrong_access(program, observer.passes[0]);
  REQUIRE(missing);
  CHECK(missing->detail.find("is missing, the program has store lse") != std::string::npos);
  observer.passes[0].ctas.pop_back();
  CHECK(first_wrong_access(program, observer.passes[0])->detail.find("its program has forward with") !=
        std::string::npos);
}

TEST_CASE("where a kernel logs its visits only, a wrong, missing or additional one is located") {
  const ProgramOptions options = ProgramOptions::with_tile(kLocatedTile);
  for (const testing::KernelCase& c : testing::kernel_cases()) {
    CAPTURE(c.name());
    Reference reference(kProblem, InputKind::normal, Direction::backward);
    TileObserver observer;
    ProgramOptions own = options;
    own.backward = c.backward;
    reference.run(*c.kernel, own, Direction::backward, &observer);
    std::size_t pass = 0;
    for (Direction direction : {Direction::forward, Direction::backward}) {
      for (const TileProgram& program : c.kernel->programs(direction, kProblem, own)) {
        CAPTURE(to_string(program.name));
        PassLog& log = observer.passes.at(pass++);
        CHECK_FALSE(first_wrong_visit(program, log));
        if (program.products.count() == 0) continue;
        std::vector<TileState>& states = log.ctas.back().states;
        const TileState last = states.back();
        states.push_back(last);
        CHECK(first_wrong_visit(program, log)->detail.find("after its last tile") != std::string::npos);
        states.resize(states.size() - 2);
        const auto missing = first_wrong_visit(program, log);
        REQUIRE(missing);
        CHECK(missing->m_block == last.m_block);
        CHECK(missing->n_block == last.n_block);
        states.push_back(last);
        states.front().n_block += 1;
        CHECK(first_wrong_visit(program, log)->detail.starts_with("visit 0 of CTA "));
      }
    }
  }
}

}  // namespace
}  // namespace tilescope
