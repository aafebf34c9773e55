// SPDX-License-Identifier: Apache-2.0
#include "cpu_ref/schedule/tile_program.hpp"

#include <algorithm>

namespace tilescope {
namespace {

constexpr std::array<std::string_view, kNumTensors> kTensorNames = {
    "q",  "k",  "v",         "out",      "lse",      "row_max",  "row_sum", "dout",  "delta",  "dq",
    "dk", "dv", "out_accum", "dq_accum", "dk_accum", "dv_accum", "scores",  "probs", "dprobs", "dscores"};

constexpr std::string_view kPassNames[] = {"forward", "delta",   "dkdv",    "dq",      "dkdvdq", "dqdkdv",
                                           "init",    "convert", "scores",  "softmax", "output", "dv",
                                           "dprobs",  "dscores", "dq_gemm", "dk_gemm"};

constexpr Operand load(TensorName tensor) { return {tensor, AccessKind::load}; }
constexpr Operand store(TensorName tensor) { return {tensor, AccessKind::store}; }
constexpr Operand reduce(TensorName tensor) { return {tensor, AccessKind::reduce}; }

/// A pass without its accesses and its grid: set_grid() comes last.
TileProgram make_pass(PassName name, const AttentionProblem& problem, Axis axis,
                      const ProgramOptions& options) {
  TileProgram program;
  program.name = name;
  program.problem = problem;
  program.tile = options[name].tile;
  program.launch = options[name].launch;
  program.axis = axis;
  program.scan = options.scan;
  return program;
}

void set_grid(TileProgram& program, const ProgramOptions& options) {
  const std::int64_t heads = program.kv_heads ? program.problem.heads_kv : program.problem.heads;
  const bool fused = program.name == PassName::dkdvdq && !program.ordered;
  const bool own_sections = fused && options.fused_heads_per_section > 0;
  program.grid = {
      .num_blocks = program.whole_head ? 1 : program.num_blocks(),
      .num_heads = static_cast<int>(program.problem.batch * heads),
      .heads_per_section = own_sections ? options.fused_heads_per_section : options.heads_per_section,
      .order = options.order,
      .longest_is_last = program.axis == Axis::q,
      .ctas_per_turn = options.ctas_per_turn};
}

/// Builds an elementwise pass, on the tiles of the pass that it serves.
TileProgram make_elementwise_pass(PassName name, PassName served, const AttentionProblem& problem, Axis axis,
                                  const ProgramOptions& options) {
  TileProgram program = make_pass(name, problem, axis, options);
  program.tile = options[served].tile;
  return program;
}

/// Reads whole rows `reads` times, the first time into a strip on chip if once is enough, and writes others.
std::vector<std::vector<Operand>> row_phases(const std::vector<Operand>& rows, Operand result, int reads) {
  if (reads == 1) return {rows, {result}};
  std::vector<std::vector<Operand>> phases(static_cast<std::size_t>(reads), rows);
  phases.back().push_back(result);
  return phases;
}

std::vector<TileProgram> standard_forward(const AttentionProblem& problem, const ProgramOptions& options) {
  using enum TensorName;
  TileProgram s = make_pass(PassName::scores, problem, Axis::q, options);
  s.prologue = {load(q)};
  s.phases = {{load(k), store(scores)}};
  s.matmuls = 1;
  TileProgram softmax = make_pass(PassName::softmax, problem, Axis::q, options);
  softmax.phases = row_phases({load(scores)}, store(probs), options[PassName::softmax].row_reads);
  softmax.epilogue = {store(lse)};
  TileProgram output = make_pass(PassName::output, problem, Axis::q, options);
  output.phases = {{load(probs), load(v)}};
  output.epilogue = {store(out)};
  output.matmuls = 1;
  return {s, softmax, output};
}

std::vector<TileProgram> standard_backward(const AttentionProblem& problem, const ProgramOptions& options) {
  using enum TensorName;
  TileProgram dv_pass = make_pass(PassName::dv, problem, Axis::kv, options);
  dv_pass.kv_heads = true;
  dv_pass.phases = {{load(probs), load(dout)}};
  dv_pass.epilogue = {store(dv)};
  dv_pass.matmuls = 1;
  TileProgram dp = make_pass(PassName::dprobs, problem, Axis::q, options);
  dp.prologue = {load(dout)};
  dp.phases = {{load(v), store(dprobs)}};
  dp.matmuls = 1;
  TileProgram ds = make_pass(PassName::dscores, problem, Axis::q, options);
  ds.phases = row_phases({load(probs), load(dprobs)}, store(dscores), options[PassName::dscores].row_reads);
  TileProgram dq_pass = make_pass(PassName::dq_gemm, problem, Axis::q, options);
  dq_pass.phases = {{load(dscores), load(k)}};
  dq_pass.epilogue = {store(dq)};
  dq_pass.matmuls = 1;
  TileProgram dk_pass = make_pass(PassName::dk_gemm, problem, Axis::kv, options);
  dk_pass.kv_heads = true;
  dk_pass.phases = {{load(dscores), load(q)}};
  dk_pass.epilogue = {store(dk)};
  dk_pass.matmuls = 1;
  return {dv_pass, dp, ds, dq_pass, dk_pass};
}

/// Rounds fp32 sums of the q axis (or the kv axis) to the element type.
TileProgram convert_pass(const AttentionProblem& problem, PassName served, Axis axis,
                         std::vector<Operand> loads, std::vector<Operand> stores,
                         const ProgramOptions& options) {
  TileProgram program = make_elementwise_pass(PassName::convert, served, problem, axis, options);
  program.kv_heads = axis == Axis::kv;
  program.prologue = std::move(loads);
  program.epilogue = std::move(stores);
  return program;
}

std::vector<TileProgram> flash1_forward(const AttentionProblem& problem, const ProgramOptions& options) {
  using enum TensorName;
  const bool narrow = problem.dtype != ElementType::fp32;
  const TensorName running_out = narrow ? out_accum : out;
  TileProgram forward = make_pass(PassName::forward, problem, Axis::kv, options);
  forward.whole_head = true;
  forward.init = {store(running_out), store(row_sum), store(row_max)};
  forward.prologue = {load(k), load(v)};
  forward.phases = {{load(q), load(running_out), load(row_sum), load(row_max), store(running_out),
                     store(row_sum), store(row_max)}};
  forward.matmuls = 2;
  if (!narrow) return {forward};
  return {forward,
          convert_pass(problem, PassName::forward, Axis::q, {load(out_accum)}, {store(out)}, options)};
}

std::vector<TileProgram> flash1_backward(const AttentionProblem& problem, const ProgramOptions& options) {
  using enum TensorName;
  TileProgram main = make_pass(PassName::dkdvdq, problem, Axis::kv, options);
  main.whole_head = true;
  main.kv_heads = true;
  main.init = {store(dq_accum), store(dk), store(dv)};
  main.prologue = {load(k), load(v)};
  main.phases = {
      {load(q), load(out), load(dout), load(dq_accum), load(row_sum), load(row_max), store(dq_accum)}};
  main.epilogue = {store(dk), store(dv)};
  main.matmuls = 5;
  return {main, convert_pass(problem, PassName::dkdvdq, Axis::q, {load(dq_accum)}, {store(dq)}, options)};
}

std::vector<TileProgram> flash2_forward(const AttentionProblem& problem, const ProgramOptions& options) {
  using enum TensorName;
  TileProgram forward = make_pass(PassName::forward, problem, Axis::q, options);
  forward.prologue = {load(q)};
  forward.phases = {{load(k), load(v)}};
  forward.epilogue = {store(out), store(lse)};
  forward.matmuls = 2;
  return {forward};
}

std::vector<TileProgram> flash2_backward(const AttentionProblem& problem, const ProgramOptions& options) {
  using enum TensorName;
  if (options.backward == BackwardOrder::rows) {
    TileProgram init = make_elementwise_pass(PassName::init, PassName::dqdkdv, problem, Axis::kv, options);
    init.kv_heads = true;
    init.epilogue = {store(dk_accum), store(dv_accum)};
    TileProgram main = make_pass(PassName::dqdkdv, problem, Axis::q, options);
    main.prologue = {load(q), load(out), load(dout), load(lse)};
    main.phases = {{load(k), load(v), reduce(dk_accum), reduce(dv_accum)}};
    main.epilogue = {store(dq)};
    main.matmuls = 5;
    return {init, main,
            convert_pass(problem, PassName::dqdkdv, Axis::kv, {load(dk_accum), load(dv_accum)},
                         {store(dk), store(dv)}, options)};
  }
  const bool ordered = options.backward == BackwardOrder::ordered;
  const bool fused = ordered || options.backward == BackwardOrder::fused;
  const PassName main = fused ? PassName::dkdvdq : PassName::dkdv;
  TileProgram delta_pass = make_elementwise_pass(PassName::delta, main, problem, Axis::q, options);
  delta_pass.prologue = {load(out), load(dout)};
  delta_pass.epilogue = {store(delta)};
  if (fused) delta_pass.epilogue.push_back(store(dq_accum));  // zeroed here, as FlashAttention-2 does
  TileProgram dkdv = make_pass(main, problem, Axis::kv, options);
  dkdv.kv_heads = true;
  dkdv.prologue = {load(k), load(v)};
  dkdv.phases = {{load(q), load(dout), load(lse), load(delta)}};
  dkdv.epilogue = {store(dk), store(dv)};
  dkdv.matmuls = fused ? 5 : 4;
  if (fused) {
    dkdv.phases[0].push_back(reduce(dq_accum));
    dkdv.ordered = ordered;
    return {delta_pass, dkdv,
            convert_pass(problem, PassName::dkdvdq, Axis::q, {load(dq_accum)}, {store(dq)}, options)};
  }
  TileProgram dq_pass = make_pass(PassName::dq, problem, Axis::q, options);
  dq_pass.prologue = {load(q), load(dout), load(lse), load(delta)};
  dq_pass.phases = {{load(k), load(v)}};
  dq_pass.epilogue = {store(dq)};
  dq_pass.matmuls = 3;
  dkdv.joined = dq_pass.joined = options.backward == BackwardOrder::joined;
  return {delta_pass, dkdv, dq_pass};
}

void check_tile(const char* field, TileShape tile) {
  const auto bad = [](int rows) { return rows < 1 || rows > 4096; };
  if (!bad(tile.block_m) && !bad(tile.block_n)) return;
  throw BadInput(field, std::to_string(tile.block_m) + "x" + std::to_string(tile.block_n),
                 "both sides must lie in 1 ... 4096");
}

void check_slices(Algorithm algorithm, const TileProgram& program) {
  const int slices = program.diagonal_slices;
  if (slices == 1) return;
  const auto refuse = [&](const std::string& allowed) {
    throw BadInput("diagonal-slices", std::to_string(slices), allowed);
  };
  if (slices < 1 || slices > kMaxDiagonalSlices) {
    refuse("must lie in 1 ... " + std::to_string(kMaxDiagonalSlices));
  }
  if (algorithm != Algorithm::flash2) {
    refuse("must be 1: " + std::string(to_string(algorithm)) + " computes its tiles whole");
  }
  const TileShape tile = program.tile;
  if (tile.block_m % slices == 0 && tile.block_n % slices == 0) return;
  refuse("must divide both sides of a tile, which in pass " + std::string(to_string(program.name)) + " is " +
         std::to_string(tile.block_m) + "x" + std::to_string(tile.block_n));
}

}  // namespace

void ProgramOptions::set_tile(Direction direction, TileShape tile) {
  for (int i = 0; i < kNumPasses; ++i) {
    const auto pass = static_cast<PassName>(i);
    const bool forward = pass == PassName::forward || pass == PassName::scores || pass == PassName::softmax ||
                         pass == PassName::output;
    if (forward == (direction == Direction::forward)) (*this)[pass].tile = tile;
  }
}

std::string_view to_string(TensorName name) { return kTensorNames[static_cast<std::size_t>(name)]; }

std::string_view to_string(AccessKind kind) {
  constexpr std::string_view names[] = {"load", "store", "reduce"};
  return names[static_cast<std::size_t>(kind)];
}

std::string_view to_string(PassName pass) { return kPassNames[static_cast<std::size_t>(pass)]; }

PassName parse_pass_name(std::string_view text) {
  for (std::size_t i = 0; i < std::size(kPassNames); ++i) {
    if (kPassNames[i] == text) return static_cast<PassName>(i);
  }
  throw BadInput("pass", std::string(text), "not the name of a pass");
}

std::string_view to_string(Algorithm algorithm) {
  constexpr std::string_view names[] = {"standard", "flash1", "flash2"};
  return names[static_cast<std::size_t>(algorithm)];
}

std::string_view to_string(BackwardOrder order) {
  constexpr std::string_view names[] = {"split", "fused", "rows", "joined", "ordered"};
  return names[static_cast<std::size_t>(order)];
}

BackwardOrder parse_backward_order(std::string_view text) {
  for (BackwardOrder order : {BackwardOrder::split, BackwardOrder::fused, BackwardOrder::rows,
                              BackwardOrder::joined, BackwardOrder::ordered}) {
    if (to_string(order) == text) return order;
  }
  throw BadInput("backward", std::string(text), "must be split, fused, rows, joined or ordered");
}

constexpr std::string_view kFp8SumsNames[] = {"fp32", "two-level", "fast"};

std::string_view to_string(Fp8Sums sums) { return kFp8SumsNames[static_cast<std::size_t>(sums)]; }

Fp8Sums parse_fp8_sums(std::string_view text) {
  for (const Fp8Sums sums : {Fp8Sums::fp32, Fp8Sums::two_level, Fp8Sums::fast}) {
    if (to_string(sums) == text) return sums;
  }
  throw BadInput("fp8-sums", std::string(text), "must be fp32, two-level or fast");
}

std::string_view to_string(TileOrder order) {
  constexpr std::string_view names[] = {"row-major", "longest-first", "head-swizzled"};
  return names[static_cast<std::size_t>(order)];
}

TileOrder parse_tile_order(std::string_view text) {
  for (TileOrder order : {TileOrder::row_major, TileOrder::longest_first, TileOrder::head_swizzled}) {
    if (to_string(order) == text) return order;
  }
  throw BadInput("order", std::string(text), "must be row-major, longest-first or head-swizzled");
}

std::string_view to_string(Scan scan) {
  constexpr std::string_view names[] = {"ascending", "descending", "sawtooth"};
  return names[static_cast<std::size_t>(scan)];
}

Scan parse_scan(std::string_view text) {
  for (Scan scan : {Scan::ascending, Scan::descending, Scan::sawtooth}) {
    if (to_string(scan) == text) return scan;
  }
  throw BadInput("scan", std::string(text), "must be ascending, descending or sawtooth");
}

TensorExtent tensor_extent(const AttentionProblem& problem, TensorName name) {
  const AttentionProblem& p = problem;
  const auto extent = [&p](std::int64_t heads, std::int64_t rows, std::int64_t cols, ElementType dtype,
                           TileIndexing indexing) {
    return TensorExtent{p.batch, heads, rows, cols, element_bytes(dtype), dtype, indexing};
  };
  // fp8 kernels read fp8 and write bf16, as FlashAttention-3 does.
  const ElementType wide = is_fp8(p.dtype) ? ElementType::bf16 : p.dtype;
  const ElementType fp32 = ElementType::fp32;
  switch (name) {
    case TensorName::q:
    case TensorName::dout:
    case TensorName::dq:
      return extent(p.heads, p.seqlen_q, p.head_dim, p.dtype, TileIndexing::m);
    case TensorName::out:
      return extent(p.heads, p.seqlen_q, p.head_dim, wide, TileIndexing::m);
    case TensorName::out_accum:
    case TensorName::dq_accum:
      return extent(p.heads, p.seqlen_q, p.head_dim, fp32, TileIndexing::m);
    case TensorName::lse:
    case TensorName::row_max:
    case TensorName::row_sum:
    case TensorName::delta:
      return extent(p.heads, p.seqlen_q, 1, fp32, TileIndexing::m);
    case TensorName::k:
    case TensorName::v:
    case TensorName::dk:
    case TensorName::dv:
      return extent(p.heads_kv, p.seqlen_k, p.head_dim, p.dtype, TileIndexing::n);
    case TensorName::dk_accum:
    case TensorName::dv_accum:
      return extent(p.heads_kv, p.seqlen_k, p.head_dim, fp32, TileIndexing::n);
    case TensorName::scores:
      return extent(p.heads, p.seqlen_q, p.seqlen_k, wide, TileIndexing::mn);
    case TensorName::probs:
    case TensorName::dprobs:
    case TensorName::dscores:
      return extent(p.heads, p.seqlen_q, p.seqlen_k, p.dtype, TileIndexing::mn);
  }
  throw BadInput("unknown tensor");
}

int TileProgram::num_blocks() const {
  return axis == Axis::q ? num_m_blocks(problem.band(), tile) : num_n_blocks(problem.band(), tile);
}

TileRange TileProgram::inner_tiles(int batch, int block) const {
  VisibleBand band = dense ? problem.band() : problem.band(batch);
  if (dense) band.left = band.right = kUnbounded;
  return axis == Axis::q ? kv_tiles(band, tile, block) : q_tiles<true>(band, tile, block);
}

TileShape TileProgram::access_tile() const {
  const TileShape part = part_of(tile, diagonal_slices);
  return axis == Axis::q ? TileShape{tile.block_m, part.block_n} : TileShape{part.block_m, tile.block_n};
}

TileRange TileProgram::inner_slices(int batch, int block) const {
  if (diagonal_slices == 1) return inner_tiles(batch, block);
  const VisibleBand band = problem.band(batch);
  return axis == Axis::q ? kv_tiles(band, access_tile(), block) : q_tiles<true>(band, access_tile(), block);
}

CtaWork TileProgram::work(std::int64_t cta) const {
  const HeadCounts heads{static_cast<int>(problem.heads), static_cast<int>(problem.heads_kv)};
  return cta_work(grid, heads, kv_heads ? CtaHeads::kv : CtaHeads::query, whole_head ? num_blocks() : 1, cta);
}

int TileProgram::heads_per_cta() const { return kv_heads ? static_cast<int>(problem.group_size()) : 1; }

std::int64_t TileProgram::visited_tiles() const {
  if (phases.empty()) return 0;
  std::int64_t tiles = 0;
  problem.for_each_length([&](std::int64_t entries, std::int64_t entry) {
    std::int64_t here = 0;
    for (int block = 0; block < num_blocks(); ++block) {
      here += inner_tiles(static_cast<int>(entry), block).count();
    }
    tiles += here * entries;
  });
  return tiles * problem.heads;
}

std::int64_t TileProgram::computed_entries() const {
  if (diagonal_slices == 1) return visited_tiles() * tile.block_m * tile.block_n;
  if (phases.empty()) return 0;
  const TileShape part = part_of(tile, diagonal_slices);
  std::int64_t entries = 0;
  problem.for_each_length([&](std::int64_t count, std::int64_t entry) {
    const VisibleBand band = problem.band(entry);
    for (int m_part = 0; m_part < num_m_blocks(band, part); ++m_part) {
      const Interval keys = computed_keys(band, part, m_part);
      entries += count * part.block_m * (keys.end - keys.begin);
    }
  });
  return entries * problem.heads;
}

std::int64_t TileProgram::tile_bytes(TensorName tensor) const {
  const TensorExtent extent = tensor_extent(problem, tensor);
  const std::int64_t rows = extent.indexing == TileIndexing::n ? tile.block_n : tile.block_m;
  const std::int64_t cols = extent.indexing == TileIndexing::mn ? tile.block_n : extent.cols;
  return rows * cols * extent.element_bytes;
}

std::int64_t TileProgram::shared_bytes(int stages) const {
  std::int64_t bytes = 0;
  for (const Operand& operand : prologue) {
    if (operand.kind == AccessKind::load) bytes += tile_bytes(operand.tensor);
  }
  for (const auto& phase : phases) {
    for (const Operand& operand : phase) {
      if (operand.kind == AccessKind::load) bytes += stages * tile_bytes(operand.tensor);
    }
  }
  return bytes;
}

TileAccess TileProgram::access(const Operand& operand, int batch, int head, int m_block, int n_block) const {
  const TensorExtent extent = tensor_extent(problem, operand.tensor);
  const auto clipped = [](std::int64_t total, int block, int size) {
    return std::clamp<std::int64_t>(total - static_cast<std::int64_t>(block) * size, 0, size);
  };
  const bool by_m = extent.indexing != TileIndexing::n;
  const bool by_n = extent.indexing != TileIndexing::m;
  const TileShape accessed = access_tile();
  const std::int64_t rows =
      by_m ? clipped(extent.rows, m_block, accessed.block_m)
           : clipped(ends_at_padding(operand.tensor) ? problem.keys_of(batch) : extent.rows, n_block,
                     accessed.block_n);
  const std::int64_t cols = by_m && by_n ? clipped(extent.cols, n_block, accessed.block_n) : extent.cols;
  const int tensor_head = by_m ? head : head / static_cast<int>(problem.group_size());
  return {operand.tensor,
          operand.kind,
          batch,
          tensor_head,
          by_m ? m_block : -1,
          by_n ? n_block : -1,
          rows * cols * extent.element_bytes};
}

std::vector<TileProgram> build_programs(Algorithm algorithm, Direction direction,
                                        const AttentionProblem& problem, const ProgramOptions& options) {
  validate(problem);
  for (const PassOptions& pass : options.passes) check_tile("tile", pass.tile);
  const bool forward = direction == Direction::forward;
  std::vector<TileProgram> programs;
  switch (algorithm) {
    case Algorithm::standard:
      programs = forward ? standard_forward(problem, options) : standard_backward(problem, options);
      for (TileProgram& program : programs) program.dense = true;
      break;
    case Algorithm::flash1:
      programs = forward ? flash1_forward(problem, options) : flash1_backward(problem, options);
      break;
    case Algorithm::flash2:
      programs = forward ? flash2_forward(problem, options) : flash2_backward(problem, options);
      break;
  }
  for (TileProgram& program : programs) {
    if (!program.phases.empty()) program.diagonal_slices = options.diagonal_slices;
    if (is_fp8(problem.dtype)) program.fp8_sums = options.fp8_sums;
    check_slices(algorithm, program);
    set_grid(program, options);
  }
  return programs;
}

std::vector<PassName> tiled_passes(Algorithm algorithm, Direction direction, BackwardOrder backward) {
  ProgramOptions options;
  options.backward = backward;
  std::vector<PassName> names;
  for (const TileProgram& program : build_programs(algorithm, direction, {}, options)) {
    if (!program.phases.empty()) names.push_back(program.name);
  }
  return names;
}

TileShape flash1_tile_rule(std::int64_t sram_elements, std::int64_t head_dim) {
  if (sram_elements < 1) throw BadInput("sram", std::to_string(sram_elements), "must be at least 1 element");
  const std::int64_t block_n = (sram_elements + 4 * head_dim - 1) / (4 * head_dim);
  return {static_cast<int>(std::min(block_n, head_dim)), static_cast<int>(block_n)};
}

std::int64_t flash1_sram_elements_needed(TileShape tile, std::int64_t head_dim) {
  const std::int64_t m = tile.block_m, n = tile.block_n;
  return 2 * m * head_dim + 2 * n * head_dim + m * n;
}

}  // namespace tilescope
