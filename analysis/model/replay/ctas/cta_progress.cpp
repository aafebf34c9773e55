// SPDX-License-Identifier: Apache-2.0
#include "analysis/model/replay/ctas/cta_progress.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <vector>

#include "common/statistics.hpp"

namespace tilescope {
namespace {

/// A CTA's notes on a clock that does not wrap. [cycles]
struct Cta {
  std::vector<std::int64_t> begun;
  bool runs_throughout(std::int64_t from, std::int64_t to) const {
    return begun.front() <= from && to <= begun.back();
  }
  /// It is on the SM before its first note, and for more than a step after its last.
  bool may_run_within(std::int64_t from, std::int64_t to) const {
    const std::int64_t margin = begun.size() < 2 ? to - from : 2 * (begun.back() - begun[begun.size() - 2]);
    return begun.front() - margin < to && from < begun.back() + margin;
  }
};

/// Steps and the time that they took.
struct Steps {
  double count = 0, cycles = 0;
  void add(double steps, double in_cycles) { count += steps, cycles += in_cycles; }
  double mean_cycles() const { return cycles / count; }
};

/// The CTAs of one SM, in issue order: older ones first.
struct Sm {
  std::vector<Cta> ctas;
  std::uint32_t last = 0;  // note
  std::int64_t now = 0;
};

std::map<int, Sm> by_sm(const StepTimes& times) {
  std::map<int, Sm> sms;
  for (const CtaStepTimes& cta : times.ctas) {
    if (cta.begun.empty()) continue;
    Sm& sm = sms[cta.sm];
    Cta& here = sm.ctas.emplace_back();
    for (const std::uint32_t begun : cta.begun) {
      sm.now += static_cast<std::int32_t>(begun - sm.last);
      sm.last = begun;
      here.begun.push_back(sm.now);
    }
  }
  return sms;
}

}  // namespace

std::optional<MeasuredProgress> measured_progress(const StepTimes& times, int ctas_per_sm) {
  constexpr double kFewSteps = 8;  // say little about a CTA
  Steps oldest, younger, alone;
  std::vector<double> spans_of_oldest;
  for (const auto& [id, sm] : by_sm(times)) {
    const std::vector<Cta>& ctas = sm.ctas;
    for (std::size_t c = 0; c < ctas.size(); ++c) {
      Steps as_oldest;
      std::vector<double> spans;  // as oldest
      // The first step waits for its loads, and nothing is noted at the end of the last.
      for (std::size_t k = 1; k + 1 < ctas[c].begun.size(); ++k) {
        const std::int64_t from = ctas[c].begun[k], to = ctas[c].begun[k + 1];
        int beside = 0, older = 0, partly = 0;
        for (std::size_t other = 0; other < ctas.size(); ++other) {
          if (other == c || !ctas[other].may_run_within(from, to)) continue;
          ++(ctas[other].runs_throughout(from, to) ? beside : partly);
          older += other < c;
        }
        if (partly > 0) continue;
        const auto cycles = static_cast<double>(to - from);
        if (beside + 1 == ctas_per_sm) {
          (older == 0 ? as_oldest : younger).add(times.every, cycles);
          if (older == 0) spans.push_back(cycles);
        } else if (beside == 0) {
          alone.add(times.every, cycles);
        }
      }
      oldest.add(as_oldest.count, as_oldest.cycles);
      if (as_oldest.count < kFewSteps) continue;
      const double mean_span = as_oldest.mean_cycles() * times.every;
      for (const double span : spans) spans_of_oldest.push_back(span / mean_span);
    }
  }
  if (oldest.count == 0) return std::nullopt;
  MeasuredProgress measured;
  measured.ctas_per_sm = ctas_per_sm;
  measured.step_cycles = oldest.mean_cycles();
  if (younger.count > 0) measured.rates.younger_rate = measured.step_cycles / younger.mean_cycles();
  if (alone.count > 0) measured.rates.alone_rate = measured.step_cycles / alone.mean_cycles();
  if (spans_of_oldest.size() > 1) {
    measured.rates.step_cv = coefficient_of_variation(spans_of_oldest) * std::sqrt(times.every);
  }
  return measured;
}

double measured_tpc_cv(const std::map<int, double>& cycles) {
  double sum = 0;
  for (const auto& [sm, of_sm] : cycles) sum += of_sm;
  const double mean = sum / static_cast<double>(cycles.size());
  double in_common = 0;
  int tpcs = 0;
  for (const auto& [sm, of_sm] : cycles) {
    const auto mate = cycles.find(sm + 1);
    if (sm % 2 != 0 || mate == cycles.end()) continue;
    in_common += (of_sm / mean - 1) * (mate->second / mean - 1);
    ++tpcs;
  }
  return tpcs == 0 ? 0 : std::sqrt(std::max(0.0, in_common / tpcs));
}

}  // namespace tilescope
