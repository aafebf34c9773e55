// SPDX-License-Identifier: Apache-2.0
// What a rank computes on its device: launches of the kernel on slices, and the sums between them.
#include <algorithm>

#include "cpu_ref/primitives/kernel_scale.hpp"
#include "distributed/devices/device_rank.hpp"
#include "gpu/launch/pass_arguments.hpp"

namespace tilescope {

using enum TensorName;

namespace {

DeviceTensor& of(KernelArguments& arguments, TensorName name) {
  return arguments.tensors[static_cast<std::size_t>(name)];
}

}  // namespace

void DeviceRank::prepare(int operation, const Attend& attend, int compute_stream) {
  const AttentionProblem problem = program_.slice_problem(attend);
  const Kernel& row = shared_.kernel->row;
  auto launch = std::make_unique<Launch>();
  launch->programs = row.programs(program_.direction, problem, options_with_shared_dq(row, problem));
  launch->arguments.counter = static_cast<WorkCounter*>(scratch_[at(compute_stream)].counter.data());
  for (const TensorName name : {q, k, v, out, lse, dout, dq_accum}) {
    if (attend.buffer(name) < 0) continue;
    const IndexRange& rows = has_query_rows(name) ? attend.slice.q_rows : attend.slice.kv_rows;
    of(launch->arguments, name) = rows_from(attend.buffer(name), rows.begin);
  }
  const LaunchPlan& plan = shared_.accumulation.launches[at(operation)];
  program_.direction == Direction::forward ? place_outputs(attend, plan, compute_stream, *launch)
                                           : place_gradients(attend, plan, compute_stream, *launch);
  launches_[operation] = std::move(launch);
}

void DeviceRank::place_outputs(const Attend& attend, const LaunchPlan& plan, int compute_stream,
                               Launch& launch) {
  const Slice& slice = attend.slice;
  if (plan.out == OutputPlacement::result) {
    const int result = shared_.accumulation.result[at(attend.buffer(out_accum))];
    of(launch.arguments, out) = rows_from(result, slice.q_rows.begin);
    return;
  }
  const Buffer& queries = program_.buffers[at(attend.buffer(q))];
  const std::int64_t batch = program_.problem.batch, rows = slice.q_rows.count();
  const std::int64_t lse_bytes = batch * queries.heads * rows * 4,
                     out_bytes = batch * queries.heads * rows * row_bytes(queries);
  const bool own = plan.out == OutputPlacement::part;
  Scratch& scratch = scratch_[at(compute_stream)];
  DeviceBuffer& part_out = own ? launch.part_out : scratch.out;
  DeviceBuffer& part_lse = own ? launch.part_lse : scratch.lse;
  // Scratch has room for any launch's rows, so that whichever comes first makes it.
  const std::int64_t most = most_bytes(q, compute_stream);
  if (part_out.bytes() == 0) part_out = DeviceBuffer("part of out", own ? out_bytes : most);
  if (part_lse.bytes() == 0)
    part_lse = DeviceBuffer("part of lse", own ? lse_bytes : most / row_bytes(queries) * 4);
  launch.part = {packed(part_out, queries.heads, rows, queries.cols),
                 packed(part_lse, queries.heads, rows, 1), slice.q_rows.begin, rows};
  of(launch.arguments, out) = launch.part.out;
  of(launch.arguments, lse) = launch.part.lse;
}

void DeviceRank::place_gradients(const Attend& attend, const LaunchPlan& plan, int compute_stream,
                                 Launch& launch) {
  const Buffer& lse_rows = program_.buffers[at(attend.buffer(lse))];
  DeviceBuffer& of_lse = deltas_[attend.buffer(lse)];
  if (of_lse.bytes() == 0) of_lse = DeviceBuffer("delta", program_.bytes(lse_rows));
  DeviceTensor delta_rows = tensor(attend.buffer(lse));
  delta_rows.data = static_cast<float*>(of_lse.data()) + attend.slice.q_rows.begin;
  of(launch.arguments, delta) = delta_rows;

  const Buffer& keys = program_.buffers[at(attend.buffer(k))];
  const auto place = [&](TensorName name, TensorName sums, OutputPlacement placement, DeviceBuffer& memory) {
    if (placement == OutputPlacement::result) {
      of(launch.arguments, name) =
          rows_from(shared_.accumulation.result[at(attend.buffer(sums))], attend.slice.kv_rows.begin);
      return;
    }
    if (memory.bytes() < program_.bytes(keys))
      memory = DeviceBuffer("part of " + std::string(to_string(name)), most_bytes(k, compute_stream));
    of(launch.arguments, name) = packed(memory, keys.heads, attend.slice.kv_rows.count(), keys.cols);
  };
  place(dk, dk_accum, plan.dk, scratch_[at(compute_stream)].dk);
  place(dv, dv_accum, plan.dv, scratch_[at(compute_stream)].dv);
}

std::int64_t DeviceRank::most_bytes(TensorName name, int compute_stream) const {
  std::int64_t most = 0;
  for (const Operation& operation : program_.operations) {
    const Attend* const attend = std::get_if<Attend>(&operation.what);
    if (attend == nullptr || attend->rank != rank_ || operation.compute_stream != compute_stream) continue;
    most = std::max(most, program_.bytes(program_.buffers[at(attend->buffer(name))]));
  }
  return most;
}

void DeviceRank::attend(int operation, const Attend& attend, int compute_stream) {
  const Launch& launch = *launches_.at(operation);
  const LaunchPlan& plan = shared_.accumulation.launches[at(operation)];
  for (const TileProgram& program : launch.programs) {
    KernelArguments arguments = pass_arguments(program);
    arguments.tensors = launch.arguments.tensors;
    arguments.counter = launch.arguments.counter;
    if (program.name == PassName::convert) continue;  // sums are rounded when all have added to them
    if (program.name == PassName::delta) {
      if (!plan.makes_delta) continue;
      of(arguments, dq_accum) = {};  // cleared once, not by each launch
    }
    shared_.kernel->launch(program, arguments, stream(compute_stream));
    check_cuda(cudaGetLastError(), "launching " + std::string(shared_.kernel->row.name));
  }
  if (program_.direction == Direction::forward) {
    if (plan.out == OutputPlacement::add)
      merge(attend.buffer(lse), tensor(attend.buffer(out_accum)), {&launch}, true, compute_stream);
    return;
  }
  const auto widen = [&](TensorName name, TensorName sums, OutputPlacement placement) {
    if (placement != OutputPlacement::store && placement != OutputPlacement::add) return;
    const BufferBlock block{
        attend.buffer(sums), {0, program_.buffers[at(attend.buffer(sums))].heads}, attend.slice.kv_rows};
    launch_add_part(extent(block), tensor(block), launch.arguments[name], program_.problem.dtype,
                    placement == OutputPlacement::store, stream(compute_stream));
  };
  widen(dk, dk_accum, plan.dk);
  widen(dv, dv_accum, plan.dv);
}

void DeviceRank::merge(int lse_buffer, const DeviceTensor& target, const std::vector<const Launch*>& parts,
                       bool fp32_target, int compute_stream) {
  const Buffer& rows = program_.buffers[at(lse_buffer)];
  MergeArguments arguments;
  arguments.extent = {program_.problem.batch, rows.heads, rows.rows, program_.problem.head_dim};
  arguments.out = target;
  arguments.lse = tensor(lse_buffer);
  for (const Launch* part : parts) arguments.parts[at(arguments.count++)] = part->part;
  launch_merge(arguments, program_.problem.dtype, fp32_target, stream(compute_stream));
}

void DeviceRank::round(int operation, const Move& move, int compute_stream) {
  const MovePlan& plan = shared_.accumulation.moves[at(operation)];
  if (plan.nothing) return;
  if (!plan.parts.empty()) {
    std::vector<const Launch*> parts;
    for (const int part : plan.parts) parts.push_back(launches_.at(part).get());
    const Attend& last = std::get<Attend>(program_.operations[at(plan.parts.back())].what);
    return merge(last.buffer(lse), tensor(move.to.buffer), parts, false, compute_stream);
  }
  const bool queries = program_.buffer_of(move.from).tensor == dq_accum;
  const float factor = queries ? KernelScale(program_.problem).signed_scale : 1.0f;
  launch_round(extent(move.from), tensor(move.to), tensor(move.from), program_.problem.dtype, factor,
               stream(compute_stream));
}

void DeviceRank::add(int operation, const Move& move, int compute_stream) {
  const MovePlan& plan = shared_.accumulation.moves[at(operation)];
  if (plan.nothing) return;
  if (plan.parts.empty())
    return launch_add_sums(extent(move.from), tensor(move.to), tensor(move.from), plan.clears_source,
                           stream(compute_stream));
  const int part = plan.parts.front();
  const Attend& attend = std::get<Attend>(program_.operations[at(part)].what);
  BufferBlock target = move.to;
  target.rows = {move.to.rows.begin + attend.slice.kv_rows.begin,
                 move.to.rows.begin + attend.slice.kv_rows.end};
  const TensorName name = program_.buffer_of(move.to).tensor == dk_accum ? dk : dv;
  launch_add_part(extent(target), tensor(target), launches_.at(part)->arguments[name], program_.problem.dtype,
                  false, stream(compute_stream));
}

void DeviceRank::move(int operation, const Move& move, int compute_stream) {
  switch (move.kind) {
    case MoveKind::copy:
      return copy(move, compute_stream);
    case MoveKind::add:
      return add(operation, move, compute_stream);
    case MoveKind::round:
      return round(operation, move, compute_stream);
  }
}

}  // namespace tilescope
