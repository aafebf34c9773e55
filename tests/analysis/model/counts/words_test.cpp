// SPDX-License-Identifier: Apache-2.0
// Words by which CTAs agree, and narrow or packed operands, in the closed form.
#include <doctest/doctest.h>

#include "analysis/model/counts/closed_form.hpp"

namespace tilescope {
namespace {

TEST_CASE("a work counter is asked once for each block, and cleared once, by sectors of 32 bytes") {
  const AttentionProblem problem{.batch = 2, .heads = 3, .seqlen_q = 300, .seqlen_k = 300, .head_dim = 64};
  ProgramOptions options = ProgramOptions::with_tile({128, 64});
  const auto forward_bytes = [&] {
    return closed_form_bytes(build_programs(Algorithm::flash2, Direction::forward, problem, options).front());
  };
  const ClosedFormBytes plain = forward_bytes();
  options.work_counter = true;
  const ClosedFormBytes asked = forward_bytes();
  constexpr int kBlocks = 2 * 3 * 3;
  CHECK(asked.sm_l2_read_bytes - plain.sm_l2_read_bytes == 32 * kBlocks);
  CHECK(asked.sm_l2_write_bytes - plain.sm_l2_write_bytes == 32 * kBlocks + 4);
  CHECK(asked.compulsory_read_bytes == plain.compulsory_read_bytes);
  CHECK(asked.compulsory_write_bytes == plain.compulsory_write_bytes);
  for (const TileProgram& pass : build_programs(Algorithm::flash2, Direction::backward, problem, options)) {
    CHECK_FALSE(pass.work_counter);
  }
}

TEST_CASE("flags by which kv tiles begin the sums of dQ are asked and told by sectors of 32 bytes") {
  // All q tiles but two see no key, one sees one kv tile, and one both. So many sums have one slot.
  const AttentionProblem problem{.batch = 2,
                                 .heads = 3,
                                 .heads_kv = 1,
                                 .seqlen_q = 65536,
                                 .seqlen_k = 128,
                                 .head_dim = 64,
                                 .causal = true};
  ProgramOptions options = ProgramOptions::with_tile({64, 64});
  constexpr std::int64_t kHeads = 2 * 3, kVisits = 1 + 2, kBegun = 2, kTiles = 1024;
  struct Expected {
    BackwardOrder order;
    DqStart start;
    std::int64_t asked, told;  // a flag and head
  };
  for (const Expected& expected :
       {Expected{BackwardOrder::fused, DqStart::in_order, kVisits - kBegun, kBegun},
        Expected{BackwardOrder::fused, DqStart::claimed, kVisits, kVisits + kBegun},
        Expected{BackwardOrder::ordered, DqStart::in_order, kVisits - kBegun, kVisits}}) {
    options.backward = expected.order;
    options.dq_start = expected.start;
    options.dq_flags = 2;
    const auto programs = build_programs(Algorithm::flash2, Direction::backward, problem, options);
    REQUIRE(programs.size() == 3);
    const auto beyond_tensors = [](const TileProgram& program) {
      ReadWriteBytes bytes;
      const ClosedFormBytes all = closed_form_bytes(program);
      bytes = {all.sm_l2_read_bytes, all.sm_l2_write_bytes};
      for (const TensorTraffic& tensor : tensor_traffic(program)) {
        bytes.read_bytes -= tensor.load_bytes + tensor.filled_bytes;
        bytes.write_bytes -= tensor.store_bytes + tensor.reduce_bytes;
      }
      return bytes;
    };
    CHECK(beyond_tensors(programs[0]) == ReadWriteBytes{0, 2 * 4 * kTiles * kHeads});
    CHECK(beyond_tensors(programs[1]) ==
          ReadWriteBytes{32 * 2 * expected.asked * kHeads, 32 * 2 * expected.told * kHeads});
    CHECK(beyond_tensors(programs[2]) == ReadWriteBytes{});
    const std::int64_t sums = tensor_extent(problem, TensorName::dq_accum).bytes() / kTiles;  // of a q tile
    for (const TensorTraffic& tensor : tensor_traffic(programs[1])) {
      if (tensor.tensor != TensorName::dq_accum) continue;
      CHECK(tensor.store_bytes == kBegun * sums);
      CHECK(tensor.reduce_bytes == (kVisits - kBegun) * sums);
    }
    for (const TensorTraffic& tensor : tensor_traffic(programs[2])) {
      if (tensor.tensor == TensorName::dq_accum) CHECK(tensor.load_bytes == kBegun * sums);
    }
  }
}

TEST_CASE("kv tiles that have slots of dQ store, and ask no flags, the slots that hold something are added") {
  // Of 4 q tiles two see no key, one sees one kv tile, and one both.
  const AttentionProblem problem{
      .heads = 6, .heads_kv = 2, .seqlen_q = 256, .seqlen_k = 128, .head_dim = 64, .causal = true};
  ProgramOptions options = ProgramOptions::with_tile({64, 64});
  options.backward = BackwardOrder::ordered;
  options.set_query_splits(3);
  const auto programs = build_programs(Algorithm::flash2, Direction::backward, problem, options);
  REQUIRE(programs.size() == 4);
  const std::int64_t of_tile = 4 * 64 * 64 * problem.heads, visits = 3;
  const std::int64_t of_sums = 4 * 128 * 64 * problem.heads_kv * 3;
  for (const TileProgram& program : programs) {
    CHECK(program.words.later_sum == WordAccesses{});
    CHECK(closed_form_bytes(program).word_write_bytes == 0);
    for (const TensorTraffic& tensor : tensor_traffic(program)) {
      const bool makes = program.name == PassName::dkdvdq;
      const std::int64_t moved = makes ? tensor.store_bytes : tensor.load_bytes;
      if (tensor.tensor == TensorName::dq_accum) CHECK(moved == visits * of_tile);
      if (tensor.tensor == TensorName::dk_accum || tensor.tensor == TensorName::dv_accum)
        CHECK(moved == of_sums);
      CHECK(tensor.reduce_bytes == 0);
    }
  }
}

TEST_CASE("keys and values in fp8 move half the bytes of 16-bit ones, and all else the same") {
  AttentionProblem p{
      .batch = 3, .heads = 32, .heads_kv = 4, .seqlen_k = 1000, .head_dim = 128, .dtype = ElementType::bf16};
  ProgramOptions options = ProgramOptions::with_tile({16, 128});
  options.pack_gqa = true;
  const auto bytes = [&] {
    return closed_form_bytes(build_programs(Algorithm::flash2, Direction::forward, p, options).front());
  };
  const ClosedFormBytes wide = bytes();
  p.kv_dtype = ElementType::fp8e4m3;
  const ClosedFormBytes narrow = bytes();
  constexpr std::int64_t kElements = std::int64_t{2} * 3 * 4 * 1000 * 128;
  CHECK(wide.sm_l2_read_bytes - narrow.sm_l2_read_bytes == kElements);
  CHECK(wide.compulsory_read_bytes - narrow.compulsory_read_bytes == kElements);
  CHECK(wide.sm_l2_write_bytes == narrow.sm_l2_write_bytes);
}

TEST_CASE("a group packed into one tile loads K and V once where heads apart load them g times") {
  const AttentionProblem p{
      .batch = 3, .heads = 32, .heads_kv = 4, .seqlen_k = 1000, .head_dim = 128, .dtype = ElementType::bf16};
  ProgramOptions options = ProgramOptions::with_tile({64, 128});
  options.splits = {SplitPolicy::Kind::fixed, 256};
  std::int64_t loaded[2] = {}, compulsory[2] = {};
  for (const bool pack_gqa : {false, true}) {
    options.pack_gqa = pack_gqa;
    const TileProgram forward = build_programs(Algorithm::flash2, Direction::forward, p, options).front();
    for (const TensorTraffic& tensor : tensor_traffic(forward)) {
      if (!ends_at_padding(tensor.tensor)) continue;
      loaded[pack_gqa] += tensor.load_bytes;
      compulsory[pack_gqa] += tensor.compulsory_read_bytes;
    }
  }
  CHECK(loaded[true] == 2 * 3 * 4 * 1000 * 128 * 2);
  CHECK(loaded[false] == 8 * loaded[true]);
  CHECK(compulsory[true] == loaded[true]);
  CHECK(compulsory[false] == loaded[true]);
}

}  // namespace
}  // namespace tilescope
