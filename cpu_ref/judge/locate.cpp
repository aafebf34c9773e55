// SPDX-License-Identifier: Apache-2.0
#include "cpu_ref/judge/locate.hpp"

#include <algorithm>
#include <cmath>
#include <sstream>

#include "cpu_ref/judge/compare.hpp"
#include "cpu_ref/judge/matrix_check.hpp"
#include "cpu_ref/judge/tile_replay.hpp"
#include "cpu_ref/schedule/cta_walk.hpp"
#include "cpu_ref/schedule/sum_slots.hpp"

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

Divergence at_tile(const TileProgram& program, const TileState& state, const char* quantity,
                   std::string detail) {
  return {program.name,  quantity,      state.batch,  state.head,
          state.m_block, state.n_block, program.tile, std::move(detail)};
}

/// Set when the log is of another pass or grid than the program's.
std::optional<Divergence> other_pass(const TileProgram& program, const PassLog& log) {
  if (log.pass == program.name && static_cast<std::int64_t>(log.ctas.size()) == program.num_ctas()) {
    return std::nullopt;
  }
  return Divergence{
      .pass = program.name,
      .quantity = "access",
      .tile = program.tile,
      .detail = text("the kernel ran pass ", to_string(log.pass), " with ", log.ctas.size(),
                     " CTAs, its program has ", to_string(program.name), " with ", program.num_ctas())};
}

/// At the tile of the pass that an element of one of its tensors lies in.
Divergence at_element(const TileProgram& program, TensorName name, std::int64_t index, std::string detail) {
  const TensorExtent extent = program.extent(name);
  const std::int64_t row = index / extent.cols % extent.rows, plane = index / extent.cols / extent.rows;
  Divergence divergence{.pass = program.name,
                        .quantity = std::string(to_string(name)),
                        .batch = static_cast<int>(plane / extent.heads),
                        .head = static_cast<int>(plane % extent.heads),
                        .tile = program.tile,
                        .detail = std::move(detail)};
  if (extent.indexing == TileIndexing::head) {
    divergence.head = static_cast<int>(index) * program.query_heads_of_cta();
    return divergence;
  }
  const bool by_key = extent.indexing == TileIndexing::n;
  (by_key ? divergence.n_block : divergence.m_block) =
      static_cast<int>(row / (by_key ? program.tile.block_n : program.tile.block_m));
  return divergence;
}

/// The tile of standard attention's matrices that holds the first wrong element.
std::optional<Divergence> first_wrong_matrix_tile(const TileProgram& program, const TensorSet& tensors) {
  const std::optional<WrongElement> wrong = first_wrong_element(program, tensors);
  if (!wrong) return std::nullopt;
  return Divergence{program.name,
                    std::string(to_string(wrong->matrix)),
                    static_cast<int>(wrong->batch),
                    static_cast<int>(wrong->head),
                    static_cast<int>(wrong->query) / program.tile.block_m,
                    static_cast<int>(wrong->key) / program.tile.block_n,
                    program.tile,
                    text("at query ", wrong->query, ", key ", wrong->key, " it is ", wrong->value, ", exact ",
                         wrong->expected, " +- ", wrong->tolerance)};
}

bool writes(const TileProgram& program, TensorName name) {
  const auto among = [name](const std::vector<Operand>& operands) {
    return std::ranges::any_of(operands, [name](const Operand& operand) {
      return operand.tensor == name && operand.kind != AccessKind::load;
    });
  };
  return among(program.init) || among(program.prologue) || among(program.epilogue) ||
         std::ranges::any_of(program.phases, among);
}

/// Whether `program` is the last of its direction to write the tensor.
bool leaves(const TileProgram& program, const std::vector<TileProgram>& programs, TensorName name) {
  const auto last = std::find_if(programs.rbegin(), programs.rend(),
                                 [name](const TileProgram& other) { return writes(other, name); });
  return last != programs.rend() && last->name == program.name;
}

/// "[batch 0, head 1, row 17, col 3] is 7, exact 0.25, bound 0.001"
std::string describe_element(const TensorExtent& extent, std::int64_t index, double value, double exact,
                             double bound) {
  return text(describe_index({extent.batch, extent.heads, extent.rows, extent.cols}, index), " is ", value,
              ", exact ", exact, ", bound ", bound);
}

/// FlashAttention-1 keeps an LSE as row_max and row_sum.
std::optional<Divergence> wrong_output(const Reference& reference, const TileProgram& program,
                                       const std::vector<TileProgram>& programs, TensorName name) {
  const auto stored_by = [name](const TileProgram& other) { return writes(other, name); };
  const bool as_statistics = name == TensorName::lse && std::ranges::none_of(programs, stored_by);
  if (!leaves(program, programs, as_statistics ? TensorName::row_sum : name)) return std::nullopt;
  const TensorVerdict verdict = reference.judge(name);
  if (verdict.passed) return std::nullopt;
  const std::int64_t index = verdict.error.worst_index;
  return at_element(
      program, name, index,
      text("after every tile was right, ",
           describe_element(tensor_extent(reference.problem(), name), index, verdict.error.worst_actual,
                            verdict.error.worst_expected, verdict.bound)));
}

/// Whether a row of sums holds something: that of a q tile that sees no key does not, unless all are cleared.
bool is_summed(const TileProgram& program, TensorName sums, std::int64_t row) {
  if (sums != TensorName::dq_accum || program.dq_start == DqStart::cleared) return true;
  const TensorExtent extent = tensor_extent(program.problem, sums);
  const auto m_block = static_cast<int>(row % extent.rows / program.tile.block_m);
  const Mask mask = program.problem.mask_of(row / (extent.heads * extent.rows));
  return !mask.kv_tiles(program.tile, m_block).empty();
}

/// The first wrong one of the fp32 sums behind `output`, which a later pass scales and rounds.
std::optional<Divergence> wrong_sums(const Reference& reference, const TileProgram& program,
                                     const std::vector<TileProgram>& programs, TensorName sums,
                                     TensorName output) {
  const Tensor& tensor = reference.tensors()[sums];
  const bool in_slots = slots_of(program, sums) > 1;  // of which the output alone says what they sum to
  if (tensor.empty() || in_slots || !leaves(program, programs, sums)) return std::nullopt;
  const bool scaled = sums == TensorName::dq_accum || sums == TensorName::dk_accum;
  const double factor = scaled ? reference.problem().scale() : 1.0;
  const double bound = reference.bound(output).bound();
  const std::span<const double> exact = reference.exact()[output];
  for (std::int64_t i = 0; i < tensor.shape().elements(); ++i) {
    if (!is_summed(program, sums, i / tensor.shape().cols)) continue;
    const double value = factor * tensor.get(i), expected = exact[static_cast<std::size_t>(i)];
    if (ExactSum{expected, bound}.admits(value)) continue;
    return at_element(program, sums, i,
                      describe_element(tensor_extent(reference.problem(), sums), i, value, expected, bound));
  }
  return std::nullopt;
}

/// delta = rowsum(dout * out) of `out` as the forward pass left it.
std::optional<Divergence> wrong_delta(const Reference& reference, const TileProgram& program,
                                      const std::vector<TileProgram>& programs) {
  const TensorSet& tensors = reference.tensors();
  const Tensor& delta = tensors[TensorName::delta];
  if (delta.empty() || !leaves(program, programs, TensorName::delta)) return std::nullopt;
  const std::vector<double> out = to_fp64(tensors[TensorName::out]),
                            dout = to_fp64(tensors[TensorName::dout]);
  const std::int64_t cols = reference.problem().value_dim();
  for (std::int64_t row = 0; row < delta.shape().elements(); ++row) {
    const SlackProduct expected = slack_dot(&out[row * cols], &dout[row * cols], cols);
    if (ExactSum{expected.value, expected.slack}.admits(delta.get(row))) continue;
    return at_element(program, TensorName::delta, row,
                      describe_element(tensor_extent(reference.problem(), TensorName::delta), row,
                                       delta.get(row), expected.value, expected.slack));
  }
  return std::nullopt;
}

/// The first wrong row of the fp32 sums that the pass adds to in memory: as near as the tiles themselves,
/// where wrong_sums() allows what the rounded output is allowed.
std::optional<Divergence> wrong_added_row(const TileProgram& program, const TileReplay& replay,
                                          const TensorSet& tensors) {
  for (TensorName name : {TensorName::dq_accum, TensorName::dk_accum, TensorName::dv_accum}) {
    const std::span<const ExactSum> rows = replay.added_rows(name);
    if (rows.empty() || tensors[name].empty() || !writes(program, name)) continue;
    if (slots_of(program, name) > 1) continue;
    const std::vector<double> values = to_fp64(tensors[name]);
    const std::size_t cols = values.size() / rows.size();
    for (std::size_t row = 0; row < rows.size(); ++row) {
      double sum = 0;
      for (std::size_t col = 0; col < cols; ++col) sum += values[row * cols + col];
      if (rows[row].admits(sum) || !is_summed(program, name, static_cast<std::int64_t>(row))) continue;
      return at_element(
          program, name, static_cast<std::int64_t>(row * cols),
          text("the row's sum is ", sum, ", exact ", rows[row].value, " +- ", rows[row].tolerance));
    }
  }
  return std::nullopt;
}

}  // namespace

std::string describe(const Divergence& divergence, const AttentionProblem& problem) {
  const auto range = [](const char* what, int block, int size, std::int64_t length) {
    const std::int64_t first = std::int64_t{block} * size;
    return text(" (", what, " ", first, " ... ", std::min<std::int64_t>(length, first + size) - 1, ")");
  };
  std::string where =
      text("pass ", to_string(divergence.pass), ", batch ", divergence.batch, ", head ", divergence.head);
  if (divergence.m_block >= 0) {
    where += text(", m_block ", divergence.m_block,
                  range("queries", divergence.m_block, divergence.tile.block_m, problem.seqlen_q));
  }
  if (divergence.n_block >= 0) {
    where += text(", n_block ", divergence.n_block,
                  range("keys", divergence.n_block, divergence.tile.block_n, problem.seqlen_k));
  }
  return text(where, ": ", divergence.quantity, ": ", divergence.detail);
}

std::optional<Divergence> first_wrong_access(const TileProgram& program, const PassLog& log) {
  if (auto wrong_pass = other_pass(program, log)) return wrong_pass;
  Divergence divergence{.pass = program.name, .quantity = "access", .tile = program.tile, .detail = {}};
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
    int& streamed = program.axis == Axis::q ? divergence.n_block : divergence.m_block;
    if (streamed >= 0) streamed /= program.diagonal_slices;  // the tile that the slice is of
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
  if (program.products.count() == 0) return std::nullopt;
  TileProgram whole = program;  // a visit is to a tile, however many of its slices are loaded
  whole.diagonal_slices = 1;
  for (std::size_t cta = 0; cta < log.ctas.size(); ++cta) {
    const std::vector<TileState>& seen = log.ctas[cta].states;
    std::size_t visits = 0;
    CtaWalk walk(whole, static_cast<std::int64_t>(cta));
    const auto wrong = [&](const AccessGroup& at, std::string detail) {
      return Divergence{program.name, "visit",    at.batch,     at.head,
                        at.m_block,   at.n_block, program.tile, std::move(detail)};
    };
    for (AccessGroup group; walk.next(group);) {
      const bool of_split = group.operands.data() == whole.epilogue.data();  // partial results have one for n
      if (group.m_block < 0 || group.n_block < 0 || of_split) continue;      // prologue or epilogue
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
    return at_tile(program, state, "visit",
                   text("CTA ", cta, " visits it as number ", visits, ", after its last tile"));
  }
  return std::nullopt;
}

std::optional<Divergence> first_wrong_state(const TileProgram& program, const PassLog& log,
                                            const TensorSet& tensors, const Arithmetic& arithmetic) {
  if (!TileReplay::can_replay(program)) return std::nullopt;
  TileReplay replay(program, tensors, arithmetic);
  for (const CtaLog& cta : log.ctas) {
    replay.begin_cta();
    for (const TileState& state : cta.states) {
      const ExactTileState exact = replay.step(state);
      for (const TileQuantity& quantity : kTileQuantities) {
        const double observed = state.*quantity.observed;
        const ExactSum& expected = exact.*quantity.exact;
        if (expected.admits(observed)) continue;
        return at_tile(
            program, state, quantity.name,
            text("the tile's sum is ", observed, ", exact ", expected.value, " +- ", expected.tolerance));
      }
    }
  }
  return wrong_added_row(program, replay, tensors);
}

std::optional<Divergence> first_wrong_tensor(const Reference& reference, const TileProgram& program,
                                             const std::vector<TileProgram>& programs) {
  using enum TensorName;
  if (auto wrong = wrong_delta(reference, program, programs)) return wrong;
  for (const auto& [sums, output] :
       {std::pair{out_accum, out}, {dq_accum, dq}, {dk_accum, dk}, {dv_accum, dv}}) {
    if (auto wrong = wrong_sums(reference, program, programs, sums, output)) return wrong;
  }
  for (TensorName output : {out, lse, dq, dk, dv, dsink}) {
    if (auto wrong = wrong_output(reference, program, programs, output)) return wrong;
  }
  return std::nullopt;
}

std::optional<Divergence> first_divergence(const Reference& reference, const Kernel& kernel,
                                           const ProgramOptions& options, Direction direction,
                                           const TileObserver& observer) {
  auto log = observer.passes.begin();
  for (Direction step : {Direction::forward, Direction::backward}) {
    if (step == Direction::backward && direction == Direction::forward) break;
    const std::vector<TileProgram> programs = kernel.programs(step, reference.problem(), options);
    for (const TileProgram& program : programs) {
      if (log == observer.passes.end()) {
        return Divergence{.pass = program.name,
                          .quantity = "access",
                          .tile = program.tile,
                          .detail = "the pass was not run"};
      }
      std::optional<Divergence> divergence =
          log->has_accesses ? first_wrong_access(program, *log) : first_wrong_visit(program, *log);
      if (!divergence) divergence = first_wrong_state(program, *log, reference.tensors(), kernel.arithmetic);
      if (!divergence) divergence = first_wrong_matrix_tile(program, reference.tensors());
      if (!divergence) divergence = first_wrong_tensor(reference, program, programs);
      if (divergence) return divergence;
      ++log;
    }
  }
  return std::nullopt;
}

std::optional<Divergence> locate(Reference& reference, const Kernel& kernel, const ProgramOptions& options,
                                 Direction direction) {
  TileObserver observer;
  reference.run(kernel, options, direction, &observer);
  return first_divergence(reference, kernel, options, direction, observer);
}

}  // namespace tilescope
