// SPDX-License-Identifier: Apache-2.0
#include "cpu_ref/launch/cta.hpp"

#include <algorithm>
#include <cstring>

#include "cpu_ref/numeric/numeric.hpp"

namespace tilescope {

Cta::Cta(const TileProgram& program, TensorSet& tensors, std::int64_t index, CtaLog* log)
    : program_(&program), tensors_(&tensors), log_(log), work_(program.work(index)) {}

int Cta::queries(const TileCoord& at) const {
  const int size = program_->tile.block_m;
  return std::min(size, static_cast<int>(problem().seqlen_q) - at.m_block * size);
}

int Cta::keys(const TileCoord& at) const {
  const int size = program_->tile.block_n;
  return std::min(size, static_cast<int>(problem().seqlen_k) - at.n_block * size);
}

int Cta::unpadded_keys(const TileCoord& at) const {
  const int first = at.n_block * program_->tile.block_n;
  return std::clamp(static_cast<int>(problem().keys_of(work_.batch)) - first, 0, keys(at));
}

Cta::Region Cta::access(TensorName name, AccessKind kind, const TileCoord& at) {
  Tensor& tensor = (*tensors_)[name];
  const TileIndexing indexing = tensor_extent(problem(), name).indexing;
  const bool by_m = indexing != TileIndexing::n, by_n = indexing != TileIndexing::m;
  const int head = by_m ? at.head : at.head / static_cast<int>(problem().group_size());
  const std::int64_t first_query = std::int64_t{at.m_block} * program_->tile.block_m;
  const std::int64_t first_key = std::int64_t{at.n_block} * program_->tile.block_n;
  const std::int64_t first_row = by_m ? first_query : first_key;
  const std::int64_t first_col = by_m && by_n ? first_key : 0;
  const int size = element_bytes(tensor.dtype());
  const int key_rows = ends_at_padding(name) ? unpadded_keys(at) : keys(at);
  const Region region = {static_cast<std::byte*>(tensor.row(work_.batch, head, first_row)) + first_col * size,
                         tensor.shape().cols * size, by_m ? queries(at) : key_rows,
                         by_m && by_n ? keys(at) : static_cast<int>(tensor.shape().cols), tensor.dtype()};
  if (log_ != nullptr) {
    log_->accesses.push_back({name, kind, work_.batch, head, by_m ? at.m_block : -1, by_n ? at.n_block : -1,
                              std::int64_t{region.rows} * region.cols * size});
  }
  return region;
}

TileView Cta::load(TensorName name, const TileCoord& at, Tile& buffer) {
  const Region from = access(name, AccessKind::load, at);
  const int padding = ends_at_padding(name) ? keys(at) - from.rows : 0;
  if (from.dtype == ElementType::fp32 && from.cols % kTileAlign == 0 && padding == 0) {
    return {reinterpret_cast<const float*>(from.data), from.row_bytes / 4};
  }
  widen_rows(from, buffer.data(), buffer.stride());
  for (int r = from.rows; r < from.rows + padding; ++r) std::fill_n(buffer.row(r), from.cols, 0.0f);
  return buffer.view();
}

void Cta::load_into(TensorName name, const TileCoord& at, float* data, std::ptrdiff_t stride) {
  widen_rows(access(name, AccessKind::load, at), data, stride);
}

void Cta::widen_rows(const Region& from, float* data, std::ptrdiff_t stride) {
  for (int r = 0; r < from.rows; ++r) {
    widen(from.dtype, from.data + r * from.row_bytes, data + r * stride, from.cols);
  }
}

void Cta::store(TensorName name, const TileCoord& at, const TileView& tile) {
  const Region to = access(name, AccessKind::store, at);
  for (int r = 0; r < to.rows; ++r) narrow(to.dtype, tile.row(r), to.data + r * to.row_bytes, to.cols);
}

void Cta::reduce(TensorName name, const TileCoord& at, const TileView& tile) {
  const Region to = access(name, AccessKind::reduce, at);
  for (int r = 0; r < to.rows; ++r) {
    float* sums = reinterpret_cast<float*>(to.data + r * to.row_bytes);
    add_values(sums, tile.row(r), to.cols);
  }
}

void Cta::load_stats(TensorName name, const TileCoord& at, float* values) {
  const Region from = access(name, AccessKind::load, at);
  std::memcpy(values, from.data, static_cast<std::size_t>(from.rows) * sizeof(float));
}

void Cta::store_stats(TensorName name, const TileCoord& at, const float* values) {
  const Region to = access(name, AccessKind::store, at);
  std::memcpy(to.data, values, static_cast<std::size_t>(to.rows) * sizeof(float));
}

void Cta::draw_tickets(OrderedTurns& turns) {
  const bool q_axis = program_->axis == Axis::q;
  const VisibleBand band = problem().band();
  const std::int64_t tiles = q_axis ? num_n_blocks(band, program_->tile) : num_m_blocks(band, program_->tile);
  const std::int64_t heads = q_axis ? problem().heads_kv : problem().heads;
  std::vector<std::int64_t> taken;
  for (int block = work_.first_block; block < work_.end_block; ++block) {
    const TileRange inner = inner_tiles(block);
    for (int head = work_.first_head; head < end_head(); ++head) {
      const std::int64_t owner = q_axis ? head / problem().group_size() : head;
      for (int step = 0; step < inner.count(); ++step) {
        taken.push_back((work_.batch * heads + owner) * tiles + inner_tile(inner, block, step));
      }
    }
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
