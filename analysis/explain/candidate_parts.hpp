// SPDX-License-Identifier: Apache-2.0
// What the files of candidate programs share: passes as data, and the collector of their bytes.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "analysis/explain/candidate_programs.hpp"
#include "cpu_ref/schedule/program_parts.hpp"

namespace tilescope {

/// A pass without inner tiles: it reads and writes each element of some tensors once.
TileProgram elementwise(const AttentionProblem& problem, Axis axis, std::vector<Operand> loads,
                        std::vector<Operand> stores);

/// Of an fp32 sum, and of a row's lse and delta.
inline constexpr std::int64_t kSumBytes = 4;

/// Rows that tiles of `rows` have beyond the queries, over all heads.
std::int64_t rows_beyond(const AttentionProblem& problem, std::int64_t rows);

/// What CTAs read of FlexAttention's tables, which name the blocks of 128 x 128 that one visits, those that
/// the mask cuts and those that it leaves whole: of either, a number, and the indices in a row. [bytes]
std::int64_t block_table_bytes(const TileProgram& program);

/// Panels of boxes: how much of a row the copy engine takes at a time.
enum class Panels : std::uint8_t {
  of_128_bytes,  // the last of a row ends beyond the tensor
  that_divide,   // the widest that a row holds a whole number of
};
/// The program with its matrices copied by boxes of a tile's rows.
/// @param only those of them; empty: all that it loads
/// Empty where rows are no multiple of what the copy engine takes.
std::optional<TileProgram> by_boxes(TileProgram program, Panels panels,
                                    std::span<const TensorName> only = {});
/// The kinds of panels in which the problem's rows are not copied alike; one where there is no difference.
std::vector<Panels> panels_of(const AttentionProblem& problem);
/// ", in panels of 128 bytes" where there are other kinds.
std::string panels_text(const AttentionProblem& problem, Panels panels);

class CandidateCollector {
 public:
  explicit CandidateCollector(Direction direction) : direction_(direction) {}

  /// @param parts what one launch does, the part that its grid belongs to first
  /// @param kv_sharing query heads of one CTA that one load of a K or V tile serves
  CandidateProgram& add(const std::string& name, const std::string& convention,
                        std::vector<TileProgram> parts, std::int64_t kv_sharing = 1);
  /// Forgets the one that was added last.
  void drop_last() { found_.pop_back(); }
  std::vector<CandidateProgram> take() { return std::move(found_); }

 private:
  Direction direction_;
  std::vector<CandidateProgram> found_;
};

/// Forward passes of a tile.
/// @param splits numbers of CTAs among which the keys of a q tile may be divided
void add_forward(CandidateCollector& collector, const AttentionProblem& problem, TileShape tile,
                 std::span<const int> splits);
/// Passes that combine what so many splits left.
void add_combining(CandidateCollector& collector, const AttentionProblem& problem,
                   std::span<const int> splits);
/// Backward passes of a tile.
/// @param splits numbers of CTAs among which the kv tiles of a head may be divided
void add_backward(CandidateCollector& collector, const AttentionProblem& problem, TileShape tile,
                  std::span<const int> splits);
/// What is done beside the pass with the products, to each element once.
void add_passes_around_backward(CandidateCollector& collector, const AttentionProblem& problem);

}  // namespace tilescope
