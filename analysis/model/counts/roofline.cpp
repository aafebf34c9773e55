// SPDX-License-Identifier: Apache-2.0
#include "analysis/model/counts/roofline.hpp"

#include <algorithm>

namespace tilescope {

std::optional<double> KernelWork::amount(CeilingKind kind) const {
  const auto known = [](const std::optional<std::int64_t>& bytes) {
    return bytes ? std::optional(static_cast<double>(*bytes)) : std::nullopt;
  };
  switch (kind) {
    case CeilingKind::peak:
      return static_cast<double>(flops);
    case CeilingKind::sm_l2:
      return known(sm_l2_bytes);
    case CeilingKind::dram:
      return known(dram_bytes);
    case CeilingKind::exponentials:
      return static_cast<double>(exponentials);
    case CeilingKind::link:
      return known(link_bytes);
  }
  return std::nullopt;
}

namespace {

Ceiling ceiling_from(CeilingKind kind, std::string name, double per_second, const std::string& evidence) {
  return {kind, std::move(name), per_second, evidence == "measured", is_documented(evidence), evidence};
}

}  // namespace

std::optional<Ceiling> link_ceiling(const Machine& machine) {
  if (!machine.link_bytes_per_second) return std::nullopt;
  return ceiling_from(CeilingKind::link, "link bandwidth", machine.link_bytes_per_second->value,
                      machine.link_bytes_per_second->kind);
}

std::vector<Ceiling> ceilings_of(const Machine& machine, ElementType dtype) {
  std::vector<Ceiling> ceilings;
  const auto add = [&ceilings](CeilingKind kind, std::string name, double per_second,
                               const std::string& evidence) {
    ceilings.push_back(ceiling_from(kind, std::move(name), per_second, evidence));
  };
  const std::string type(to_string(dtype));
  if (const auto peak = machine.peak_flops_per_second.find(type);
      peak != machine.peak_flops_per_second.end()) {
    add(CeilingKind::peak, type + " peak", peak->second.value, peak->second.kind);
  }
  if (const auto& l2 = machine.l2_bytes_per_second) {
    add(CeilingKind::sm_l2, "SM<->L2 bandwidth", l2->value, l2->kind);
  }
  add(CeilingKind::dram, "DRAM bandwidth", machine.dram_bytes_per_second.value,
      machine.dram_bytes_per_second.kind);
  if (const auto rate = machine.exponentials_per_second()) {
    add(CeilingKind::exponentials, "exponentials", *rate, machine.exponentials_per_clock_per_sm->kind);
  }
  return ceilings;
}

const Ceiling* find(const std::vector<Ceiling>& ceilings, CeilingKind kind) {
  const auto found = std::find_if(ceilings.begin(), ceilings.end(),
                                  [kind](const Ceiling& ceiling) { return ceiling.kind == kind; });
  return found == ceilings.end() ? nullptr : &*found;
}

std::vector<Ceiling> best_documented(const std::vector<Ceiling>& stated,
                                     const std::vector<Ceiling>& measured) {
  std::vector<Ceiling> chosen = stated;
  for (const Ceiling& ceiling : measured) {
    if (!ceiling.measured) continue;
    const auto same = std::find_if(chosen.begin(), chosen.end(),
                                   [&ceiling](const Ceiling& other) { return other.kind == ceiling.kind; });
    if (same == chosen.end()) {
      chosen.push_back(ceiling);
    } else {
      *same = ceiling;
    }
  }
  return chosen;
}

Roofline roofline(const KernelWork& work, const std::vector<Ceiling>& ceilings) {
  Roofline result;
  for (const Ceiling& ceiling : ceilings) {
    const std::optional<double> amount = work.amount(ceiling.kind);
    if (!amount || *amount == 0) continue;
    const double seconds = *amount / ceiling.per_second;
    if (result.least_seconds && *result.least_seconds >= seconds) continue;
    result.least_seconds = seconds;
    result.limit = ceiling.name;
  }
  if (result.least_seconds)
    result.attainable_flops_per_second = static_cast<double>(work.flops) / *result.least_seconds;
  return result;
}

std::optional<double> share_of(const Ceiling& ceiling, const KernelWork& work, double seconds) {
  const std::optional<double> amount = work.amount(ceiling.kind);
  if (!amount || *amount == 0 || seconds <= 0) return std::nullopt;
  return *amount / seconds / ceiling.per_second;
}

}  // namespace tilescope
