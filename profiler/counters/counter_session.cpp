// SPDX-License-Identifier: Apache-2.0
#include "profiler/counters/counter_session.hpp"

#include <algorithm>

namespace tilescope {

CounterDevice CounterDevice::probe(const CuptiLibrary& library, CUcontext context, int device_index) {
  auto initialize = TILESCOPE_CUPTI_PARAMS(CUpti_Profiler_Initialize_Params);
  TILESCOPE_CUPTI_CALL(library, cuptiProfilerInitialize, &initialize);

  auto chip = TILESCOPE_CUPTI_PARAMS(CUpti_Device_GetChipName_Params);
  chip.deviceIndex = static_cast<std::size_t>(device_index);
  TILESCOPE_CUPTI_CALL(library, cuptiDeviceGetChipName, &chip);
  CounterDevice device{chip.pChipName, {}};

  auto availability = TILESCOPE_CUPTI_PARAMS(CUpti_Profiler_GetCounterAvailability_Params);
  availability.ctx = context;
  TILESCOPE_CUPTI_CALL(library, cuptiProfilerGetCounterAvailability, &availability);
  device.availability.resize(availability.counterAvailabilityImageSize);
  availability.pCounterAvailabilityImage = device.availability.data();
  TILESCOPE_CUPTI_CALL(library, cuptiProfilerGetCounterAvailability, &availability);
  return device;
}

namespace {

/// The image of a context's counters leaves out those of the links between devices, which lie outside of any
/// context: these are asked for without it.
std::vector<std::uint8_t> availability_of(const CounterDevice& device,
                                          const std::vector<std::string>& counters) {
  const bool links =
      std::ranges::all_of(counters, [](const std::string& name) { return name.starts_with("nvl"); });
  return links ? std::vector<std::uint8_t>{} : device.availability;
}

}  // namespace

CounterSession::CounterSession(std::shared_ptr<const CuptiLibrary> library, CUcontext context,
                               const CounterDevice& device, std::vector<std::string> counters, RangeMode mode,
                               int max_ranges)
    : library_(std::move(library)),
      availability_(availability_of(device, counters)),
      config_(library_, device.chip, std::move(counters), availability_),
      mode_(mode),
      max_ranges_(max_ranges) {
  auto enable = TILESCOPE_CUPTI_PARAMS(CUpti_RangeProfiler_Enable_Params);
  enable.ctx = context;
  TILESCOPE_CUPTI_CALL(*library_, cuptiRangeProfilerEnable, &enable);
  object_ = {enable.pRangeProfilerObject, [cupti = library_](CUpti_RangeProfiler_Object* object) {
               auto disable = TILESCOPE_CUPTI_PARAMS(CUpti_RangeProfiler_Disable_Params);
               disable.pRangeProfilerObject = object;
               cupti->cuptiRangeProfilerDisable(&disable);
             }};

  auto size = TILESCOPE_CUPTI_PARAMS(CUpti_RangeProfiler_GetCounterDataSize_Params);
  size.pRangeProfilerObject = object_.get();
  size.pMetricNames = config_.names();
  size.numMetrics = config_.counters().size();
  size.maxNumOfRanges = static_cast<std::size_t>(max_ranges_);
  size.maxNumRangeTreeNodes = static_cast<std::uint32_t>(max_ranges_);
  TILESCOPE_CUPTI_CALL(*library_, cuptiRangeProfilerGetCounterDataSize, &size);
  counter_data_.resize(size.counterDataSize);
  reset();
}

void CounterSession::reset() {
  auto image = TILESCOPE_CUPTI_PARAMS(CUpti_RangeProfiler_CounterDataImage_Initialize_Params);
  image.pRangeProfilerObject = object_.get();
  image.counterDataSize = counter_data_.size();
  image.pCounterData = counter_data_.data();
  TILESCOPE_CUPTI_CALL(*library_, cuptiRangeProfilerCounterDataImageInitialize, &image);

  auto config = TILESCOPE_CUPTI_PARAMS(CUpti_RangeProfiler_SetConfig_Params);
  config.pRangeProfilerObject = object_.get();
  config.configSize = config_.image().size();
  config.pConfig = config_.image().data();
  config.counterDataImageSize = counter_data_.size();
  config.pCounterDataImage = counter_data_.data();
  config.range = mode_ == RangeMode::every_kernel ? CUPTI_AutoRange : CUPTI_UserRange;
  config.replayMode = mode_ == RangeMode::every_kernel ? CUPTI_KernelReplay : CUPTI_UserReplay;
  config.maxRangesPerPass = static_cast<std::size_t>(max_ranges_);
  config.numNestingLevels = 1;
  config.minNestingLevel = 1;
  config.targetNestingLevel = 1;
  TILESCOPE_CUPTI_CALL(*library_, cuptiRangeProfilerSetConfig, &config);
}

void CounterSession::start() {
  auto params = TILESCOPE_CUPTI_PARAMS(CUpti_RangeProfiler_Start_Params);
  params.pRangeProfilerObject = object_.get();
  TILESCOPE_CUPTI_CALL(*library_, cuptiRangeProfilerStart, &params);
}

void CounterSession::push(const std::string& range) {
  auto params = TILESCOPE_CUPTI_PARAMS(CUpti_RangeProfiler_PushRange_Params);
  params.pRangeProfilerObject = object_.get();
  params.pRangeName = range.c_str();
  TILESCOPE_CUPTI_CALL(*library_, cuptiRangeProfilerPushRange, &params);
}

void CounterSession::pop() {
  auto params = TILESCOPE_CUPTI_PARAMS(CUpti_RangeProfiler_PopRange_Params);
  params.pRangeProfilerObject = object_.get();
  TILESCOPE_CUPTI_CALL(*library_, cuptiRangeProfilerPopRange, &params);
}

bool CounterSession::stop() {
  auto params = TILESCOPE_CUPTI_PARAMS(CUpti_RangeProfiler_Stop_Params);
  params.pRangeProfilerObject = object_.get();
  TILESCOPE_CUPTI_CALL(*library_, cuptiRangeProfilerStop, &params);
  return params.isAllPassSubmitted != 0;
}

void CounterSession::abandon() noexcept {
  for (const auto& end : {std::function([this] { pop(); }), std::function([this] { stop(); }),
                          std::function([this] { reset(); })}) {
    try {
      end();
    } catch (const std::exception&) {  // the error that led here is the one to tell
    }
  }
}

std::vector<RangeValues> CounterSession::collect() {
  auto decode = TILESCOPE_CUPTI_PARAMS(CUpti_RangeProfiler_DecodeData_Params);
  decode.pRangeProfilerObject = object_.get();
  TILESCOPE_CUPTI_CALL(*library_, cuptiRangeProfilerDecodeData, &decode);
  if (decode.numOfRangeDropped > 0) {
    throw CuptiError(0, "CUPTI dropped " + std::to_string(decode.numOfRangeDropped) + " ranges of counters");
  }
  auto info = TILESCOPE_CUPTI_PARAMS(CUpti_RangeProfiler_GetCounterDataInfo_Params);
  info.pCounterDataImage = counter_data_.data();
  info.counterDataImageSize = counter_data_.size();
  TILESCOPE_CUPTI_CALL(*library_, cuptiRangeProfilerGetCounterDataInfo, &info);
  std::vector<RangeValues> ranges;
  for (std::size_t index = 0; index < info.numTotalRanges; ++index) {
    auto range = TILESCOPE_CUPTI_PARAMS(CUpti_RangeProfiler_CounterData_GetRangeInfo_Params);
    range.pCounterDataImage = counter_data_.data();
    range.counterDataImageSize = counter_data_.size();
    range.rangeIndex = index;
    range.rangeDelimiter = "/";
    TILESCOPE_CUPTI_CALL(*library_, cuptiRangeProfilerCounterDataGetRangeInfo, &range);
    ranges.push_back({range.rangeName ? range.rangeName : "", config_.evaluate(counter_data_, index)});
  }
  reset();
  return ranges;
}

}  // namespace tilescope
