// SPDX-License-Identifier: Apache-2.0
// What becomes of a score between Q K^T and the softmax: the modifiers of a problem, each with f and f', and
// the state that a row of the softmax begins with.
#pragma once

#include <cmath>
#include <concepts>
#include <cstdlib>
#include <span>
#include <string>

namespace tilescope {

/// The modifiers of a problem, in the order in which a scaled score s of query i, key j and query head h
/// takes them:
///
///   softcap   s = softcap * tanh(s / softcap)                       Gemma 2 (arXiv:2408.00118)
///   alibi     s = s - alibi_slopes[h] * |i + seqlen_k - seqlen_q - j|   arXiv:2108.12409
///   log_bias  s = s - log_bias * log(1 + |i + seqlen_k - seqlen_q - j|)   KERPLE (arXiv:2205.09921)
///
/// With a learned sink, a row of head h begins with m = sink[h], l = 1, O = 0 instead of m = -inf, l = 0:
/// as if every query saw one more key, whose score is the sink and whose value is 0 (gpt-oss,
/// arXiv:2508.10925). A row that sees no key then has LSE = sink[h].
struct ScoreMods {
  double softcap = 0;         // 0: none
  bool alibi = false;         // with a slope a query head
  bool learned_sink = false;  // with a number a query head
  double log_bias = 0;        // 0: none

  bool any() const { return *this != ScoreMods{}; }
  bool operator==(const ScoreMods&) const = default;
};

/// Where a score stands.
struct ScorePlace {
  int query, key;
  int diagonal;  // seqlen_k - seqlen_q: query i stands at key i + diagonal

  int from_diagonal() const { return key - query - diagonal; }
};

/// A modifier of one query head: f(score), which may depend on where the score stands, and its derivative.
template <typename Mod>
concept ScoreMod = requires(const Mod& mod, float score, const ScorePlace& at) {
  { mod.value(score, at) } -> std::same_as<float>;
  { mod.derivative(score, at) } -> std::same_as<float>;
  { Mod::kAdds } -> std::convertible_to<bool>;  // its derivative is 1 everywhere
};

struct SoftCap {
  static constexpr bool kAdds = false;
  float cap;
  float value(float score, const ScorePlace&) const { return cap * std::tanh(score / cap); }
  /// 1 - tanh^2, without what is lost where tanh is almost 1.
  float derivative(float score, const ScorePlace&) const {
    const float e = std::exp(-2.0f * std::fabs(score / cap));
    return 4.0f * e / ((1.0f + e) * (1.0f + e));
  }
};
static_assert(ScoreMod<SoftCap>);

struct Alibi {
  static constexpr bool kAdds = true;
  float slope;
  float value(float score, const ScorePlace& at) const {
    return score - slope * static_cast<float>(std::abs(at.from_diagonal()));
  }
  float derivative(float, const ScorePlace&) const { return 1.0f; }
};
static_assert(ScoreMod<Alibi>);

struct LogBias {
  static constexpr bool kAdds = true;
  float weight;
  float value(float score, const ScorePlace& at) const {
    return score - weight * std::log1p(static_cast<float>(std::abs(at.from_diagonal())));
  }
  float derivative(float, const ScorePlace&) const { return 1.0f; }
};
static_assert(ScoreMod<LogBias>);

/// Calls visit(modifier) for those of one query head, in their order.
/// @param unit  of the scores: a scaled score is unit * score, since kernels fold the scale into the exponent
template <typename Visit>
void for_each_score_mod(const ScoreMods& mods, double unit, float alibi_slope, Visit&& visit) {
  const auto in_units = [unit](double value) { return static_cast<float>(value / unit); };
  if (mods.softcap > 0) visit(SoftCap{in_units(mods.softcap)});
  if (mods.alibi) visit(Alibi{in_units(alibi_slope)});
  if (mods.log_bias > 0) visit(LogBias{in_units(mods.log_bias)});
}

/// Whether scores are modified, and whether gradients are multiplied by a derivative.
inline bool change_scores(const ScoreMods& mods) {
  bool any = false;
  for_each_score_mod(mods, 1.0, 0.0f, [&any](const ScoreMod auto&) { any = true; });
  return any;
}
inline bool change_gradients(const ScoreMods& mods) {
  bool any = false;
  for_each_score_mod(mods, 1.0, 0.0f, [&any]<ScoreMod Mod>(const Mod&) { any = any || !Mod::kAdds; });
  return any;
}

/// The slope of a query head by ALiBi's paper: 2^(-8 (h + 1) / H), and where H is no power of 2 those of the
/// largest one below it, followed by every other one of twice as many.
float alibi_slope(int head, int heads);

/// A modifier as users name it: an option of the command line, a field of records, a field in Python.
struct ScoreModRow {
  const char* name;
  const char* type;  // of its number; "" where it is there or not
  const char* help;
  double example;                   // for who tries every modifier
  double (*get)(const ScoreMods&);  // 0: it is not there
  void (*set)(ScoreMods&, double);
};
std::span<const ScoreModRow> score_mod_rows();
/// Puts one on. @param text  its number; not looked at where it has none
/// @throws BadInput naming the modifier and what is allowed
void set_score_mod(ScoreMods& mods, const std::string& name, const std::string& text);
void set_score_mod(ScoreMods& mods, const std::string& name, double value);
/// @throws BadInput naming the first one that cannot be
void validate(const ScoreMods& mods);
/// " softcap 50 alibi learned-sink", or nothing.
std::string describe(const ScoreMods& mods);

}  // namespace tilescope
