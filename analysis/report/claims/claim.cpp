// SPDX-License-Identifier: Apache-2.0
#include "analysis/report/claims/claim.hpp"

#include <fmt/format.h>

#include <cmath>
#include <map>

namespace tilescope {

std::string_view to_string(Verdict verdict) {
  constexpr std::string_view names[] = {"holds", "holds in part", "does not hold", "not comparable",
                                        "not tested"};
  return names[static_cast<std::size_t>(verdict)];
}

Verdict verdict_of_cases(std::size_t agree, std::size_t all) {
  if (all == 0) return Verdict::not_tested;
  return agree == all ? Verdict::holds : agree == 0 ? Verdict::fails : Verdict::in_part;
}

Verdict verdict_of_constant(const Range& range) {
  if (range.count == 0) return Verdict::not_tested;
  return range.ratio() <= kMostOfConstant ? Verdict::holds : Verdict::fails;
}

Judgement judge_number(const Circumstances& printed, const Circumstances& here, double claimed, double value,
                       double tolerance, const std::string& found) {
  std::vector<std::string> differences;
  for (const auto& [of_paper, ours] : {std::pair(printed.device, here.device),
                                       {printed.kernel, here.kernel},
                                       {printed.boundary, here.boundary}}) {
    if (of_paper != ours) differences.push_back(fmt::format("{} there, {} here", of_paper, ours));
  }
  if (!differences.empty())
    return {Verdict::not_comparable, fmt::format("{}. {}", fmt::join(differences, "; "), found)};
  const bool near = std::abs(value / claimed - 1) <= tolerance;
  return {near ? Verdict::holds : Verdict::fails, found};
}

Section claims_matrix(const Evidence& evidence) {
  struct Paper {
    const char* title;
    std::span<const Claim> claims;
  };
  const Paper papers[] = {{"FlashAttention (arXiv:2205.14135)", flash1_claims()},
                          {"FlashAttention-2 (arXiv:2307.08691)", flash2_claims()},
                          {"FlashAttention-3 (arXiv:2407.08608)", flash3_claims()},
                          {"Lower bounds", bound_claims()},
                          {"TileScope's own", own_claims()}};
  Table table{"", {{"claim"}, {"boundary"}, {"hypotheses"}, {"experiment"}, {"verdict"}, {"evidence"}}, {}};
  std::map<Verdict, std::size_t> counts;
  for (const Paper& paper : papers) {
    table.rows.push_back({paper.title});
    for (const Claim& claim : paper.claims) {
      const Judgement judgement = claim.judge ? claim.judge(evidence) : Judgement{};
      ++counts[judgement.verdict];
      const std::string sentence = judgement.sentence.empty() ? "" : ": " + judgement.sentence;
      table.rows.push_back({fmt::format("**{}**: {}", claim.place, claim.text), claim.boundary,
                            claim.hypotheses, claim.experiment,
                            fmt::format("**{}**{}", to_string(judgement.verdict), sentence), claim.evidence});
    }
  }
  std::string summary;
  for (const auto& [verdict, count] : counts)
    summary += fmt::format("{}{} {}", summary.empty() ? "" : ", ", count, to_string(verdict));
  return Section{
      "claims",
      "The papers' claims",
      {Paragraph{fmt::format(
           "Verdicts are made from the records by rules. **Cases**: all bear a claim out, some, or none. "
           "**Growth**: accesses over what they are said to grow as stay within a factor of {:g} over all "
           "points "
           "that meet the hypotheses. **Numbers**: those of another device, kernel or boundary do not "
           "compare. "
           "Figures that draw an algorithm and print no number have no row. In all: {}.",
           kMostOfConstant, summary)},
       std::move(table)}};
}

}  // namespace tilescope
