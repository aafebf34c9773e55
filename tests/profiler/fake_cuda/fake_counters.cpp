// SPDX-License-Identifier: Apache-2.0
// Counters and samples of the fake libcupti. TILESCOPE_FAKE_LOG names a file that gets a line for each
// session that counters are opened and closed in.
#include <cuda.h>
#include <cupti.h>
#include <cupti_pmsampling.h>
#include <cupti_profiler_host.h>
#include <cupti_profiler_target.h>
#include <cupti_range_profiler.h>
#include <cupti_target.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "tests/profiler/fake_cuda/fake_cuda.hpp"

using fake_cuda::refusal;

namespace {

void note(const std::string& event, int device) {
  if (const char* path = std::getenv("TILESCOPE_FAKE_LOG")) {
    std::ofstream(path, std::ios::app) << event + " " + std::to_string(device) + "\n";
  }
}

/// One session of counters; its address is the first thing in its image of data.
struct Session {
  int device = 0;
  std::vector<std::string> ranges;
  bool started = false;
};

Session& session_of(const void* image) {
  Session* session = nullptr;
  std::memcpy(&session, image, sizeof session);
  return *session;
}

/// What a sampler of a device has to give. Its buffer is written behind time: the first records can be read
/// only when it has been asked a few times after the end.
struct Sampler {
  static constexpr int kSamples = 5, kAskedInVain = 3;
  int asked_after_stop = -1;  // -1: it runs
  int given = 0;              // samples, by the last decoding
};
Sampler sampler;

}  // namespace

extern "C" {

CUptiResult cuptiDeviceGetChipName(CUpti_Device_GetChipName_Params* parameters) {
  parameters->pChipName = "GH100";
  return CUPTI_SUCCESS;
}

CUptiResult cuptiProfilerGetCounterAvailability(CUpti_Profiler_GetCounterAvailability_Params*) {
  return refusal("cuptiProfilerGetCounterAvailability");
}

CUptiResult cuptiProfilerHostGetSupportedChips(CUpti_Profiler_Host_GetSupportedChips_Params* parameters) {
  static const char* chips[] = {"GH100"};
  parameters->ppChipNames = chips;
  parameters->numChips = 1;
  return CUPTI_SUCCESS;
}

/// The chip has one counter, fake__bytes, and those that TILESCOPE_FAKE_COUNTERS names, with spaces. All are
/// always 64.
CUptiResult cuptiProfilerHostGetBaseMetrics(CUpti_Profiler_Host_GetBaseMetrics_Params* parameters) {
  static const auto& all = *new std::vector<std::string>([] {
    const char* more = std::getenv("TILESCOPE_FAKE_COUNTERS");
    std::istringstream words(std::string("fake__bytes ") + (more ? more : ""));
    return std::vector<std::string>(std::istream_iterator<std::string>(words), {});
  }());
  static std::vector<const char*> names = [] {
    std::vector<const char*> texts;
    for (const std::string& name : all) texts.push_back(name.c_str());
    return texts;
  }();
  parameters->ppMetricNames = names.data();
  parameters->numMetrics = parameters->metricType == CUPTI_METRIC_TYPE_COUNTER ? names.size() : 0;
  return CUPTI_SUCCESS;
}

CUptiResult cuptiProfilerHostGetNumOfPasses(CUpti_Profiler_Host_GetNumOfPasses_Params* parameters) {
  parameters->numOfPasses = 1;
  return CUPTI_SUCCESS;
}

CUptiResult cuptiProfilerHostEvaluateToGpuValues(CUpti_Profiler_Host_EvaluateToGpuValues_Params* parameters) {
  std::fill_n(parameters->pMetricValues, parameters->numMetrics, 64.0);
  return CUPTI_SUCCESS;
}

CUptiResult cuptiRangeProfilerEnable(CUpti_RangeProfiler_Enable_Params* parameters) {
  auto* session = new Session{fake_cuda::device_of(parameters->ctx), {}, false};
  note("enable", session->device);
  parameters->pRangeProfilerObject = reinterpret_cast<CUpti_RangeProfiler_Object*>(session);
  return CUPTI_SUCCESS;
}

CUptiResult cuptiRangeProfilerDisable(CUpti_RangeProfiler_Disable_Params* parameters) {
  auto* session = reinterpret_cast<Session*>(parameters->pRangeProfilerObject);
  note("disable", session->device);
  delete session;
  return CUPTI_SUCCESS;
}

CUptiResult cuptiRangeProfilerGetCounterDataSize(CUpti_RangeProfiler_GetCounterDataSize_Params* parameters) {
  parameters->counterDataSize = sizeof(Session*);
  return refusal("cuptiRangeProfilerGetCounterDataSize");
}

CUptiResult cuptiRangeProfilerCounterDataImageInitialize(
    CUpti_RangeProfiler_CounterDataImage_Initialize_Params* parameters) {
  auto* session = reinterpret_cast<Session*>(parameters->pRangeProfilerObject);
  session->ranges.clear();
  std::memcpy(parameters->pCounterData, &session, sizeof session);
  return CUPTI_SUCCESS;
}

CUptiResult cuptiRangeProfilerStart(CUpti_RangeProfiler_Start_Params* parameters) {
  auto* session = reinterpret_cast<Session*>(parameters->pRangeProfilerObject);
  return std::exchange(session->started, true) ? CUPTI_ERROR_INVALID_OPERATION : CUPTI_SUCCESS;
}

CUptiResult cuptiRangeProfilerPushRange(CUpti_RangeProfiler_PushRange_Params* parameters) {
  reinterpret_cast<Session*>(parameters->pRangeProfilerObject)->ranges.emplace_back(parameters->pRangeName);
  return CUPTI_SUCCESS;
}

/// TILESCOPE_FAKE_ENDLESS: there is always another pass to come.
CUptiResult cuptiRangeProfilerStop(CUpti_RangeProfiler_Stop_Params* parameters) {
  parameters->isAllPassSubmitted = std::getenv("TILESCOPE_FAKE_ENDLESS") == nullptr;
  auto* session = reinterpret_cast<Session*>(parameters->pRangeProfilerObject);
  return std::exchange(session->started, false) ? refusal("cuptiRangeProfilerStop")
                                                : CUPTI_ERROR_INVALID_OPERATION;
}

CUptiResult cuptiRangeProfilerGetCounterDataInfo(CUpti_RangeProfiler_GetCounterDataInfo_Params* parameters) {
  parameters->numTotalRanges = session_of(parameters->pCounterDataImage).ranges.size();
  return CUPTI_SUCCESS;
}

CUptiResult cuptiRangeProfilerCounterDataGetRangeInfo(
    CUpti_RangeProfiler_CounterData_GetRangeInfo_Params* parameters) {
  parameters->rangeName = session_of(parameters->pCounterDataImage).ranges.at(parameters->rangeIndex).c_str();
  return CUPTI_SUCCESS;
}

CUptiResult cuptiPmSamplingEnable(CUpti_PmSampling_Enable_Params* parameters) {
  sampler = {};
  parameters->pPmSamplingObject = reinterpret_cast<CUpti_PmSampling_Object*>(&sampler);
  return CUPTI_SUCCESS;
}

CUptiResult cuptiPmSamplingStop(CUpti_PmSampling_Stop_Params*) {
  sampler.asked_after_stop = 0;
  return CUPTI_SUCCESS;
}

/// TILESCOPE_FAKE_SILENT: the sampler never has anything to give.
CUptiResult cuptiPmSamplingDecodeData(CUpti_PmSampling_DecodeData_Params* parameters) {
  parameters->decodeStopReason = CUPTI_PM_SAMPLING_DECODE_STOP_REASON_END_OF_RECORDS;
  const bool written = sampler.asked_after_stop == Sampler::kAskedInVain;
  if (sampler.asked_after_stop >= 0) ++sampler.asked_after_stop;
  sampler.given = written && !std::getenv("TILESCOPE_FAKE_SILENT") ? Sampler::kSamples : 0;
  return CUPTI_SUCCESS;
}

CUptiResult cuptiPmSamplingGetCounterDataInfo(CUpti_PmSampling_GetCounterDataInfo_Params* parameters) {
  parameters->numCompletedSamples = static_cast<std::size_t>(sampler.given);
  return CUPTI_SUCCESS;
}

/// Of 0.16 ms each, behind a first one that reaches back for a second.
CUptiResult cuptiPmSamplingCounterDataGetSampleInfo(
    CUpti_PmSampling_CounterData_GetSampleInfo_Params* parameters) {
  constexpr std::uint64_t kFirst_ns = 1'000'000'000, kOther_ns = 160'000;
  const std::uint64_t before = parameters->sampleIndex;
  parameters->startTimestamp = before == 0 ? 0 : kFirst_ns + (before - 1) * kOther_ns;
  parameters->endTimestamp = kFirst_ns + before * kOther_ns;
  return CUPTI_SUCCESS;
}

}  // extern "C"
