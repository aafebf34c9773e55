// SPDX-License-Identifier: Apache-2.0
// libcupti, found and loaded while the program runs. Only the current interfaces of CUDA 12.6 and newer:
// Profiler Host, Range Profiler, PM sampling, Activity and Callback.
#pragma once

#include <cupti.h>
#include <cupti_pmsampling.h>
#include <cupti_profiler_host.h>
#include <cupti_profiler_target.h>
#include <cupti_range_profiler.h>
#include <cupti_target.h>

#include <memory>
#include <string>
#include <vector>

#include "profiler/counters/cupti_error.hpp"
#include "profiler/driver/shared_object.hpp"

namespace tilescope {

#define TILESCOPE_CUPTI_FUNCTIONS(X)              \
  X(cuptiGetVersion)                              \
  X(cuptiSubscribe)                               \
  X(cuptiUnsubscribe)                             \
  X(cuptiEnableCallback)                          \
  X(cuptiEnableDomain)                            \
  X(cuptiActivityRegisterCallbacks)               \
  X(cuptiActivityEnable)                          \
  X(cuptiActivityDisable)                         \
  X(cuptiActivityFlushAll)                        \
  X(cuptiActivityGetNextRecord)                   \
  X(cuptiActivityGetNumDroppedRecords)            \
  X(cuptiDeviceGetChipName)                       \
  X(cuptiProfilerInitialize)                      \
  X(cuptiProfilerDeInitialize)                    \
  X(cuptiProfilerGetCounterAvailability)          \
  X(cuptiProfilerHostInitialize)                  \
  X(cuptiProfilerHostDeinitialize)                \
  X(cuptiProfilerHostGetSupportedChips)           \
  X(cuptiProfilerHostGetBaseMetrics)              \
  X(cuptiProfilerHostGetSubMetrics)               \
  X(cuptiProfilerHostGetMetricProperties)         \
  X(cuptiProfilerHostConfigAddMetrics)            \
  X(cuptiProfilerHostGetConfigImageSize)          \
  X(cuptiProfilerHostGetConfigImage)              \
  X(cuptiProfilerHostGetNumOfPasses)              \
  X(cuptiProfilerHostEvaluateToGpuValues)         \
  X(cuptiRangeProfilerEnable)                     \
  X(cuptiRangeProfilerDisable)                    \
  X(cuptiRangeProfilerSetConfig)                  \
  X(cuptiRangeProfilerStart)                      \
  X(cuptiRangeProfilerStop)                       \
  X(cuptiRangeProfilerPushRange)                  \
  X(cuptiRangeProfilerPopRange)                   \
  X(cuptiRangeProfilerDecodeData)                 \
  X(cuptiRangeProfilerGetCounterDataSize)         \
  X(cuptiRangeProfilerCounterDataImageInitialize) \
  X(cuptiRangeProfilerGetCounterDataInfo)         \
  X(cuptiRangeProfilerCounterDataGetRangeInfo)    \
  X(cuptiPmSamplingGetCounterAvailability)        \
  X(cuptiPmSamplingEnable)                        \
  X(cuptiPmSamplingDisable)                       \
  X(cuptiPmSamplingSetConfig)                     \
  X(cuptiPmSamplingStart)                         \
  X(cuptiPmSamplingStop)                          \
  X(cuptiPmSamplingDecodeData)                    \
  X(cuptiPmSamplingGetCounterDataSize)            \
  X(cuptiPmSamplingCounterDataImageInitialize)    \
  X(cuptiPmSamplingGetCounterDataInfo)            \
  X(cuptiPmSamplingCounterDataGetSampleInfo)

/// The functions of one loaded libcupti, under CUPTI's own names.
class CuptiLibrary {
 public:
  /// Looks in this order: `path` or else the environment variable TILESCOPE_CUPTI (a file or a folder), a
  /// copy that this process has loaded already, the CUDA toolkit, the loader's search path, the Python
  /// environment.
  /// @throws MachineLacks naming every place that was tried, or the function that the library is too old for
  static std::shared_ptr<const CuptiLibrary> load(const std::string& path = "");

  /// The places that load() would look in, in order.
  static std::vector<std::string> candidates(const std::string& path = "");

  std::string path() const;  // of the file that was loaded

#define TILESCOPE_DECLARE(name) decltype(&::name) name = nullptr;
  TILESCOPE_CUPTI_FUNCTIONS(TILESCOPE_DECLARE)
#undef TILESCOPE_DECLARE

 private:
  explicit CuptiLibrary(SharedObject object);
  SharedObject object_;
};

/// A parameter structure of CUPTI, zeroed and with its size set, as every call asks for.
#define TILESCOPE_CUPTI_PARAMS(Type)        \
  [] {                                      \
    Type params{};                          \
    params.structSize = Type##_STRUCT_SIZE; \
    return params;                          \
  }()

/// Calls a function of a library and throws on failure (check_cupti).
#define TILESCOPE_CUPTI_CALL(library, function, ...) \
  ::tilescope::check_cupti((library).function(__VA_ARGS__), #function)

}  // namespace tilescope
