// SPDX-License-Identifier: Apache-2.0
#include "cpu_ref/launch/cta.hpp"

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "cpu_ref/numeric/numeric.hpp"
#include "cpu_ref/primitives/bf16_matmul.hpp"

namespace tilescope {
namespace {

/// Queues of a pass, kind after kind: before the tiles that it streams, those that several CTAs own, and the
/// numbers of heads.
struct Queues {
  std::int64_t streamed = 0, owned = 0, heads = 0;
};

Queues queues_of(const TileProgram& program) {
  const AttentionProblem& p = program.problem;
  const VisibleBand band = p.band();
  Queues queues;
  const bool streams = std::ranges::any_of(
      program.phases, [](const auto& phase) { return std::ranges::any_of(phase, reduces, &Operand::kind); });
  if (streams) {
    queues.streamed = p.batch * (program.axis == Axis::q ? p.heads_kv * num_n_blocks(band, program.tile)
                                                         : p.heads * num_m_blocks(band, program.tile));
  }
  const bool adds = std::ranges::any_of(program.epilogue, reduces, &Operand::kind);
  if (program.query_splits() > 1 && adds) queues.owned = p.batch * p.heads_kv * program.num_blocks();
  const bool by_heads = std::ranges::any_of(program.epilogue, [&program](const Operand& operand) {
    return reduces(operand.kind) && program.extent(operand.tensor).indexing == TileIndexing::head;
  });
  if (by_heads) queues.heads = p.heads;
  return queues;
}

}  // namespace

Cta::Cta(const TileProgram& program, TensorSet& tensors, std::int64_t index, CtaLog* log)
    : program_(&program),
      tensors_(&tensors),
      log_(log),
      work_(program.work(index)),
      mask_(program.problem.mask_of(work_.batch)) {}

int Cta::sum_slot() const { return sum_slot_of(*program_, work_); }

int Cta::queries(const TileCoord& at) const {
  const int size = program_->tile.block_m;
  return std::min(size, static_cast<int>(program_->q_rows()) - at.m_block * size);
}

int Cta::first_query_head(const TileCoord& at) const {
  return at.head * static_cast<int>(problem().heads / program_->q_heads());
}

int Cta::kv_head(const TileCoord& at) const {
  return first_query_head(at) / static_cast<int>(problem().group_size());
}

int Cta::keys(const TileCoord& at) const {
  const int size = program_->tile.block_n;
  return std::min(size, static_cast<int>(problem().seqlen_k) - at.n_block * size);
}

int Cta::unpadded_keys(const TileCoord& at) const {
  const int first = at.n_block * program_->tile.block_n;
  return std::clamp(static_cast<int>(problem().keys_of(work_.batch)) - first, 0, keys(at));
}

Interval Cta::slices(const TileCoord& at) const {
  const bool q_axis = program_->axis == Axis::q;
  const int count = program_->diagonal_slices;
  const int first = (q_axis ? at.n_block : at.m_block) * count;
  const TileRuns seen = program_->inner_slices(work_.batch, q_axis ? at.m_block : at.n_block);
  return {std::max(first, seen.begin_tile()), std::min(first + count, seen.end_tile())};
}

TileParts Cta::parts(const TileCoord& at, int height_multiple) const {
  const bool q_axis = program_->axis == Axis::q;
  const int rows = q_axis ? keys(at) : queries(at), cols = q_axis ? queries(at) : keys(at);
  const TileShape tile = program_->tile, part = part_of(tile, program_->diagonal_slices);
  const int height = q_axis ? part.block_n : part.block_m;  // of a slice
  TileParts parts;
  if (program_->diagonal_slices == 1 || height % height_multiple != 0) {
    parts.add({0, rows, 0, cols});
    return parts;
  }
  const VisibleBand band = problem().band(work_.batch);
  const int first_row = q_axis ? at.n_block * tile.block_n : at.m_block * tile.block_m;
  const int first_col = q_axis ? at.m_block * tile.block_m : at.n_block * tile.block_n;
  const Interval slices = this->slices(at);
  for (int slice = slices.begin; slice < slices.end; ++slice) {
    const Interval seen = q_axis ? computed_queries(band, part, slice) : computed_keys(band, part, slice);
    const int row = slice * height - first_row;
    const int begin = std::max(0, seen.begin - first_col), end = std::min(cols, seen.end - first_col);
    parts.add({row, std::min(height, rows - row), begin, end - begin});
  }
  return parts;
}

std::byte* Cta::PagedRows::row(int index) const {
  const KvPageTable& table = tensors->kv_pages();
  const std::int64_t key = first + index;
  return static_cast<std::byte*>(
      tensors->pool(name).row(table.page_of(batch, key), head, key % table.page_size));
}

Cta::Region Cta::access(TensorName name, AccessKind kind, const TileCoord& at) {
  const bool in_pages = lies_in_pages(problem(), name);
  Tensor& tensor = in_pages ? tensors_->pool(name) : (*tensors_)[name];
  const TileIndexing indexing = tensor_extent(problem(), name).indexing;
  const bool by_m = indexing != TileIndexing::n, by_n = indexing != TileIndexing::m;
  const int head = by_m ? at.head : kv_head(at);
  const bool has_slots = slots_of(*program_, name) > 1;
  const int slot = has_slots ? slot_at(*program_, name, work_.batch, at.m_block, at.n_block) : 0;
  const std::int64_t entry = work_.batch + slot * problem().batch;
  const std::int64_t first_query = std::int64_t{at.m_block} * program_->tile.block_m;
  const std::int64_t first_key = std::int64_t{at.n_block} * program_->tile.block_n;
  const std::int64_t first_row = by_m ? first_query : first_key;
  const std::int64_t first_col = by_m && by_n ? first_key : 0;
  const int size = element_bytes(tensor.dtype());
  const int key_rows = ends_at_padding(name) ? unpadded_keys(at) : keys(at);
  const int rows = by_m ? queries(at) : key_rows;
  const int cols = by_m && by_n ? keys(at) : static_cast<int>(tensor.shape().cols);
  const auto log = [&](int m_block, int n_block, int logged_rows) {
    if (log_ == nullptr) return;
    const int unnamed = has_slots ? slot : -1;
    log_->accesses.push_back({name, kind, work_.batch, head, by_m ? m_block : unnamed,
                              by_n ? n_block : unnamed, std::int64_t{logged_rows} * cols * size});
  };
  const auto region = [&](int first, int end) -> Region {
    if (in_pages) {
      return {nullptr,
              0,
              first,
              end - first,
              cols,
              tensor.dtype(),
              {tensors_, name, work_.batch, head, first_row}};
    }
    return {
        static_cast<std::byte*>(tensor.row(entry, by_m ? first_query_head(at) : head, first_row + first)) +
            first_col * size,
        tensor.row_stride() * size,
        first,
        end - first,
        cols,
        tensor.dtype()};
  };
  if (program_->diagonal_slices == 1 || !streams(indexing)) {
    log(at.m_block, at.n_block, rows);
    return region(0, rows);
  }
  const TileShape part = program_->access_tile();
  const int height = by_m ? part.block_m : part.block_n;
  const Interval slices = this->slices(at);
  const auto row_of = [&](int slice) { return std::min(rows, slice * height - static_cast<int>(first_row)); };
  for (int slice = slices.begin; slice < slices.end; ++slice) {
    log(slice, slice, row_of(slice + 1) - row_of(slice));
  }
  return region(row_of(slices.begin), row_of(slices.end));
}

TileView Cta::load(TensorName name, const TileCoord& at, Tile& buffer) {
  const Region from = access(name, AccessKind::load, at);
  const int padding = this->padding(name, at, from);
  if (from.data && from.dtype == ElementType::fp32 && from.cols % kTileAlign == 0 && padding == 0) {
    return {reinterpret_cast<const float*>(from.row(0)), from.row_bytes / 4};
  }
  widen_rows(from, buffer.row(from.first), buffer.stride());
  for (int r = from.end(); r < from.end() + padding; ++r) std::fill_n(buffer.row(r), from.cols, 0.0f);
  return buffer.view();
}

TileView Cta::load_column_pairs(TensorName name, const TileCoord& at, Tile& buffer) {
  const Region from = access(name, AccessKind::load, at);
  const int padding = this->padding(name, at, from);
  const bool words = from.data && from.cols % 2 == 0 && from.row_bytes % 4 == 0 &&
                     reinterpret_cast<std::uintptr_t>(from.data) % 4 == 0;
  if (words && padding == 0) return {reinterpret_cast<const float*>(from.row(0)), from.row_bytes / 4};
  const auto row_bytes = static_cast<std::size_t>(from.cols) * 2;
  for (int r = from.first; r < from.end(); ++r) std::memcpy(buffer.row(r), from.row(r), row_bytes);
  for (int r = from.end(); r < from.end() + padding; ++r) std::memset(buffer.row(r), 0, row_bytes);
  return buffer.view();
}

TileView Cta::load_row_pairs(const TileCoord& at, Tile& buffer) {
  const Region from = access(TensorName::v, AccessKind::load, at);
  const auto row = [&](int r) {
    const bool held = r >= from.first && r < from.end();
    return held ? reinterpret_cast<const std::uint16_t*>(from.row(r)) : nullptr;
  };
  for (int r = 0; r < keys(at); r += 2) pair_rows(row(r), row(r + 1), from.cols, buffer.row(r / 2));
  return buffer.view();
}

void Cta::load_into(TensorName name, const TileCoord& at, float* data, std::ptrdiff_t stride) {
  widen_rows(access(name, AccessKind::load, at), data, stride);
}

float Cta::descale(TensorName of, const TileCoord& at) const {
  const bool queries = of == TensorName::q;
  const int head = queries ? first_query_head(at) : kv_head(at);
  const TileShape tile = program_->tile;
  return tensors_->descale(of, work_.batch, head,
                           queries ? at.m_block * tile.block_m : at.n_block * tile.block_n);
}

void Cta::apply_value_descales(const TileCoord& at, Tile& values) const {
  if (tensors_->descales(TensorName::v).empty()) return;
  const int first = at.n_block * program_->tile.block_n;
  for (int j = 0; j < keys(at); ++j) {
    scale_values(values.row(j), tensors_->descale(TensorName::v, work_.batch, kv_head(at), first + j),
                 values.stride());
  }
}

void Cta::apply_score_descales(const TileCoord& at, Tile& products) const {
  using enum TensorName;
  if (tensors_->descales(q).empty() && tensors_->descales(k).empty()) return;
  const TileShape tile = program_->tile;
  for (int i = 0; i < queries(at); ++i) {
    const float of_query = tensors_->descale(q, work_.batch, at.head, at.m_block * tile.block_m + i);
    for (int j = 0; j < keys(at); ++j) {
      products.row(i)[j] *=
          of_query * tensors_->descale(k, work_.batch, kv_head(at), at.n_block * tile.block_n + j);
    }
  }
}

void Cta::widen_rows(const Region& from, float* data, std::ptrdiff_t stride) {
  for (int r = 0; r < from.rows; ++r) {
    widen(from.dtype, from.row(from.first + r), data + r * stride, from.cols);
  }
}

void Cta::narrow_rows(const TileView& tile, const Region& to) {
  for (int r = 0; r < to.rows; ++r) {
    narrow(to.dtype, tile.row(to.first + r), to.data + r * to.row_bytes, to.cols);
  }
}

void Cta::add_rows(const TileView& tile, const Region& to) {
  for (int r = 0; r < to.rows; ++r) {
    float* sums = reinterpret_cast<float*>(to.data + r * to.row_bytes);
    add_values(sums, tile.row(to.first + r), to.cols);
  }
}

void Cta::store(TensorName name, const TileCoord& at, const TileView& tile) {
  narrow_rows(tile, access(name, AccessKind::store, at));
}

void Cta::reduce(TensorName name, const TileCoord& at, const TileView& tile) {
  add_rows(tile, access(name, AccessKind::reduce, at));
}

void Cta::sum(TensorName name, const TileCoord& at, const TileView& tile, bool first) {
  const Region to = access(name, AccessKind::store_then_reduce, at);
  first ? narrow_rows(tile, to) : add_rows(tile, to);
}

void Cta::load_stats(TensorName name, const TileCoord& at, float* values) {
  const Region from = access(name, AccessKind::load, at);
  std::fill_n(values, queries(at), 0.0f);
  std::memcpy(values + from.first, from.data, static_cast<std::size_t>(from.rows) * sizeof(float));
}

void Cta::store_stats(TensorName name, const TileCoord& at, const float* values) {
  const Region to = access(name, AccessKind::store, at);
  std::memcpy(to.data, values, static_cast<std::size_t>(to.rows) * sizeof(float));
}

int Cta::query_heads() const {
  return (work_.end_head - work_.first_head) * static_cast<int>(problem().heads / program_->q_heads());
}

void Cta::log_heads(TensorName name, AccessKind kind, const TileCoord& at) {
  if (log_ == nullptr) return;
  const int count = query_heads();
  log_->accesses.push_back({name, kind, 0, first_query_head(at) / count, -1, -1,
                            std::int64_t{count} * static_cast<int>(sizeof(float))});
}

void Cta::load_heads(TensorName name, const TileCoord& at, float* values) {
  log_heads(name, AccessKind::load, at);
  const Tensor& tensor = (*tensors_)[name];
  for (int head = 0; head < query_heads(); ++head) {
    std::memcpy(values + head, tensor.row(0, first_query_head(at) + head, 0), sizeof(float));
  }
}

void Cta::reduce_head(TensorName name, const TileCoord& at, float value) {
  log_heads(name, AccessKind::reduce, at);
  *static_cast<float*>((*tensors_)[name].row(0, first_query_head(at), 0)) += value;
}

std::int64_t Cta::num_queues(const TileProgram& program) {
  const Queues queues = queues_of(program);
  return queues.streamed + queues.owned + queues.heads;
}

void Cta::draw_tickets(OrderedTurns& turns) {
  const Queues queues = queues_of(*program_);
  const bool q_axis = program_->axis == Axis::q;
  const VisibleBand band = problem().band();
  const std::int64_t tiles = q_axis ? num_n_blocks(band, program_->tile) : num_m_blocks(band, program_->tile);
  const std::int64_t heads = q_axis ? problem().heads_kv : problem().heads;
  std::vector<std::int64_t> taken;
  for (int block = work_.first_block; block < work_.end_block; ++block) {
    const TileRuns inner = queues.streamed > 0 ? inner_tiles(block) : TileRuns{};
    for (int head = work_.first_head; head < end_head(); ++head) {
      const std::int64_t owner = q_axis ? head / problem().group_size() : head;
      for (int step = 0; step < inner.count(); ++step) {
        taken.push_back((work_.batch * heads + owner) * tiles + inner_tile(inner, block, step));
      }
    }
    if (queues.owned > 0) {  // the sums of the tile that it owns
      taken.push_back(queues.streamed + work_.batch_head * program_->num_blocks() + block);
    }
    if (queues.heads > 0) taken.push_back(queues.streamed + queues.owned + work_.first_head);
  }
  tickets_.draw(turns, taken);
}

TileState* Cta::observe(const TileCoord& at) {
  if (log_ == nullptr) return nullptr;
  TileState state;
  state.pass = program_->name;
  state.batch = work_.batch;
  state.head = at.head;
  state.m_block = at.m_block;
  state.n_block = at.n_block;
  return &log_->states.emplace_back(state);
}

}  // namespace tilescope
