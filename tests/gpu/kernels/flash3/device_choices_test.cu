// SPDX-License-Identifier: Apache-2.0
// Every instance of flash3 that its row chooses among, whatever the row would choose, with few CTAs where
// they are persistent, so that each takes several work items: against exact results and the CPU mirror's.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "cpu_ref/schedule/kv_pages.hpp"
#include "gpu/kernels/decode/decode.hpp"
#include "gpu/kernels/elementwise/elementwise.hpp"
#include "gpu/kernels/flash3/backward/launch.cuh"
#include "gpu/kernels/flash3/flash3.hpp"
#include "gpu/kernels/flash3/forward/launch.cuh"
#include "gpu/launch/device_error.hpp"
#include "tests/gpu/device/device_cases.hpp"
#include "tests/random_problems.hpp"

using namespace tilescope;
using namespace tilescope::gpu;
using tilescope::testing::judge_on_device;

namespace flash3_choices_test {

constexpr int kSms = 3;  // that persistent CTAs are told of

template <sm90::WgmmaType kType>
constexpr ElementType kElementOf = kType == sm90::WgmmaType::fp16 ? ElementType::fp16 : ElementType::bf16;

/// The passes of flash3 by these instances.
template <sm90::WgmmaType kType, typename Forward, typename Backward>
void launch(const TileProgram& program, const KernelArguments& args, CUstream_st* stream) {
  if (program.name == PassName::delta) return launch_delta(program, args, stream);
  if (program.name == PassName::init) return launch_init(program, args, stream, true);
  if (program.name == PassName::convert) return launch_convert(program, args, stream, true);
  if (program.name == PassName::forward) {
    return launch_flash3_forward<kType, Forward>(
        flash3_forward_arguments<kType, Forward::shape>(program, args), kSms, stream);
  }
  if (program.name == PassName::combine) return launch_combine(program, args, stream);
  const auto items = static_cast<int>(program.num_ctas());
  launch_flash3_dkdvdq<kType, Backward>(flash3_backward_arguments<kType, Backward::shape>(program, args),
                                        Backward::shape.persistent ? std::min(items, kSms) : items, stream);
}

/// flash3's row with that launch, of any tile.
template <PassLauncher kLaunch>
Kernel row_of() {
  Kernel row = find_gpu_kernel(Flash3::name).row;
  row.tile_choices = nullptr;
  row.run = [](const ProgramOptions& options, Direction direction, TensorSet& tensors,
               TileObserver* observer) {
    run_on_device(row_of<kLaunch>(), kLaunch, options, direction, tensors, observer);
  };
  return row;
}

struct Case {
  int heads = 2, heads_kv = 1, seqlen_q = 1, seqlen_k = 1;
  int left = -1, right = -1;
  double scale = 0.09;
  int less = 0;  // of the head dimension that the instance is compiled for
};

template <sm90::WgmmaType kType, typename Choice>
AttentionProblem problem_of(const Case& c) {
  AttentionProblem problem{.heads = c.heads,
                           .heads_kv = c.heads_kv,
                           .seqlen_q = c.seqlen_q,
                           .seqlen_k = c.seqlen_k,
                           .head_dim = Choice::shape.head_dim - c.less,
                           .dtype = kElementOf<kType>};
  problem.causal = c.right == 0 && c.left < 0;
  problem.window_left = c.left;
  problem.window_right = problem.causal ? -1 : c.right;
  problem.softmax_scale = c.scale;
  return problem;
}

/// Lengths {1, n - 1, n, n + 1, 2 n + 3} of both sides, every mask, keys whole and split, heads packed.
template <sm90::WgmmaType kType, typename Choice>
void check_forward() {
  constexpr TileShape kTile = Choice::shape.tile;
  const Kernel row = row_of<
      launch<kType, Choice, Flash3BackwardChoice<flash3_backward_shape(Choice::shape.head_dim).head_dim>>>();
  int count = 0;
  for (const int m : {1, kTile.block_m - 1, kTile.block_m, kTile.block_m + 1}) {
    for (const int n : {1, kTile.block_n - 1, kTile.block_n + 1, 2 * kTile.block_n + 3}) {
      const AttentionProblem problem = problem_of<kType, Choice>({.heads = 2 << count % 3,
                                                                  .heads_kv = count % 2 + 1,
                                                                  .seqlen_q = m,
                                                                  .seqlen_k = n,
                                                                  .left = count % 4 == 3 ? 20 : -1,
                                                                  .right = count % 4 == 0   ? -1
                                                                           : count % 4 == 1 ? 0
                                                                                            : 3 * count,
                                                                  .scale = count % 5 == 4   ? -0.1
                                                                           : count % 7 == 6 ? 0.0
                                                                                            : 0.125,
                                                                  .less = count % 3 == 2 ? 24 : 0});
      ProgramOptions options = Flash3::default_options(problem);
      options.set_tile(Direction::forward, kTile);
      options.scan = count % 3 == 0 ? Scan::ascending : Scan::descending;
      options.splits = {SplitPolicy::Kind::number, count % 4 + 1};  // of some of which a q tile sees nothing
      options.pack_gqa = problem.group_size() > 1 && count % 5 != 2;
      Reference reference(problem, count % 3 == 1 ? InputKind::outlier : InputKind::normal,
                          Direction::forward);
      judge_on_device(reference, row, options, Direction::forward, false);
      ++count;
    }
  }
}

/// Masks of tables, of rules drawn by chance round the tile's edges: forward observed, every other one with
/// modifiers, with several items a CTA; backward with groups of heads, and kv tiles that CTAs share.
template <sm90::WgmmaType kType, int kHeadDim>
void check_tables(Direction direction) {
  const bool backward = direction == Direction::backward;
  using Choice = Flash3TableChoice<kHeadDim>;
  const Kernel row = row_of<launch<kType, Choice, Flash3BackwardTableChoice<kHeadDim>>>();
  constexpr unsigned kSeed = 37 + kHeadDim;
  CAPTURE(kSeed);
  testing::ProblemGenerator random(kSeed);
  constexpr int kCases = 12;
  for (int i = 0; i < kCases; ++i) {
    AttentionProblem problem = problem_of<kType, Choice>({.heads = backward ? 4 : 2,
                                                          .heads_kv = backward ? 1 << i % 3 : 1,
                                                          .seqlen_q = random.between(1, 400),
                                                          .seqlen_k = random.between(100, 500),
                                                          .scale = i % 4 == 3 ? -0.1 : 0.125,
                                                          .less = i % 3 == 2 ? 24 : 0});
    problem = random.masked(problem);
    if (!problem.mask.any()) continue;
    if (!backward && i % 2 == 1) problem = random.modified(problem);
    problem.score_mods.log_bias = 0;
    CAPTURE(describe(problem));
    ProgramOptions options = Flash3::default_options(problem);
    options.scan = i % 3 == 0 ? Scan::ascending : Scan::descending;
    options.query_splits = i % 2 == 0 ? 1 : i;
    judge_on_device(row, problem, options, direction, false);
  }
}

/// Score modifiers, observed, on each side of the diagonal and across it, with sinks of rows that see no key.
/// @tparam kCaps  with a soft cap, below which scores lie, or which they pass
template <sm90::WgmmaType kType, typename Choice, bool kCaps>
void check_mods() {
  constexpr int kBackward = flash3_backward_shape(Choice::shape.head_dim).head_dim;
  const Kernel row = row_of<launch<kType, Choice, Flash3BackwardChoice<kBackward>>>();
  const Case cases[] = {{.seqlen_q = 300, .seqlen_k = 400, .right = 0, .scale = 0.125},
                        {.seqlen_q = 200, .seqlen_k = 150, .right = 0, .scale = -0.1},
                        {.heads_kv = 2, .seqlen_q = 70, .seqlen_k = 333, .scale = 0.125, .less = 24},
                        {.seqlen_q = 333, .seqlen_k = 260, .left = 90, .right = 20, .scale = 0.2}};
  const ScoreMods mods[] = {{.softcap = 2},
                            {.softcap = 60},
                            {.alibi = true},
                            {.learned_sink = true},
                            {.softcap = 5, .alibi = true, .learned_sink = true}};
  for (const Case& c : cases) {
    for (const ScoreMods& modified : mods) {
      if (!kCaps && modified.softcap > 0) continue;
      AttentionProblem problem = problem_of<kType, Choice>(c);
      problem.score_mods = modified;
      CAPTURE(describe(problem));
      ProgramOptions options = Flash3::default_options(problem);
      CHECK(options[PassName::forward].tile == Choice::shape.tile);
      options.scan = c.left > 0 ? Scan::ascending : Scan::descending;
      judge_on_device(row, problem, options, Direction::forward, false);
    }
  }
}

/// Keys in pages smaller than a tile and larger, that end inside a page and at its end, with several items a
/// CTA: whatever the order of the pages, the bits are those of the instance whose keys lie in rows.
template <sm90::WgmmaType kType, int kHeadDim>
void check_pages() {
  using Paged = Flash3PagedChoice<kHeadDim>;
  using Rows = Flash3ForwardChoice<kHeadDim>;
  constexpr int kBackward = flash3_backward_shape(kHeadDim).head_dim;
  const Kernel rows = row_of<launch<kType, Rows, Flash3BackwardChoice<kBackward>>>();
  const Kernel paged = row_of<launch<kType, Paged, Flash3BackwardChoice<kBackward>>>();
  const Case cases[] = {{.heads_kv = 2, .seqlen_q = 300, .seqlen_k = 450, .right = 0, .scale = 0.125},
                        {.seqlen_q = 200, .seqlen_k = 512, .scale = -0.1, .less = 24},
                        {.heads = 4, .seqlen_q = 70, .seqlen_k = 333, .left = 90, .right = 20}};
  for (const Case& c : cases) {
    AttentionProblem problem = problem_of<kType, Rows>(c);
    problem.batch = 2;
    ProgramOptions options;
    options.set_tile(Direction::forward, Rows::shape.tile);
    options.scan = c.left > 0 ? Scan::ascending : Scan::descending;
    options.work_counter = true;
    TensorSet in_rows = testing::with_inputs(problem);
    rows.run(options, Direction::forward, in_rows, nullptr);
    for (const std::int64_t page_size : {8, 16, 64, 512}) {
      problem.page_size = page_size;
      CAPTURE(describe(problem));
      CHECK(Flash3::default_options(problem)[PassName::forward].tile == Paged::shape.tile);
      TensorSet in_pages = testing::with_inputs(problem);
      for (const std::uint64_t order : {98, 99}) {
        AttentionProblem other = problem;
        other.seed = order;
        in_pages.lay_out_in_pages(draw_kv_pages(other));
        paged.run(options, Direction::forward, in_pages, nullptr);
        for (const TensorName name : {TensorName::out, TensorName::lse})
          CHECK(testing::same_bits(in_pages[name], in_rows[name]));
      }
      judge_on_device(paged, problem, options, Direction::forward, false);
    }
  }
}

template <typename Choice>
void check_backward(const Case& c, DqStart start, int query_splits = 1) {
  constexpr auto kType = sm90::WgmmaType::bf16;
  using Forward =
      Flash3ForwardChoice<flash3_forward_shape(Choice::shape.head_dim, Flash3Height::low).head_dim, true>;
  CAPTURE(to_string(start));
  const AttentionProblem problem = problem_of<kType, Choice>(c);
  ProgramOptions options = Flash3::default_options(problem);
  options.set_tile(Direction::forward, Forward::shape.tile);
  options.set_tile(Direction::backward, Choice::shape.tile);
  options.backward = Choice::shape.ordered ? BackwardOrder::ordered : BackwardOrder::fused;
  options.dq_start = start;
  options.set_query_splits(query_splits);
  CAPTURE(query_splits);
  judge_on_device(row_of<launch<kType, Forward, Choice>>(), problem, options, Direction::backward, false);
}

/// Lengths round the tile's edges, masks, groups, scales, a head_dim that is padded up.
template <typename Choice>
void check_backward() {
  constexpr int kM = Choice::shape.tile.block_m, kN = Choice::shape.tile.block_n;
  for (const Case& c :
       {Case{1, 1, kM, kN}, Case{1, 1, 2 * kM, 2 * kN}, Case{2, 1, 2 * kM + 3, kN + 12},
        Case{2, 2, kM + 1, kN - 1, -1, 0}, Case{4, 2, 200, 300, -1, 0}, Case{2, 1, 300, 200, -1, 0, -0.09},
        Case{2, 1, 190, 2 * kN + 3, 40, 9},
        Case{3, 3, 70, 6 * kN, -1, 0},  // most kv tiles are seen by nobody
        Case{3, 3, 6 * kN, 5 * kN, -1, 0}, Case{2, 1, 1, 1}, Case{2, 1, 70, 90, -1, 5, 0.3, 24}}) {
    if (!Choice::shape.ordered) check_backward<Choice>(c, DqStart::cleared);
    check_backward<Choice>(c, Choice::shape.persistent ? DqStart::claimed : DqStart::in_order);
  }
}
/// Several CTAs share a kv tile: query heads, a group that they do not divide, queries of a head as well, of
/// which some have none; one without a group.
template <typename Choice>
void check_shared() {
  constexpr int kM = Choice::shape.tile.block_m, kN = Choice::shape.tile.block_n;
  constexpr DqStart kStart = Choice::shape.ordered ? DqStart::in_order : DqStart::cleared;
  check_backward<Choice>({4, 2, kM + 3, 2 * kN + 5, -1, 0}, kStart, 2);
  check_backward<Choice>({3, 1, 2 * kM, kN - 12, -1, -1, 0.09, 8}, kStart, 2);
  check_backward<Choice>({2, 1, 5 * kM + 1, kN + 1, -1, 0, -0.09}, kStart, 7);
  check_backward<Choice>({1, 1, 3 * kM, 3 * kN + 40, 90, 20}, kStart, 2);
}
template <int kHeadDim>
void check_both_orders() {
  check_backward<Flash3BackwardChoice<kHeadDim>>();
  check_shared<Flash3BackwardChoice<kHeadDim>>();
  check_backward<Flash3BackwardChoice<kHeadDim, true>>();
  check_shared<Flash3BackwardChoice<kHeadDim, true>>();
}

constexpr TensorName kGradients[] = {TensorName::dq, TensorName::dk, TensorName::dv};

/// An ordered pass over many kv tiles at once, each of one CTA or of several, has the same bits each time.
template <int kHeadDim>
void check_repeats(int query_splits) {
  AttentionProblem problem{
      .heads = 8, .heads_kv = 4, .seqlen_q = 2048, .seqlen_k = 2048, .head_dim = kHeadDim};
  problem.dtype = ElementType::bf16;
  problem.causal = true;
  const Kernel& row = find_gpu_kernel(Flash3::name).row;
  ProgramOptions options = row.default_options(problem);
  options.backward = BackwardOrder::ordered;
  options.set_query_splits(query_splits);
  CAPTURE(query_splits);
  TensorSet tensors = testing::with_inputs(problem);
  row.run(options, Direction::forward, tensors, nullptr);
  row.run(options, Direction::backward, tensors, nullptr);
  std::vector<Tensor> first;
  for (const TensorName name : kGradients) {
    const Tensor& tensor = tensors[name];
    first.emplace_back(tensor.shape(), tensor.dtype());
    std::memcpy(first.back().data(), tensor.data(), static_cast<std::size_t>(tensor.bytes()));
  }
  for (int run = 0; run < 10; ++run) {
    row.run(options, Direction::backward, tensors, nullptr);
    for (std::size_t i = 0; i < first.size(); ++i)
      CHECK(testing::same_bits(first[i], tensors[kGradients[i]]));
  }
}

}  // namespace flash3_choices_test

using namespace flash3_choices_test;

template <int kHeadDim, bool kLow = false>
using Forward = Flash3ForwardChoice<kHeadDim, kLow>;

TEST_CASE("flash3 forward: one small problem") {
  constexpr auto kType = sm90::WgmmaType::bf16;
  const Case c{.seqlen_q = 130, .seqlen_k = 140, .right = 0};
  const auto check = [&]<typename Choice>() {
    const AttentionProblem problem = problem_of<kType, Choice>(c);
    ProgramOptions options = Flash3::default_options(problem);
    options.set_tile(Direction::forward, Choice::shape.tile);
    judge_on_device(row_of<launch<kType, Choice, Flash3BackwardChoice<Choice::shape.head_dim>>>(), problem,
                    options, Direction::forward, false);
  };
  check.operator()<Forward<64>>();
  check.operator()<Forward<128>>();
}
TEST_CASE("flash3 forward: the edges of the tile, head_dim 64") {
  check_forward<sm90::WgmmaType::bf16, Forward<64>>();
  check_forward<sm90::WgmmaType::fp16, Forward<64, true>>();
  check_forward<sm90::WgmmaType::fp16, Flash3HalfChoice<64>>();
}
TEST_CASE("flash3 forward: the edges of the tile, head_dim 80, 96, 112 and 128") {
  check_forward<sm90::WgmmaType::bf16, Forward<80>>();
  check_forward<sm90::WgmmaType::bf16, Forward<112>>();
  check_forward<sm90::WgmmaType::fp16, Forward<96>>();
  check_forward<sm90::WgmmaType::fp16, Forward<128>>();
}
TEST_CASE("flash3 forward: the edges of the tile, head_dim 192, 224 and 256") {
  check_forward<sm90::WgmmaType::bf16, Forward<192>>();
  check_forward<sm90::WgmmaType::fp16, Forward<224>>();
  check_forward<sm90::WgmmaType::bf16, Forward<256>>();
}
TEST_CASE("flash3 forward: the edges of the tile, head_dim 160") {
  check_forward<sm90::WgmmaType::fp16, Forward<160>>();
}
TEST_CASE("flash3 forward: 64 rows whose keys two warpgroups share") {
  check_forward<sm90::WgmmaType::fp16, Forward<96, true>>();
  check_forward<sm90::WgmmaType::bf16, Forward<128, true>>();
  check_forward<sm90::WgmmaType::fp16, Forward<192, true>>();
  check_forward<sm90::WgmmaType::bf16, Forward<256, true>>();
}
TEST_CASE("flash3: tiles of tables") {
  for (const Direction direction : {Direction::forward, Direction::backward}) {
    check_tables<sm90::WgmmaType::fp16, 64>(direction);
    check_tables<sm90::WgmmaType::bf16, 128>(direction);
  }
}
TEST_CASE("flash3 forward: score modifiers") {
  check_mods<sm90::WgmmaType::bf16, Flash3ModsChoice<64>, false>();
  check_mods<sm90::WgmmaType::fp16, Flash3ModsChoice<128>, true>();
  check_mods<sm90::WgmmaType::bf16, Flash3ModsChoice<256>, true>();
}
TEST_CASE("flash3 forward: keys and values in pages") {
  check_pages<sm90::WgmmaType::bf16, 64>();
  check_pages<sm90::WgmmaType::fp16, 128>();
  check_pages<sm90::WgmmaType::bf16, 256>();
}
TEST_CASE("flash3 backward: head_dim 64") { check_both_orders<64>(); }
TEST_CASE("flash3 backward: persistent CTAs") {
  check_backward<Flash3BackwardChoice<64, false, true>>();
  check_backward<Flash3BackwardChoice<80, false, true>>();
  check_backward<Flash3BackwardChoice<96, false, true>>();
  check_backward<Flash3BackwardChoice<128, false, true>>();
}
TEST_CASE("flash3 backward: head_dim 160") { check_both_orders<160>(); }
TEST_CASE("flash3 backward: head_dim 80") { check_both_orders<80>(); }
TEST_CASE("flash3 backward: head_dim 96") { check_both_orders<96>(); }
TEST_CASE("flash3 backward: head_dim 128") { check_both_orders<128>(); }
TEST_CASE("flash3 backward: head_dim 192") { check_both_orders<192>(); }
TEST_CASE("flash3 backward: head_dim 256") { check_both_orders<256>(); }
/// So many queries, of which the last ones alone see keys, that dQ has two slots for nine kv tiles.
template <int kHeadDim>
void check_slots_in_turn(int heads) {
  using Choice = Flash3BackwardChoice<kHeadDim, true>;
  constexpr TileShape kTile = Choice::shape.tile;
  const Case c{heads, 1, kTile.block_m * kTile.block_n * 32 / 9 / heads, 9 * kTile.block_n - 5, -1, 0};
  const DqSlots slots = dq_slots(problem_of<sm90::WgmmaType::bf16, Choice>(c), Choice::shape.tile);
  CHECK(slots == DqSlots{2, 1});
  check_backward<Choice>(c, DqStart::in_order);
  check_backward<Choice>(c, DqStart::in_order, 2);
}
TEST_CASE("flash3 backward: kv tiles add in turn to slots of dQ") {
  check_slots_in_turn<64>(4);
  check_slots_in_turn<192>(1);
}
TEST_CASE("flash3 backward: the ordered pass repeats its bits") {
  for (const int query_splits : {1, 4}) {
    check_repeats<64>(query_splits);
    check_repeats<128>(query_splits);
    check_repeats<192>(query_splits);
    check_repeats<256>(query_splits);
  }
}
TEST_CASE("flash3: a launch that the device refuses is a device error that names the pass") {
  const auto refused = [] {
    launch_flash3_forward<sm90::WgmmaType::bf16, Forward<64>>(Flash3ForwardArguments{}, 0, nullptr);
  };
  CHECK_THROWS_WITH_AS(refused(), doctest::Contains("launching pass forward"), DeviceError);
}
