// SPDX-License-Identifier: Apache-2.0
#include "profiler/counters/metric_catalogue.hpp"

#include <algorithm>

#include "profiler/counters/counter_config.hpp"

namespace tilescope {
namespace {

constexpr int kInvalidParameter = 1, kInvalidMetricName = 17;

std::string base_name(const std::string& counter) { return counter.substr(0, counter.find('.')); }

void append_base_names(const CuptiHost& host, CUpti_MetricType type, std::vector<std::string>& names) {
  auto params = TILESCOPE_CUPTI_PARAMS(CUpti_Profiler_Host_GetBaseMetrics_Params);
  params.pHostObject = host.get();
  params.metricType = type;
  TILESCOPE_CUPTI_CALL(host.library(), cuptiProfilerHostGetBaseMetrics, &params);
  names.insert(names.end(), params.ppMetricNames, params.ppMetricNames + params.numMetrics);
}

std::vector<std::string> supported_chips(const CuptiLibrary& library) {
  auto params = TILESCOPE_CUPTI_PARAMS(CUpti_Profiler_Host_GetSupportedChips_Params);
  TILESCOPE_CUPTI_CALL(library, cuptiProfilerHostGetSupportedChips, &params);
  return {params.ppChipNames, params.ppChipNames + params.numChips};
}

void require_known_chip(const CuptiLibrary& library, const std::string& chip) {
  const std::vector<std::string> chips = supported_chips(library);
  if (std::ranges::find(chips, chip) != chips.end()) return;
  std::string allowed;
  for (const std::string& name : chips) allowed += (allowed.empty() ? "" : ", ") + name;
  throw BadInput("chip", chip, "must be one that this libcupti knows: " + allowed);
}

}  // namespace

struct MetricCatalogue::State {
  std::shared_ptr<const CuptiLibrary> library;
  std::string chip;
  CuptiHost host;
  std::vector<std::string> base_names;
};

MetricCatalogue::MetricCatalogue(const std::string& chip) {
  const auto library = CuptiLibrary::load();
  require_known_chip(*library, chip);
  state_.reset(new State{library, chip, {library, chip}, {}});
  for (const CUpti_MetricType type :
       {CUPTI_METRIC_TYPE_COUNTER, CUPTI_METRIC_TYPE_RATIO, CUPTI_METRIC_TYPE_THROUGHPUT}) {
    append_base_names(state_->host, type, state_->base_names);
  }
  std::ranges::sort(state_->base_names);
}

MetricCatalogue::~MetricCatalogue() = default;
MetricCatalogue::MetricCatalogue(MetricCatalogue&&) noexcept = default;

std::vector<std::string> MetricCatalogue::chips() { return supported_chips(*CuptiLibrary::load()); }

const std::string& MetricCatalogue::chip() const { return state_->chip; }
const std::vector<std::string>& MetricCatalogue::base_names() const { return state_->base_names; }

bool MetricCatalogue::has(const std::string& counter) const {
  const auto& names = state_->base_names;
  if (!std::ranges::binary_search(names, base_name(counter))) return false;
  try {
    CounterConfig(state_->library, state_->chip, {counter});
    return true;
  } catch (const CuptiError& error) {
    if (error.code() == kInvalidParameter || error.code() == kInvalidMetricName) return false;
    throw;
  }
}

std::string MetricCatalogue::description(const std::string& counter) const {
  auto params = TILESCOPE_CUPTI_PARAMS(CUpti_Profiler_Host_GetMetricProperties_Params);
  params.pHostObject = state_->host.get();
  params.pMetricName = counter.c_str();
  if (state_->library->cuptiProfilerHostGetMetricProperties(&params) != CUPTI_SUCCESS) return "";
  return params.pDescription ? params.pDescription : "";
}

int MetricCatalogue::passes(const std::vector<std::string>& counters) const {
  return counters.empty() ? 0 : CounterConfig(state_->library, state_->chip, counters).passes();
}

}  // namespace tilescope
