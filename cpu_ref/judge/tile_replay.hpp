// SPDX-License-Identifier: Apache-2.0
// What a kernel's tiles should hold: the sums of TileState in fp64, computed for the tiles that were visited,
// in the order in which they were. Values, mask and dropout follow the definition, not the schedule; P and dS
// are rounded to the element type where the algorithms round them. Where a kernel's maxima may lag, the
// replay takes from the log which of them it kept, and holds them to the bound that its row states.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <tuple>
#include <vector>

#include "cpu_ref/judge/exact_score.hpp"
#include "cpu_ref/kernels/kernel.hpp"
#include "cpu_ref/launch/tile_observer.hpp"
#include "cpu_ref/numeric/rounding_interval.hpp"
#include "cpu_ref/numeric/tensor.hpp"
#include "cpu_ref/schedule/tile_program.hpp"

namespace tilescope {

struct ExactTileState {
  ExactSum scores, row_max, row_sum, probs, dprobs, dscores, accum;
  ExactSum left_out;  // at most the rows that see no key of the tile
};

/// The quantities of a tile's state in the order in which a step computes them.
struct TileQuantity {
  const char* name;
  double TileState::*observed;
  ExactSum ExactTileState::*exact;
};
inline constexpr TileQuantity kTileQuantities[] = {
    {"left_out", &TileState::left_out, &ExactTileState::left_out},
    {"scores", &TileState::scores, &ExactTileState::scores},
    {"row_max", &TileState::row_max, &ExactTileState::row_max},
    {"row_sum", &TileState::row_sum, &ExactTileState::row_sum},
    {"probs", &TileState::probs, &ExactTileState::probs},
    {"dprobs", &TileState::dprobs, &ExactTileState::dprobs},
    {"dscores", &TileState::dscores, &ExactTileState::dscores},
    {"accum", &TileState::accum, &ExactTileState::accum},
};

/// Replays one pass of flash1 or flash2.
class TileReplay {
 public:
  /// @param tensors  q, k, v; for a backward pass also dout, and out and lse as the forward pass left them:
  /// a backward pass is followed from what it was given
  /// @param arithmetic  of the kernel
  TileReplay(const TileProgram& program, const TensorSet& tensors, const Arithmetic& arithmetic = {});

  /// Whether this pass has states that can be replayed.
  static bool can_replay(const TileProgram& program);

  /// Sums of owned tiles begin anew: those that several CTAs share are each one's own.
  void begin_cta() { accums_.clear(); }
  /// The state after the step at the tile of `visited`, whose sums are not looked at.
  ExactTileState step(const TileState& visited);

  /// Row sums of what the steps so far add to memory, of a backward pass: to dq_accum where a CTA owns keys,
  /// to dk_accum and dv_accum where it owns queries; nothing for other tensors.
  std::span<const ExactSum> added_rows(TensorName name) const;

 private:
  /// The running maximum and sum of a query row.
  struct Row {
    SlackProduct max{0, 0};
    ExactSum sum;
    ExactSum accum;   // un-normalised, over head_dim: every step is linear in V, so its row sums are enough
    double unit = 1;  // that accum is to be multiplied by, where V's blocks have descales
    bool seen = false;
    float told_max = 0;  // what the kernel says that P is relative to, where its maxima may lag
  };
  /// A tensor in fp64 with the sums of its rows.
  struct Matrix {
    std::vector<double> values, row_sums, row_magnitudes;
    std::int64_t cols = 1;
    Matrix() = default;
    explicit Matrix(const Tensor& tensor);
  };

  /// Rows begin with their head's learned sink, if there are any.
  void begin_rows();
  /// What a query's scores are multiplied by, but for the descales of blocks of keys.
  double score_descale(std::int64_t batch_head, std::int64_t query) const;
  SlackProduct dot(const Matrix& a, std::int64_t a_row, const Matrix& b, std::int64_t b_row) const;
  /// f(score) and f'(score) of a score whose scaled one is scale * score, in the score's units.
  struct Modified {
    SlackProduct score;
    ExactSum derivative{1, 0};
  };
  Modified modified(const SlackProduct& score, double scale, std::int64_t query_row, std::int64_t key) const;
  ExactSum rounded(double value, double slack) const { return rounded_interval(probs_type_, value, slack); }
  /// @param part, parts  of the tile's keys: each has maxima and sums of its own
  void forward_row(std::int64_t query_row, std::int64_t first_key_row, const TileState& at, int i, int part,
                   int parts, ExactTileState& state);
  /// Raises a row's maximum to that of the scores; or keeps it where the kernel says that it did, and may.
  void raise_maximum(Row& row, const SlackProduct& tile_max, std::optional<float> told, double scale) const;
  /// exp(scale * (score - reference)) with the relative error that those of its argument make.
  ExactSum exponential(const SlackProduct& score, const SlackProduct& reference, double scale) const;
  void backward_row(std::int64_t query_row, std::int64_t first_key_row, const TileState& at, int i,
                    ExactTileState& state, ExactSum& accum);
  /// Keys [begin, end) of the tile that query i sees, by the definition of the mask.
  std::vector<int> visible_keys(const TileState& at, int i) const;

  const TileProgram* program_;
  const TensorSet* tensors_;
  double sum_error_;  // Arithmetic::sum_error()
  double scale_, sign_, probs_factor_;
  double largest_kept_prob_;  // Arithmetic::largest_kept_prob()
  ElementType probs_type_;    // of P, and of dS
  ExactScores scores_;
  Matrix q_, k_, v_, dout_, out_;
  std::vector<double> lse_;
  std::vector<Row> rows_;                                 // (B, H, Nq, parts of keys), forward
  std::map<std::tuple<int, int, int>, ExactSum> accums_;  // by batch, head, owned block; backward
  std::vector<ExactSum> added_dq_, added_dk_, added_dv_;  // (B, H, Nq), (B, Hkv, Nk)
};

}  // namespace tilescope
