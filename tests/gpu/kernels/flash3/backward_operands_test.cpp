// SPDX-License-Identifier: Apache-2.0
// Which elements the products of flash3's backward pass take, from where a warpgroup says that its share
// begins, and that the shares are the whole, each once.
#include <doctest/doctest.h>

#include <algorithm>
#include <set>
#include <utility>

#include "gpu/kernels/flash3/backward/shapes.hpp"
#include "gpu/primitives/sm90/fragments.hpp"
#include "tests/gpu/primitives/sm90/shared_memory_model.hpp"

using namespace tilescope;
using namespace tilescope::testing;

namespace {

constexpr int kHeadDims[] = {64, 80, 96, 128, 160, 192, 256};

std::uint32_t row_bytes(int rows) { return static_cast<std::uint32_t>(128 * rows); }
std::uint32_t panel_bytes(const PanelTile& tile, int panels) {
  return static_cast<std::uint32_t>(panels * tile.panel_bytes());
}

/// Whether `steps` K steps of an operand from `address` on take, at (index, k), the element at
/// (first_row + index, first_col + k), or with the two exchanged where index runs along the columns.
bool takes(SharedMemory& shared, const PanelTile& tile, Major major, std::uint32_t address, int indices,
           int steps, int first_row, int first_col) {
  for (int step = 0; step < steps; ++step) {
    const std::uint64_t word = describe(tile, major, address).word() + k_step(tile, major, step);
    for (int i = 0; i < indices; ++i) {
      for (int k = 0; k < 16; ++k) {
        const int depth = 16 * step + k;
        const int expected =
            major == Major::k ? id(first_row + i, first_col + depth) : id(first_row + depth, first_col + i);
        if (taken(shared, word, major, i, k) != expected) return false;
      }
    }
  }
  return true;
}

/// The same where a warp has 16 queries of a third of the keys: each column of its registers becomes a row.
SharedMemory transposed_scores(const Flash3BackwardShape& shape) {
  SharedMemory shared;
  const PanelTile tile = shape.ds_tile();
  const int own_keys = shape.tile.block_n / shape.consumers();
  for (int first_key = 0; first_key < shape.tile.block_n; first_key += 16) {
    const std::uint32_t own = kBase + row_bytes(first_key / own_keys * own_keys);
    for (int warp = 0; warp < 4; ++warp) {
      for (int lane = 0; lane < 32; ++lane) {
        const Entry at = stored_row_transposed(lane);
        const int row = first_key % own_keys + at.row, col = 16 * warp + at.col;
        for (int e = 0; e < 8; ++e) {
          shared.at(own + tile.offset(row, col) + static_cast<std::uint32_t>(2 * e)) =
              id(first_key + at.row, col + e);
        }
      }
    }
  }
  return shared;
}

/// P or dS as the warpgroups' warps store them with stmatrix.
SharedMemory stored_scores(const Flash3BackwardShape& shape) {
  SharedMemory shared;
  const PanelTile tile = shape.ds_tile();
  if (shape.by_columns()) return transposed_scores(shape);
  for (int group = 0; group < shape.consumers(); ++group) {
    for (int warp = 0; warp < 4; ++warp) {
      const int first_row = shape.first_key(group) + 16 * warp;
      for (int block = 0; block < shape.tile.block_m / 16; ++block) {
        for (int lane = 0; lane < 32; ++lane) {
          const Entry at = stored_row(lane);
          const int col = 16 * block + at.col;
          const std::uint32_t address = kBase + row_bytes(first_row) + tile.offset(at.row, col);
          for (int e = 0; e < 8; ++e) {
            shared.at(address + static_cast<std::uint32_t>(2 * e)) = id(first_row + at.row, col + e);
          }
        }
      }
    }
  }
  return shared;
}

}  // namespace

TEST_CASE("flash3's backward products take their warpgroup's keys, queries and columns") {
  for (const int head_dim : kHeadDims) {
    const Flash3BackwardShape shape = flash3_backward_shape(head_dim);
    const PanelTile kv = shape.kv_tile(), q = shape.q_tile(), ds = shape.ds_tile();
    SharedMemory keys = copied(kv), queries = copied(q), scores = stored_scores(shape);
    for (int group = 0; group < shape.consumers(); ++group) {
      CAPTURE(head_dim);
      CAPTURE(group);
      const int first_dq_col = 64 * shape.first_dq_panel(group);
      // dQ = dS K
      const int first_dq_query = shape.dq_by_queries() ? 64 * group : 0;
      CHECK(takes(scores, ds, Major::mn, kBase + panel_bytes(ds, shape.dq_by_queries() ? group : 0), 64,
                  shape.tile.block_n / 16, 0, first_dq_query));
      CHECK(takes(keys, kv, Major::mn, kBase + panel_bytes(kv, shape.first_dq_panel(group)),
                  shape.dq_cols(group), shape.tile.block_n / 16, 0, first_dq_col));
      if (shape.by_columns()) {
        const int own_keys = shape.tile.block_n / shape.consumers(), first_key = own_keys * group;
        // S = Q K^T, dP = dO V^T
        CHECK(takes(queries, q, Major::k, kBase, 64, head_dim / 16, 0, 0));
        CHECK(takes(keys, kv, Major::k, kBase + row_bytes(first_key), own_keys, head_dim / 16, first_key, 0));
        // dV^T += dO^T P, dK^T += Q^T dS
        CHECK(takes(queries, q, Major::mn, kBase + panel_bytes(q, group), 64, shape.tile.block_m / 16, 0,
                    64 * group));
        CHECK(takes(scores, ds, Major::k, kBase, shape.tile.block_n, shape.tile.block_m / 16, 0, 0));
        continue;
      }
      const int first_key = shape.first_key(group);
      // S^T = K Q^T, dP^T = V dO^T
      CHECK(takes(keys, kv, Major::k, kBase + row_bytes(first_key), 64, head_dim / 16, first_key, 0));
      CHECK(takes(queries, q, Major::k, kBase, shape.tile.block_m, head_dim / 16, 0, 0));
      // dV += P^T dO, dK += dS^T Q
      CHECK(takes(queries, q, Major::mn, kBase, head_dim, shape.tile.block_m / 16, 0, 0));
    }
  }
}

TEST_CASE("the shares of flash3's backward warpgroups are the whole tile, each part once") {
  // Of specialised warpgroups, one has all of S and dV, the other all of dP and dK.
  for (const int head_dim : kHeadDims) {
    CAPTURE(head_dim);
    const Flash3BackwardShape shape = flash3_backward_shape(head_dim);
    std::set<std::pair<int, int>> scores, dk, dq;
    int computed_scores = 0, computed_dk = 0;
    for (int group = 0; group < shape.consumers(); ++group) {
      const int own_keys = shape.by_columns() ? shape.tile.block_n / 3 : 64;
      const int first_key = shape.by_columns() ? own_keys * group : shape.first_key(group);
      for (int key = first_key; key < first_key + own_keys; ++key) {
        for (int i = 0; i < shape.tile.block_m; ++i, ++computed_scores) scores.insert({key, i});
      }
      const int keys_of_sums = shape.by_columns() ? shape.tile.block_n : 64;
      const int first_sum = shape.by_columns() ? 0 : first_key;
      const int first_col = shape.by_columns() ? 64 * group : 0;
      const int end_col = shape.by_columns() ? std::min(head_dim, first_col + 64) : head_dim;
      for (int key = first_sum; key < first_sum + keys_of_sums; ++key) {
        for (int col = first_col; col < end_col; ++col, ++computed_dk) dk.insert({key, col});
      }
      for (int row = 0; row < 64; ++row) {
        for (int col = 0; col < shape.dq_cols(group); ++col) {
          const int box = col / shape.dq_box_cols;
          dq.insert({row + (shape.dq_by_queries() ? 64 * group : 0),
                     shape.dq_col(group, box) + col % shape.dq_box_cols});
        }
      }
    }
    const auto [block_m, block_n] = shape.tile;
    const int times = shape.specialised() ? 2 : 1;
    CHECK(scores.size() == static_cast<std::size_t>(block_m * block_n));
    CHECK(computed_scores == times * block_m * block_n);
    CHECK(dk.size() == static_cast<std::size_t>(block_n * head_dim));
    CHECK(computed_dk == times * block_n * head_dim);
    // Whole panels, or halves of them: the last may have columns beyond head_dim, which are 0 and not stored.
    const int dq_cols = shape.dq_by_queries() ? 64
                        : shape.by_columns()  ? 3 * shape.dq_cols(0)
                                              : shape.dq_cols(0) + shape.dq_cols(1);
    CHECK(dq_cols >= head_dim);
    CHECK(dq_cols ==
          (shape.apart || shape.halves ? (head_dim + 31) / 32 * 32 : 64 * shape.kv_tile().panels()));
    CHECK(dq.size() == static_cast<std::size_t>(block_m * dq_cols));
  }
}
