// SPDX-License-Identifier: Apache-2.0
// Scores as the judge has them: the definition at ScoreMods a second time, in fp64 and without a tile, so
// that a wrong modifier cannot make everything agree on the same error.
#pragma once

#include <optional>
#include <vector>

#include "cpu_ref/numeric/tensor.hpp"

namespace tilescope {

/// What the softmax takes for one query and key.
struct ExactScore {
  double value = 0;       // f(scale * q k)
  double derivative = 1;  // f' there
  double added = 0;       // magnitude of what was added, beside what was scaled
};

class ExactScores {
 public:
  /// @param inputs  q, k and v need not be there, the numbers of heads must
  explicit ExactScores(const TensorSet& inputs);
  /// @param batch_head  batch * heads + head, over query heads  @param scaled  scale * q k
  ExactScore operator()(std::int64_t batch_head, std::int64_t query, std::int64_t key, double scaled) const;
  /// The learned sink of a row, where there is one; -inf is none.
  std::optional<double> sink(std::int64_t batch_head) const;

 private:
  AttentionProblem problem_;
  std::vector<double> slopes_, sinks_;  // by query head
};

/// What a pair's added magnitude costs its exponent: nothing where P is below 2^-24, which moves no sum.
inline double added_terms(const ExactScore& score, double prob) { return prob < 0x1p-24 ? 0.0 : score.added; }

}  // namespace tilescope
