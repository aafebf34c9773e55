// SPDX-License-Identifier: Apache-2.0
#include "distributed/schedule/distributed_program.hpp"

#include "common/nearest_names.hpp"

namespace tilescope {
namespace {

struct ScheduleText {
  std::string_view name, summary;
};
constexpr ScheduleText kSchedules[] = {
    {"ring", "K and V of contiguous shards rotate (Ring Attention, arXiv:2310.01889)"},
    {"zigzag", "the same; each rank owns a chunk from the front and one from the back, equal causal work"},
    {"striped", "the same; token t belongs to rank t mod P (Striped Attention, arXiv:2311.09431)"},
    {"all-gather", "all K and V to every rank, zigzag shards; one launch or two (Llama 3, arXiv:2407.21783)"},
    {"all-gather-heads", "the same by groups of heads: launches begin when the first heads have come"},
    {"ulysses", "all-to-all: from tokens to heads and back (DeepSpeed-Ulysses, arXiv:2309.14509)"},
    {"ulysses-heads", "the same by groups of heads: copies of a group hide behind the launches of others"},
    {"ulysses-ring", "heads inside groups of ranks, a zigzag ring across them (USP, arXiv:2405.07719)"}};

}  // namespace

std::string_view to_string(LinkSchedule schedule) {
  return kSchedules[static_cast<std::size_t>(schedule)].name;
}
std::string_view summary_of(LinkSchedule schedule) {
  return kSchedules[static_cast<std::size_t>(schedule)].summary;
}

LinkSchedule parse_link_schedule(const std::string& name) {
  return static_cast<LinkSchedule>(&find_named(kSchedules, "schedule", name) - &kSchedules[0]);
}

bool has_query_rows(TensorName tensor) { return tensor_extent({}, tensor).indexing == TileIndexing::m; }

bool is_sum(TensorName tensor) {
  return tensor == TensorName::out_accum || tensor == TensorName::dq_accum ||
         tensor == TensorName::dk_accum || tensor == TensorName::dv_accum;
}

int DistributedProgram::rank_of(const Operation& operation) const {
  if (const Attend* const attend = std::get_if<Attend>(&operation.what)) return attend->rank;
  return rank_of(std::get<Move>(operation.what).from);
}

std::int64_t DistributedProgram::bytes(const BufferBlock& block) const {
  const Buffer& buffer = buffer_of(block);
  return problem.batch * block.heads.count() * block.rows.count() * buffer.cols * element_bytes(buffer.dtype);
}

std::int64_t DistributedProgram::bytes(const Buffer& buffer) const {
  return problem.batch * buffer.heads * buffer.rows * buffer.cols * element_bytes(buffer.dtype);
}

AttentionProblem DistributedProgram::slice_problem(const Attend& attend) const {
  AttentionProblem part = problem;
  part.heads = buffers[static_cast<std::size_t>(attend.buffer(TensorName::q))].heads;
  part.heads_kv = buffers[static_cast<std::size_t>(attend.buffer(TensorName::k))].heads;
  part.seqlen_q = attend.slice.q_rows.count();
  part.seqlen_k = attend.slice.kv_rows.count();
  part.causal = false;
  if (attend.slice.diagonal) {
    // Masks are aligned bottom-right; slices are cropped so that none lies left of that.
    part.window_right = *attend.slice.diagonal - (part.seqlen_k - part.seqlen_q);
    part.causal = part.window_right == 0;
    if (part.causal) part.window_right = -1;
  }
  return part;
}

}  // namespace tilescope
