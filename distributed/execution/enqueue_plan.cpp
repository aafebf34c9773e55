// SPDX-License-Identifier: Apache-2.0
#include "distributed/execution/enqueue_plan.hpp"

#include <algorithm>
#include <map>

#include "common/nearest_names.hpp"

namespace tilescope {
namespace {

constexpr std::string_view kNames[] = {"copy-engine", "nccl"};

class EnqueuePlanner {
 public:
  EnqueuePlanner(const DistributedProgram& program, Transport transport)
      : program_(program), transport_(transport), plans_(static_cast<std::size_t>(program.ranks)) {
    const int peers = program.ranks - 1;
    for (RankPlan& plan : plans_) {
      plan.compute_streams = program.compute_streams;
      plan.streams = program.compute_streams + (transport == Transport::nccl ? std::min(1, peers) : peers);
    }
  }

  std::vector<RankPlan> plan() {
    for (int i = 0; i < static_cast<int>(program_.operations.size()); ++i) add(i);
    mark_awaited();
    return std::move(plans_);
  }

 private:
  const Operation& operation(int index) const { return program_.operations[static_cast<std::size_t>(index)]; }
  /// The copy, if that is what an operation is and the ranks differ.
  const Move* transfer(int index) const {
    const Move* const move = std::get_if<Move>(&operation(index).what);
    const bool between = move != nullptr && move->kind == MoveKind::copy &&
                         program_.rank_of(move->from) != program_.rank_of(move->to);
    return between ? move : nullptr;
  }
  int group_stream() const { return program_.compute_streams; }
  bool takes_part(int rank, int index) const {
    const Move* const move = transfer(index);
    if (move == nullptr) return program_.rank_of(operation(index)) == rank;
    if (program_.rank_of(move->from) == rank) return true;
    return transport_ == Transport::nccl && program_.rank_of(move->to) == rank;
  }
  int stream_of(int index) const {
    const Move* const move = transfer(index);
    if (move == nullptr) return operation(index).compute_stream;
    if (transport_ == Transport::nccl) return group_stream();
    const int distance = program_.rank_of(move->to) - program_.rank_of(move->from);
    return program_.compute_streams - 1 + (distance + program_.ranks) % program_.ranks;
  }

  void add(int index) {
    const bool grouped = transfer(index) != nullptr && transport_ == Transport::nccl;
    if (grouped && !joins_group(index)) {
      group_begin_ = index;
      group_.clear();
    }
    for (int rank = 0; rank < program_.ranks; ++rank) {
      if (!takes_part(rank, index)) continue;
      Enqueued& entry = grouped ? group_entry(rank) : append(rank, stream_of(index));
      entry.operations.push_back(index);
      for (const int wait : operation(index).waits) add_wait(rank, entry, wait);
    }
  }
  /// Copies of one step can go at once where none waits for an operation since the first of them.
  bool joins_group(int index) const {
    if (group_begin_ < 0 || operation(index).step != operation(group_begin_).step) return false;
    const auto& waits = operation(index).waits;
    return std::ranges::all_of(waits, [&](int wait) { return wait < group_begin_; });
  }
  Enqueued& append(int rank, int stream) {
    auto& enqueued = plans_[static_cast<std::size_t>(rank)].enqueued;
    enqueued.push_back({.operations = {}, .stream = stream, .waits = {}});
    return enqueued.back();
  }
  Enqueued& group_entry(int rank) {
    const auto found = group_.find(rank);
    auto& enqueued = plans_[static_cast<std::size_t>(rank)].enqueued;
    if (found != group_.end()) return enqueued[found->second];
    group_[rank] = enqueued.size();
    return append(rank, group_stream());
  }

  /// NCCL's two sides meet: each waits for what its own rank did, and that is enough.
  void add_wait(int rank, Enqueued& entry, int wait) {
    const Move* const move = transfer(wait);
    int where = program_.rank_of(operation(wait));
    if (transport_ == Transport::nccl && move != nullptr && takes_part(rank, wait)) where = rank;
    if (transport_ == Transport::nccl && where != rank) return;
    if (where == rank && stream_of(wait) == entry.stream) return;
    for (OperationEnd& earlier : entry.waits) {
      if (earlier.rank != where || stream_of(earlier.operation) != stream_of(wait)) continue;
      earlier.operation = std::max(earlier.operation, wait);
      return;
    }
    entry.waits.push_back({where, wait});
  }

  void mark_awaited() {
    std::vector<std::map<int, Enqueued*>> entries(plans_.size());
    for (std::size_t rank = 0; rank < plans_.size(); ++rank) {
      for (Enqueued& entry : plans_[rank].enqueued) {
        for (const int index : entry.operations) entries[rank][index] = &entry;
      }
    }
    for (const RankPlan& plan : plans_) {
      for (const Enqueued& entry : plan.enqueued) {
        for (const OperationEnd& end : entry.waits) {
          entries[static_cast<std::size_t>(end.rank)].at(end.operation)->awaited = true;
        }
      }
    }
  }

  const DistributedProgram& program_;
  Transport transport_;
  std::vector<RankPlan> plans_;
  int group_begin_ = -1;
  std::map<int, std::size_t> group_;  // by rank: the entry of the group
};

}  // namespace

std::string_view to_string(Transport transport) { return kNames[static_cast<std::size_t>(transport)]; }

Transport parse_transport(const std::string& name) {
  std::vector<std::string> names;
  for (const Transport transport : kTransports) {
    if (to_string(transport) == name) return transport;
    names.emplace_back(to_string(transport));
  }
  throw unknown_name("transport", name, names);
}

std::vector<RankPlan> enqueue_plans(const DistributedProgram& program, Transport transport) {
  return EnqueuePlanner(program, transport).plan();
}

}  // namespace tilescope
