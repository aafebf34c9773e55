// SPDX-License-Identifier: Apache-2.0
#include "cpu_ref/schedule/masks/mask_models.hpp"

#include <algorithm>

#include "common/errors.hpp"
#include "common/nearest_names.hpp"
#include "common/quantity.hpp"

namespace tilescope {
namespace {

std::string text_of(const MaskRule& rule, std::size_t most_numbers) {
  if (!rule.any()) return "";
  std::string text(mask_model(rule.kind).name);
  bool in_row = false;  // whether a number of the row stands there
  for (std::size_t i = 0; i < std::min(rule.numbers.size(), most_numbers); ++i) {
    const bool next_row = rule.numbers[i] == kNextRow;
    if (i == 0) {
      text += ':';
    } else if (next_row || in_row) {
      text += next_row ? ';' : ',';
    }
    if (!next_row) text += std::to_string(rule.numbers[i]);
    in_row = !next_row;
  }
  if (rule.numbers.size() > most_numbers) text += in_row ? ",..." : "...";
  return text;
}

}  // namespace

std::span<const MaskModel> mask_models() {
  static const MaskModel all[] = {sink_mask(),   prefix_mask(), documents_mask(),
                                  blocks_mask(), tree_mask(),   block_causal_mask()};
  return all;
}

const MaskModel& mask_model(MaskKind kind) {
  const auto all = mask_models();
  return *std::find_if(all.begin(), all.end(), [kind](const MaskModel& model) { return model.kind == kind; });
}

BadInput bad_mask(const AttentionProblem& problem, const std::string& allowed) {
  return BadInput("mask", describe(problem.mask), allowed);
}

void require_one_number_of_keys(const AttentionProblem& problem) {
  const std::vector<std::int64_t>& numbers = problem.mask.numbers;
  if (numbers.size() == 1 && numbers[0] >= 1 && numbers[0] <= problem.seqlen_k) return;
  throw bad_mask(problem,
                 "must have one number of keys, 1 ... seqlen_k = " + std::to_string(problem.seqlen_k));
}

std::string to_string(const MaskRule& rule) { return text_of(rule, rule.numbers.size()); }

std::string describe(const MaskRule& rule) { return text_of(rule, 8); }

MaskRule parse_mask(const std::string& field, const std::string& text) {
  const std::size_t colon = std::min(text.find(':'), text.size());
  const std::string name = text.substr(0, colon);
  if (name == "causal" || name == "window") {
    throw BadInput(field, "'" + text + "'", "must stand beside it, as --causal or --window 1023,0");
  }
  if (text == "none") return {};
  const MaskModel& model = find_named(mask_models(), field, name);
  MaskRule rule{model.kind, {}};
  for (std::size_t begin = colon; begin < text.size();) {
    const std::size_t end = std::min(text.find_first_of(",;", begin + 1), text.size());
    const std::string_view word = std::string_view(text).substr(begin + 1, end - begin - 1);
    const bool row = text[begin] == ';';
    const auto number = read_count(word);
    const bool empty_row = row && word.empty();
    if ((row && !model.by_rows) || (!empty_row && (!number || *number < 0))) {
      throw BadInput(field, "'" + text + "'",
                     "must be " + std::string(model.form) +
                         ", in whole numbers, as in 512 or 4k; --causal and --window stand beside it");
    }
    if (row) rule.numbers.push_back(kNextRow);
    if (!empty_row) rule.numbers.push_back(*number);
    begin = end;
  }
  return rule;
}

}  // namespace tilescope
