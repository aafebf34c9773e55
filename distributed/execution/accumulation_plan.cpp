// SPDX-License-Identifier: Apache-2.0
#include "distributed/execution/accumulation_plan.hpp"

#include <algorithm>
#include <iterator>
#include <set>

namespace tilescope {
namespace {

using enum TensorName;

/// Rows that something has reached: ranges that ascend and do not touch.
class RowSet {
 public:
  bool overlaps(const IndexRange& range) const {
    return std::ranges::any_of(ranges_, [&](const IndexRange& r) { return r.overlaps(range); });
  }
  bool contains(const IndexRange& range) const {
    return std::ranges::any_of(ranges_, [&](const IndexRange& r) { return r.contains(range); });
  }
  void add(IndexRange range) {
    std::erase_if(ranges_, [&](const IndexRange& r) {
      const bool touches = r.begin <= range.end && range.begin <= r.end;
      if (touches) range = {std::min(r.begin, range.begin), std::max(r.end, range.end)};
      return touches;
    });
    ranges_.push_back(range);
  }

 private:
  std::vector<IndexRange> ranges_;
};

/// One operation's use of a buffer of sums.
struct Use {
  enum Kind { launch, added_from, added_to, copied_from, copied_to, rounded } kind;
  int operation;
};

class AccumulationPlanner {
 public:
  explicit AccumulationPlanner(const DistributedProgram& program)
      : program_(program), uses_(program.buffers.size()) {
    plan_.launches.resize(program.operations.size());
    plan_.moves.resize(program.operations.size());
    plan_.result.assign(program.buffers.size(), -1);
    plan_.exists.assign(program.buffers.size(), true);
  }

  AccumulationPlan plan() {
    for (int i = 0; i < static_cast<int>(program_.operations.size()); ++i) note_uses(i);
    for (int buffer = 0; buffer < static_cast<int>(program_.buffers.size()); ++buffer) {
      switch (program_.buffers[at(buffer)].tensor) {
        case out_accum:
          plan_outputs(buffer);
          break;
        case dq_accum:
          plan_.cleared.push_back(buffer);
          break;
        case dk_accum:
        case dv_accum:
          plan_gradients(buffer);
          break;
        default:
          break;
      }
    }
    program_.direction == Direction::forward ? plan_statistics() : plan_delta();
    return std::move(plan_);
  }

 private:
  const Attend& launch(int operation) const {
    return std::get<Attend>(program_.operations[at(operation)].what);
  }
  bool covers(int buffer, const IndexRange& rows) const {
    return rows.contains({0, program_.buffers[at(buffer)].rows});
  }
  OutputPlacement& placement(int operation, TensorName tensor) {
    LaunchPlan& of = plan_.launches[at(operation)];
    return tensor == out_accum ? of.out : tensor == dk_accum ? of.dk : of.dv;
  }

  void note_uses(int index) {
    const Operation& operation = program_.operations[at(index)];
    if (const Attend* const launch = std::get_if<Attend>(&operation.what)) {
      for (const TensorName sums : {out_accum, dk_accum, dv_accum}) {
        if (launch->buffer(sums) >= 0) uses_[at(launch->buffer(sums))].push_back({Use::launch, index});
      }
      return;
    }
    const Move& move = std::get<Move>(operation.what);
    const bool copy = move.kind == MoveKind::copy;
    if (move.kind == MoveKind::round) plan_.result[at(move.from.buffer)] = move.to.buffer;
    uses_[at(move.from.buffer)].push_back({copy                           ? Use::copied_from
                                           : move.kind == MoveKind::round ? Use::rounded
                                                                          : Use::added_from,
                                           index});
    if (move.kind != MoveKind::round)
      uses_[at(move.to.buffer)].push_back({copy ? Use::copied_to : Use::added_to, index});
  }

  /// The first launch of some rows writes the result itself; the others' parts are merged into it where the
  /// program rounds the sums.
  void plan_outputs(int sums) {
    RowSet reached, written;
    std::vector<int> parts, launches;
    int round = -1;
    for (const Use& use : uses_[at(sums)]) {
      if (use.kind == Use::rounded) round = use.operation;
      if (use.kind != Use::launch) continue;
      const IndexRange rows = launch(use.operation).slice.q_rows;
      const bool first = !reached.overlaps(rows);
      placement(use.operation, out_accum) = first ? OutputPlacement::result : OutputPlacement::part;
      first ? written.add(rows) : parts.push_back(use.operation);
      launches.push_back(use.operation);
      reached.add(rows);
    }
    const IndexRange every{0, program_.buffers[at(sums)].rows};
    const bool all = reached.contains(every);
    const bool in_parts = static_cast<int>(parts.size()) <= kMostParts;
    if (!all) plan_.cleared.push_back(in_parts ? plan_.result[at(sums)] : sums);
    if (written.contains(every) && in_parts) written_.insert(launch(launches.front()).buffer(lse));
    if (in_parts) {
      plan_.exists[at(sums)] = false;
      plan_.moves[at(round)].nothing = parts.empty();
      plan_.moves[at(round)].parts = parts;
      return;
    }
    for (const int operation : launches) placement(operation, out_accum) = OutputPlacement::add;
  }

  void plan_statistics() {
    for (int buffer = 0; buffer < static_cast<int>(program_.buffers.size()); ++buffer) {
      if (program_.buffers[at(buffer)].tensor == lse && !written_.contains(buffer))
        plan_.emptied.push_back(buffer);
    }
  }

  void plan_gradients(int sums) {
    const std::vector<Use>& uses = uses_[at(sums)];
    if (uses.empty()) return;
    if (is_whole_result(sums)) {
      placement(uses[0].operation, program_.buffers[at(sums)].tensor) = OutputPlacement::result;
      plan_.moves[at(uses[1].operation)].nothing = true;
      plan_.exists[at(sums)] = false;
    } else if (are_parts(uses)) {
      plan_parts(sums);
    } else {
      plan_sums(sums);
    }
  }
  /// One launch of all rows, rounded.
  bool is_whole_result(int sums) const {
    const std::vector<Use>& uses = uses_[at(sums)];
    return uses.size() == 2 && uses[0].kind == Use::launch && uses[1].kind == Use::rounded &&
           covers(sums, launch(uses[0].operation).slice.kv_rows);
  }
  /// Each launch is followed by the addition that takes it.
  static bool are_parts(const std::vector<Use>& uses) {
    for (std::size_t i = 0; i < uses.size(); ++i) {
      if (uses[i].kind == Use::added_from) continue;
      const bool taken = i + 1 < uses.size() && uses[i + 1].kind == Use::added_from;
      if (uses[i].kind != Use::launch || !taken) return false;
    }
    return true;
  }
  void plan_parts(int sums) {
    const std::vector<Use>& uses = uses_[at(sums)];
    plan_.exists[at(sums)] = false;
    for (std::size_t i = 0; i < uses.size(); ++i) {
      if (uses[i].kind == Use::launch) {
        placement(uses[i].operation, program_.buffers[at(sums)].tensor) = OutputPlacement::part;
        continue;
      }
      MovePlan& taking = plan_.moves[at(uses[i].operation)];
      taking.nothing = i == 0 || uses[i - 1].kind != Use::launch;
      if (!taking.nothing) taking.parts = {uses[i - 1].operation};
    }
  }
  void plan_sums(int sums) {
    const std::vector<Use>& uses = uses_[at(sums)];
    const bool stored = uses[0].kind == Use::launch && covers(sums, launch(uses[0].operation).slice.kv_rows);
    if (stored) {
      placement(uses[0].operation, program_.buffers[at(sums)].tensor) = OutputPlacement::store;
    } else if (uses[0].kind != Use::copied_to) {
      plan_.cleared.push_back(sums);
    }
    for (std::size_t i = 0; i + 1 < uses.size(); ++i) {
      if (uses[i].kind == Use::added_from) plan_.moves[at(uses[i].operation)].clears_source = true;
    }
  }

  void plan_delta() {
    std::vector<RowSet> made(program_.buffers.size());  // by buffer of lse
    for (std::size_t i = 0; i < program_.operations.size(); ++i) {
      const Attend* const launch = std::get_if<Attend>(&program_.operations[i].what);
      if (launch == nullptr) continue;
      RowSet& rows = made[at(launch->buffer(lse))];
      plan_.launches[i].makes_delta = !rows.contains(launch->slice.q_rows);
      rows.add(launch->slice.q_rows);
    }
  }

  const DistributedProgram& program_;
  std::vector<std::vector<Use>> uses_;  // by buffer of sums, in the order of the program
  std::set<int> written_;               // buffers of lse: launches write all rows before something reads them
  AccumulationPlan plan_;
};

}  // namespace

AccumulationPlan plan_accumulation(const DistributedProgram& program) {
  return AccumulationPlanner(program).plan();
}

void drop_waits_between_parts(DistributedProgram& program, const AccumulationPlan& plan) {
  if (program.direction != Direction::forward) return;
  const auto lands_alone = [&](int operation) {
    return std::holds_alternative<Attend>(program.operations[at(operation)].what) &&
           plan.launches[at(operation)].out != OutputPlacement::add;
  };
  std::vector<std::vector<int>> dropped(program.operations.size());
  for (int i = 0; i < static_cast<int>(program.operations.size()); ++i) {
    std::set<int> waits;
    for (const int wait : program.operations[at(i)].waits) {
      waits.insert(wait);
      waits.insert(dropped[at(wait)].begin(), dropped[at(wait)].end());
    }
    if (lands_alone(i)) {
      std::copy_if(waits.begin(), waits.end(), std::back_inserter(dropped[at(i)]), lands_alone);
      std::erase_if(waits, lands_alone);
    }
    program.operations[at(i)].waits.assign(waits.begin(), waits.end());
  }
}

}  // namespace tilescope
