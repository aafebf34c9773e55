// SPDX-License-Identifier: Apache-2.0
// The masks beside a band: each a file of this folder that states its regions, and a row of mask_models().
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cpu_ref/schedule/mask.hpp"
#include "cpu_ref/schedule/problem.hpp"

namespace tilescope {

struct MaskModel {
  MaskKind kind;
  std::string_view name;
  std::string_view form;     // of a rule: "sink:N"
  std::string_view summary;  // one line for `tilescope list masks`
  /// Its regions, of which no two have an entry in common.
  /// @param band  of a batch entry, without its padding
  std::vector<MaskRegion> (*regions)(const AttentionProblem& problem, const VisibleBand& band);
  /// @throws BadInput where the problem's rule does not fit the problem
  void (*validate)(const AttentionProblem& problem);
  /// Makes a problem one of a few tiles a side with such a mask, whose runs end within tiles and between
  /// them.
  void (*apply_example)(AttentionProblem& problem, TileShape tile);
  /// The length that the numbers tell; null: they tell none.
  std::int64_t (*seqlen)(const MaskRule& rule) = nullptr;
  bool by_rows = false;  // whether its numbers are in rows
};

std::span<const MaskModel> mask_models();
/// Precondition: not none.
const MaskModel& mask_model(MaskKind kind);

/// The error for a problem's rule.
BadInput bad_mask(const AttentionProblem& problem, const std::string& allowed);
/// @throws BadInput unless the rule has one number, from 1 to seqlen_k
void require_one_number_of_keys(const AttentionProblem& problem);

MaskModel sink_mask();
MaskModel prefix_mask();
MaskModel documents_mask();
MaskModel blocks_mask();
MaskModel tree_mask();
MaskModel block_causal_mask();

}  // namespace tilescope
