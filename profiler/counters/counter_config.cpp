// SPDX-License-Identifier: Apache-2.0
#include "profiler/counters/counter_config.hpp"

namespace tilescope {

CuptiHost::CuptiHost(std::shared_ptr<const CuptiLibrary> library, const std::string& chip,
                     const std::vector<std::uint8_t>& availability, CUpti_ProfilerType type)
    : library_(std::move(library)) {
  auto params = TILESCOPE_CUPTI_PARAMS(CUpti_Profiler_Host_Initialize_Params);
  params.profilerType = type;
  params.pChipName = chip.c_str();
  params.pCounterAvailabilityImage = availability.empty() ? nullptr : availability.data();
  TILESCOPE_CUPTI_CALL(*library_, cuptiProfilerHostInitialize, &params);
  object_ = params.pHostObject;
}

CuptiHost::~CuptiHost() {
  auto params = TILESCOPE_CUPTI_PARAMS(CUpti_Profiler_Host_Deinitialize_Params);
  params.pHostObject = object_;
  library_->cuptiProfilerHostDeinitialize(&params);
}

CounterConfig::CounterConfig(std::shared_ptr<const CuptiLibrary> library, const std::string& chip,
                             std::vector<std::string> counters, const std::vector<std::uint8_t>& availability,
                             CUpti_ProfilerType type)
    : host_(std::move(library), chip, availability, type), counters_(std::move(counters)) {
  for (const std::string& counter : counters_) names_.push_back(counter.c_str());
  const CuptiLibrary& cupti = host_.library();

  auto add = TILESCOPE_CUPTI_PARAMS(CUpti_Profiler_Host_ConfigAddMetrics_Params);
  add.pHostObject = host_.get();
  add.ppMetricNames = names();
  add.numMetrics = names_.size();
  TILESCOPE_CUPTI_CALL(cupti, cuptiProfilerHostConfigAddMetrics, &add);

  auto size = TILESCOPE_CUPTI_PARAMS(CUpti_Profiler_Host_GetConfigImageSize_Params);
  size.pHostObject = host_.get();
  TILESCOPE_CUPTI_CALL(cupti, cuptiProfilerHostGetConfigImageSize, &size);
  image_.resize(size.configImageSize);

  auto image = TILESCOPE_CUPTI_PARAMS(CUpti_Profiler_Host_GetConfigImage_Params);
  image.pHostObject = host_.get();
  image.configImageSize = image_.size();
  image.pConfigImage = image_.data();
  TILESCOPE_CUPTI_CALL(cupti, cuptiProfilerHostGetConfigImage, &image);

  auto passes = TILESCOPE_CUPTI_PARAMS(CUpti_Profiler_Host_GetNumOfPasses_Params);
  passes.configImageSize = image_.size();
  passes.pConfigImage = image_.data();
  TILESCOPE_CUPTI_CALL(cupti, cuptiProfilerHostGetNumOfPasses, &passes);
  passes_ = static_cast<int>(passes.numOfPasses);
}

std::vector<double> CounterConfig::evaluate(const std::vector<std::uint8_t>& counter_data,
                                            std::size_t range) const {
  std::vector<double> values(counters_.size());
  auto params = TILESCOPE_CUPTI_PARAMS(CUpti_Profiler_Host_EvaluateToGpuValues_Params);
  params.pHostObject = host_.get();
  params.pCounterDataImage = counter_data.data();
  params.counterDataImageSize = counter_data.size();
  params.rangeIndex = range;
  params.ppMetricNames = names();
  params.numMetrics = values.size();
  params.pMetricValues = values.data();
  TILESCOPE_CUPTI_CALL(host_.library(), cuptiProfilerHostEvaluateToGpuValues, &params);
  return values;
}

}  // namespace tilescope
