// SPDX-License-Identifier: Apache-2.0
// The judge at lengths where not every row can be computed in fp64: a few rows of each output, exactly. A row
// costs seqlen x head_dim, so that rows can be judged at every length that a kernel is measured at.
#pragma once

#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "cpu_ref/judge/equivalence.hpp"

namespace tilescope {

/// Rows of one key/value head and of the query heads that share it.
struct SampledHead {
  std::int64_t batch_head_kv = 0;
  std::vector<std::pair<std::int64_t, std::int64_t>> queries;  // query head (batch * heads + head), row
  std::vector<std::int64_t> keys;
};

/// `rows` query rows and as many key rows, spread over at most four key/value heads; the first and the last
/// row of a head, others by chance. All rows where there are no more.
std::vector<SampledHead> sample_rows(const AttentionProblem& problem, std::int64_t rows);

/// Judges sampled rows of a kernel's results.
///
/// out, lse and dq of a query are exact: from q, k, v and dout alone. dk and dv of a key need the LSE and
/// delta of every query, which cost seqlen^2: they follow, in fp64, from the kernel's own lse and out, which
/// have been judged. A row is held to
///
///   3 g 2^-24 cost + 2 epsilon (root + by_out) + one unit in the last place of the result
///
/// with the sizes of that row's own terms (error_scale.hpp): fp32 arithmetic, by least_bound's factor 3,
/// where g = max(1, sqrt(seqlen / 4096)) for the length of sums; P and dS rounded to the element type, errors
/// even over a unit, added like the root of their squares. Standard attention rounds S and dP too: every term
/// once, as the limit of the yardstick's error has it. Where a kernel sums fp8 as tensor cores do, its rows
/// are those of the scores that are summed so (fp8_dot.hpp): the bounds stay. Descales are those that the
/// problem makes; those of data, which it cannot, are refused. The same goes for the numbers of heads that
/// modifiers ask for. The gradient of a learned sink sums over all rows, and is judged where all are.
class RowJudge {
 public:
  /// Reads one head of a tensor: (1, 1, rows, cols) in the tensor's element type.
  using HeadReader = std::function<Tensor(TensorName, std::int64_t batch_head)>;

  RowJudge(const AttentionProblem& problem, Algorithm algorithm, Direction direction, std::int64_t rows,
           Fp8Sums sums = Fp8Sums::fp32);
  /// Reads q, k, v, out and lse. Keeps what backward() needs of out and lse.
  void forward(const HeadReader& read);
  /// Reads q, k, v, dout, dq, dk and dv.
  void backward(const HeadReader& read);
  const Verdict& verdict() const { return verdict_; }

 private:
  AttentionProblem problem_;
  Algorithm algorithm_;
  Direction direction_;
  Fp8Sums sums_;
  std::vector<SampledHead> heads_;
  TensorSet made_;  // the problem's descales and numbers of heads, and nothing else
  std::map<std::int64_t, std::pair<Tensor, Tensor>> out_and_lse_;  // by query head
  Verdict verdict_;
};

/// One head of a tensor in host memory.
Tensor copy_head(const Tensor& tensor, std::int64_t batch_head);

}  // namespace tilescope
