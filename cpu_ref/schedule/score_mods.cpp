// SPDX-License-Identifier: Apache-2.0
#include "cpu_ref/schedule/score_mods.hpp"

#include <algorithm>
#include <bit>
#include <limits>
#include <sstream>

#include "common/errors.hpp"

namespace tilescope {
namespace {

constexpr ScoreModRow kScoreModRows[] = {
    {"softcap", "X", "scores s become X tanh(s / X), as in Gemma 2, where X is 50; 0: they stay", 2.0,
     [](const ScoreMods& mods) { return mods.softcap; },
     [](ScoreMods& mods, double value) { mods.softcap = value; }},
    {"alibi", "", "scores lose a slope of their head's for every key from the diagonal", 1.0,
     [](const ScoreMods& mods) { return mods.alibi ? 1.0 : 0.0; },
     [](ScoreMods& mods, double value) { mods.alibi = value != 0; }},
    {"learned_sink", "", "each head's softmax has one more term, learned and without a value, as in gpt-oss",
     1.0, [](const ScoreMods& mods) { return mods.learned_sink ? 1.0 : 0.0; },
     [](ScoreMods& mods, double value) { mods.learned_sink = value != 0; }},
    {"log_bias", "X", "scores lose X log(1 + keys from the diagonal), as in KERPLE; 0: nothing", 0.5,
     [](const ScoreMods& mods) { return mods.log_bias; },
     [](ScoreMods& mods, double value) { mods.log_bias = value; }},
};

const ScoreModRow& score_mod_row_of(const std::string& name) {
  return *std::find_if(std::begin(kScoreModRows), std::end(kScoreModRows),
                       [&name](const ScoreModRow& row) { return name == row.name; });
}

std::string score_mod_number(double value) {
  std::ostringstream text;
  text << value;
  return text.str();
}

bool takes(double value) { return value >= 0 && value <= std::numeric_limits<float>::max(); }

[[noreturn]] void refuse_score_mod(const ScoreModRow& row, const std::string& text) {
  throw BadInput(row.name, text,
                 "must be a number from 0 on that fp32 can hold; 0 leaves scores as they are");
}

}  // namespace

float alibi_slope(int head, int heads) {
  const auto below = static_cast<int>(std::bit_floor(static_cast<unsigned>(heads)));
  const double exponent = head < below ? 8.0 * (head + 1) / below : 4.0 * (2 * (head - below) + 1) / below;
  return static_cast<float>(std::exp2(-exponent));
}

std::span<const ScoreModRow> score_mod_rows() { return kScoreModRows; }

void set_score_mod(ScoreMods& mods, const std::string& name, double value) {
  const ScoreModRow& row = score_mod_row_of(name);
  if (*row.type != 0 && !takes(value)) refuse_score_mod(row, score_mod_number(value));
  row.set(mods, value);
}

void set_score_mod(ScoreMods& mods, const std::string& name, const std::string& text) {
  const ScoreModRow& row = score_mod_row_of(name);
  if (*row.type == 0) return row.set(mods, 1.0);
  std::istringstream stream(text);
  double value = 0;
  if (!(stream >> value) || !stream.eof()) refuse_score_mod(row, text);
  set_score_mod(mods, name, value);
}

void validate(const ScoreMods& mods) {
  for (const ScoreModRow& row : kScoreModRows) {
    const double value = row.get(mods);
    if (!takes(value)) refuse_score_mod(row, score_mod_number(value));
  }
}

std::string describe(const ScoreMods& mods) {
  std::string text;
  for (const ScoreModRow& row : kScoreModRows) {
    if (row.get(mods) == 0) continue;
    std::string name = row.name;
    std::replace(name.begin(), name.end(), '_', '-');
    text += " " + name + (*row.type == 0 ? "" : " " + score_mod_number(row.get(mods)));
  }
  return text;
}

}  // namespace tilescope
