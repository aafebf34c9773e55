// SPDX-License-Identifier: Apache-2.0
#include "cpu_ref/judge/locate.hpp"

#include <algorithm>
#include <cmath>
#include <sstream>

#include "cpu_ref/judge/matrix_check.hpp"
#include "cpu_ref/judge/tile_replay.hpp"
#include "cpu_ref/schedule/cta_walk.hpp"

namespace tilescope {
namespace {

template <typename... Parts>
std::string text(const Parts&... parts) {
  std::ostringstream stream;
  stream.precision(9);
  (stream << ... << parts);
  return stream.str();
}

std::string describe_access(const TileAccess& access) {
  return text(to_string(access.kind), " ", to_string(access.tensor), " of head ", access.head, ", m_block ",
              access.m_block, ", n_block ", access.n_block, ", ", access.bytes, " bytes");
}

/// Position in a pass: the CTA, and how far it has come.
struct Place {
  std::size_t cta = 0, index = 0;
};

/// Calls compare(state, place) for each state in issue order until it gives a divergence.
template <typename Compare>
std::optional<Divergence> walk_states(const PassLog& log, Compare&& compare) {
  for (std::size_t cta = 0; cta < log.ctas.size(); ++cta) {
    const std::vector<TileState>& states = log.ctas[cta].states;
    for (std::size_t index = 0; index < states.size(); ++index) {
      if (auto divergence = compare(states[index], Place{cta, index})) return divergence;
    }
  }
  return std::nullopt;
}

Divergence at_tile(const TileState& state, const char* quantity, std::string detail) {
  return {state.pass, state.batch, state.head, state.m_block, state.n_block, quantity, std::move(detail)};
}

/// Set when the log is of another pass or grid than the program's.
std::optional<Divergence> other_pass(const TileProgram& program, const PassLog& log) {
  if (log.pass == program.name && static_cast<std::int64_t>(log.ctas.size()) == program.num_ctas()) {
    return std::nullopt;
  }
  return Divergence{
      .pass = program.name,
      .quantity = "access",
      .detail = text("the kernel ran pass ", to_string(log.pass), " with ", log.ctas.size(),
                     " CTAs, its program has ", to_string(program.name), " with ", program.num_ctas())};
}

/// The q and kv tile that an element of an output lies in; the direction's own tile shape.
Divergence at_element(TensorName name, const Shape& shape, std::int64_t index, TileShape tile,
                      PassName pass) {
  Divergence divergence;
  divergence.pass = pass;
  divergence.quantity = to_string(name);
  const std::int64_t row = index / shape.cols % shape.rows, plane = index / shape.cols / shape.rows;
  divergence.batch = static_cast<int>(plane / shape.heads);
  divergence.head = static_cast<int>(plane % shape.heads);
  const bool by_key = name == TensorName::dk || name == TensorName::dv;
  (by_key ? divergence.n_block : divergence.m_block) =
      static_cast<int>(row / (by_key ? tile.block_n : tile.block_m));
  return divergence;
}

/// The tile of standard attention's matrices that holds the first wrong element.
std::optional<Divergence> first_wrong_matrix_tile(const TileProgram& program, const TensorSet& tensors) {
  const std::optional<WrongElement> wrong = first_wrong_element(program, tensors);
  if (!wrong) return std::nullopt;
  return Divergence{program.name,
                    static_cast<int>(wrong->batch),
                    static_cast<int>(wrong->head),
                    static_cast<int>(wrong->query) / program.tile.block_m,
                    static_cast<int>(wrong->key) / program.tile.block_n,
                    std::string(to_string(wrong->matrix)),
                    text("at query ", wrong->query, ", key ", wrong->key, " it is ", wrong->value, ", exact ",
                         wrong->expected, " +- ", wrong->tolerance)};
}

/// The first output of `direction` that the judge refuses, after all tiles were found right.
std::optional<std::string> first_wrong_output(const Reference& reference, Direction direction,
                                              const std::vector<TileProgram>& programs) {
  const Verdict verdict = reference.judge(direction);
  for (TensorName name : output_tensors(direction)) {
    const auto found = std::find_if(verdict.tensors.begin(), verdict.tensors.end(),
                                    [name](const TensorVerdict& tensor) { return tensor.tensor == name; });
    if (found->passed) continue;
    const TileProgram& last = programs.back();
    const TensorExtent extent = tensor_extent(reference.problem(), name);
    const Shape shape{extent.batch, extent.heads, extent.rows, extent.cols};
    Divergence divergence = at_element(name, shape, found->error.worst_index, last.tile, last.name);
    divergence.detail =
        text("after every tile was right, ", describe_index(shape, found->error.worst_index), " is ",
             found->error.worst_actual, ", exact ", found->error.worst_expected, ", bound ", found->bound);
    return describe(divergence, last);
  }
  return std::nullopt;
}

}  // namespace

std::string describe(const Divergence& divergence, const TileProgram& program) {
  const auto range = [](const char* what, int block, int size, std::int64_t length) {
    const std::int64_t first = std::int64_t{block} * size;
    return text(" (", what, " ", first, " ... ", std::min<std::int64_t>(length, first + size) - 1, ")");
  };
  std::string where =
      text("pass ", to_string(divergence.pass), ", batch ", divergence.batch, ", head ", divergence.head);
  if (divergence.m_block >= 0) {
    where += text(", m_block ", divergence.m_block,
                  range("queries", divergence.m_block, program.tile.block_m, program.problem.seqlen_q));
  }
  if (divergence.n_block >= 0) {
    where += text(", n_block ", divergence.n_block,
                  range("keys", divergence.n_block, program.tile.block_n, program.problem.seqlen_k));
  }
  return text(where, ": ", divergence.quantity, ": ", divergence.detail);
}

std::optional<Divergence> first_wrong_access(const TileProgram& program, const PassLog& log) {
  if (auto wrong_pass = other_pass(program, log)) return wrong_pass;
  Divergence divergence{.pass = program.name, .quantity = "access", .detail = {}};
  for (std::size_t cta = 0; cta < log.ctas.size(); ++cta) {
    const std::vector<TileAccess>& seen = log.ctas[cta].accesses;
    std::vector<TileAccess> listed;
    for_each_access(program, static_cast<std::int64_t>(cta),
                    [&listed](const TileAccess& access) { listed.push_back(access); });
    const auto [first_seen, first_listed] =
        std::mismatch(seen.begin(), seen.end(), listed.begin(), listed.end());
    if (first_seen == seen.end() && first_listed == listed.end()) continue;
    const TileAccess& where = first_listed != listed.end() ? *first_listed : *first_seen;
    divergence.batch = where.batch;
    divergence.head = where.head;
    divergence.m_block = where.m_block;
    divergence.n_block = where.n_block;
    divergence.detail =
        text("access ", first_seen - seen.begin(), " of CTA ", cta, " is ",
             first_seen == seen.end() ? "missing" : describe_access(*first_seen), ", the program has ",
             first_listed == listed.end() ? "none" : describe_access(*first_listed));
    return divergence;
  }
  return std::nullopt;
}

std::optional<Divergence> first_wrong_visit(const TileProgram& program, const PassLog& log) {
  if (auto wrong_pass = other_pass(program, log)) return wrong_pass;
  if (program.matmuls == 0) return std::nullopt;
  for (std::size_t cta = 0; cta < log.ctas.size(); ++cta) {
    const std::vector<TileState>& seen = log.ctas[cta].states;
    std::size_t visits = 0;
    CtaWalk walk(program, static_cast<std::int64_t>(cta));
    const auto wrong = [&](const AccessGroup& at, std::string detail) {
      return Divergence{program.name, at.batch, at.head, at.m_block, at.n_block, "visit", std::move(detail)};
    };
    for (AccessGroup group; walk.next(group);) {
      if (group.m_block < 0 || group.n_block < 0) continue;  // prologue or epilogue
      if (visits == seen.size()) {
        return wrong(group, text("CTA ", cta, " visits ", visits, " tiles and not this one"));
      }
      const TileState& state = seen[visits++];
      if (state.batch == group.batch && state.head == group.head && state.m_block == group.m_block &&
          state.n_block == group.n_block) {
        continue;
      }
      return wrong(group, text("visit ", visits - 1, " of CTA ", cta, " is to batch ", state.batch, ", head ",
                               state.head, ", m_block ", state.m_block, ", n_block ", state.n_block));
    }
    if (visits == seen.size()) continue;
    const TileState& state = seen[visits];
    return at_tile(state, "visit",
                   text("CTA ", cta, " visits it as number ", visits, ", after its last tile"));
  }
  return std::nullopt;
}

std::optional<Divergence> first_wrong_state(const TileProgram& program, const PassLog& log,
                                            const TensorSet& tensors) {
  if (!TileReplay::can_replay(program)) return std::nullopt;
  TileReplay replay(program, tensors);
  return walk_states(log, [&](const TileState& state, const Place&) -> std::optional<Divergence> {
    const ExactTileState exact = replay.step(state);
    for (const TileQuantity& quantity : kTileQuantities) {
      const double observed = state.*quantity.observed;
      const ExactSum& expected = exact.*quantity.exact;
      if (expected.admits(observed)) continue;
      return at_tile(
          state, quantity.name,
          text("the tile's sum is ", observed, ", exact ", expected.value, " +- ", expected.tolerance));
    }
    return std::nullopt;
  });
}

std::optional<Divergence> first_difference(const TileProgram& program, const PassLog& log,
                                           const PassLog& mirror, const TensorSet& tensors) {
  if (!TileReplay::can_replay(program)) return std::nullopt;
  TileReplay replay(program, tensors);
  return walk_states(log, [&](const TileState& state, const Place& place) -> std::optional<Divergence> {
    const ExactTileState exact = replay.step(state);
    if (place.cta >= mirror.ctas.size() || place.index >= mirror.ctas[place.cta].states.size()) {
      return at_tile(state, "access", "the mirror does not visit this tile");
    }
    const TileState& other = mirror.ctas[place.cta].states[place.index];
    if (state.head != other.head || state.m_block != other.m_block || state.n_block != other.n_block) {
      return at_tile(state, "access",
                     text("the mirror visits head ", other.head, ", m_block ", other.m_block, ", n_block ",
                          other.n_block, " here"));
    }
    for (const TileQuantity& quantity : kTileQuantities) {
      const double observed = state.*quantity.observed, expected = other.*quantity.observed;
      const double tolerance = (exact.*quantity.exact).tolerance;
      if (ExactSum{expected, tolerance}.admits(observed)) continue;
      return at_tile(state, quantity.name,
                     text("the tile's sum is ", observed, ", the mirror's ", expected, " +- ", tolerance));
    }
    return std::nullopt;
  });
}

std::optional<std::string> first_divergence(const Reference& reference, const Kernel& kernel,
                                            const ProgramOptions& options, Direction direction,
                                            const TileObserver& observer) {
  auto log = observer.passes.begin();
  for (Direction step : {Direction::forward, Direction::backward}) {
    if (step == Direction::backward && direction == Direction::forward) break;
    const std::vector<TileProgram> programs = kernel.programs(step, reference.problem(), options);
    for (const TileProgram& program : programs) {
      if (log == observer.passes.end()) return text("pass ", to_string(program.name), " was not run");
      std::optional<Divergence> divergence =
          log->has_accesses ? first_wrong_access(program, *log) : first_wrong_visit(program, *log);
      if (!divergence) divergence = first_wrong_state(program, *log, reference.tensors());
      if (!divergence) divergence = first_wrong_matrix_tile(program, reference.tensors());
      if (divergence) return describe(*divergence, program);
      ++log;
    }
    if (auto wrong = first_wrong_output(reference, step, programs)) return wrong;
  }
  return std::nullopt;
}

std::optional<std::string> locate(Reference& reference, const Kernel& kernel, const ProgramOptions& options,
                                  Direction direction) {
  TileObserver observer;
  reference.run(kernel, options, direction, &observer);
  return first_divergence(reference, kernel, options, direction, observer);
}

}  // namespace tilescope
