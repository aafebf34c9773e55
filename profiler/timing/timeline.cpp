// SPDX-License-Identifier: Apache-2.0
#include "profiler/timing/timeline.hpp"

#include <atomic>
#include <chrono>
#include <cmath>
#include <exception>
#include <thread>

#include "profiler/counters/counter_config.hpp"
#include "profiler/driver/device_context.hpp"

namespace tilescope {
namespace {

const std::vector<std::string> kCounters = {
    "dram__bytes_read.sum",
    "dram__bytes_write.sum",
    "dram__read_throughput.avg.pct_of_peak_sustained_elapsed",
    "dram__write_throughput.avg.pct_of_peak_sustained_elapsed",
    "sm__pipe_tensor_cycles_active_realtime.avg.pct_of_peak_sustained_elapsed",
    "sm__cycles_active.avg.pct_of_peak_sustained_elapsed",
};
constexpr std::size_t kDeviceBufferBytes = std::size_t{256} << 20;
constexpr std::uint32_t kSamplesAtOnce = 4096;  // decoded together
constexpr std::chrono::milliseconds kBetweenDecodings{20};
constexpr std::chrono::milliseconds kLongestSampleWait{500};  // for what was sampled before the end

std::string chip_name(const CuptiLibrary& cupti, int device_index) {
  auto chip = TILESCOPE_CUPTI_PARAMS(CUpti_Device_GetChipName_Params);
  chip.deviceIndex = static_cast<std::size_t>(device_index);
  TILESCOPE_CUPTI_CALL(cupti, cuptiDeviceGetChipName, &chip);
  return chip.pChipName;
}

std::vector<std::uint8_t> availability(const CuptiLibrary& cupti, int device_index) {
  auto params = TILESCOPE_CUPTI_PARAMS(CUpti_PmSampling_GetCounterAvailability_Params);
  params.deviceIndex = static_cast<std::size_t>(device_index);
  TILESCOPE_CUPTI_CALL(cupti, cuptiPmSamplingGetCounterAvailability, &params);
  std::vector<std::uint8_t> image(params.counterAvailabilityImageSize);
  params.pCounterAvailabilityImage = image.data();
  TILESCOPE_CUPTI_CALL(cupti, cuptiPmSamplingGetCounterAvailability, &params);
  return image;
}

void initialize(const CuptiLibrary& cupti) {
  auto params = TILESCOPE_CUPTI_PARAMS(CUpti_Profiler_Initialize_Params);
  TILESCOPE_CUPTI_CALL(cupti, cuptiProfilerInitialize, &params);
}

/// CUPTI's sampler of one device, on from construction to destruction.
class PmSampler {
 public:
  PmSampler(std::shared_ptr<const CuptiLibrary> cupti, int device_index, double interval_s);
  ~PmSampler();
  PmSampler(const PmSampler&) = delete;
  PmSampler& operator=(const PmSampler&) = delete;

  void start();
  /// Adds what was sampled since the last call, as much as fits.
  void decode(Timeline& timeline);
  /// Adds what is left after stop(). The device's buffer is written behind time: an empty one may not be all.
  void decode_rest(Timeline& timeline);
  std::size_t left_out() const { return left_out_; }
  void stop();

 private:
  void clear_image();
  void add_sample(std::size_t index, Timeline& timeline);

  std::shared_ptr<const CuptiLibrary> cupti_;
  CounterConfig config_;
  CUpti_PmSampling_Object* object_ = nullptr;
  std::vector<std::uint8_t> image_;
  std::uint64_t first_ns_ = 0;
  std::size_t seen_ = 0, left_out_ = 0;  // samples
  bool at_end_ = false;                  // of the records that the device had written
};

PmSampler::PmSampler(std::shared_ptr<const CuptiLibrary> cupti, int device_index, double interval_s)
    : cupti_(std::move(cupti)),
      config_(cupti_, chip_name(*cupti_, device_index), kCounters, availability(*cupti_, device_index),
              CUPTI_PROFILER_TYPE_PM_SAMPLING) {
  auto enable = TILESCOPE_CUPTI_PARAMS(CUpti_PmSampling_Enable_Params);
  enable.deviceIndex = static_cast<std::size_t>(device_index);
  TILESCOPE_CUPTI_CALL(*cupti_, cuptiPmSamplingEnable, &enable);
  object_ = enable.pPmSamplingObject;

  auto config = TILESCOPE_CUPTI_PARAMS(CUpti_PmSampling_SetConfig_Params);
  config.pPmSamplingObject = object_;
  config.configSize = config_.image().size();
  config.pConfig = config_.image().data();
  config.hardwareBufferSize = kDeviceBufferBytes;
  config.samplingInterval = static_cast<std::uint64_t>(std::llround(1e9 * interval_s));
  config.triggerMode = CUPTI_PM_SAMPLING_TRIGGER_MODE_GPU_TIME_INTERVAL;
  config.hwBufferAppendMode = CUPTI_PM_SAMPLING_HARDWARE_BUFFER_APPEND_MODE_KEEP_OLDEST;
  TILESCOPE_CUPTI_CALL(*cupti_, cuptiPmSamplingSetConfig, &config);

  auto size = TILESCOPE_CUPTI_PARAMS(CUpti_PmSampling_GetCounterDataSize_Params);
  size.pPmSamplingObject = object_;
  size.pMetricNames = config_.names();
  size.numMetrics = config_.counters().size();
  size.maxSamples = kSamplesAtOnce;
  TILESCOPE_CUPTI_CALL(*cupti_, cuptiPmSamplingGetCounterDataSize, &size);
  image_.resize(size.counterDataSize);
  clear_image();
}

PmSampler::~PmSampler() {
  auto disable = TILESCOPE_CUPTI_PARAMS(CUpti_PmSampling_Disable_Params);
  disable.pPmSamplingObject = object_;
  if (object_) cupti_->cuptiPmSamplingDisable(&disable);
}

void PmSampler::clear_image() {
  auto params = TILESCOPE_CUPTI_PARAMS(CUpti_PmSampling_CounterDataImage_Initialize_Params);
  params.pPmSamplingObject = object_;
  params.counterDataSize = image_.size();
  params.pCounterData = image_.data();
  TILESCOPE_CUPTI_CALL(*cupti_, cuptiPmSamplingCounterDataImageInitialize, &params);
}

void PmSampler::start() {
  auto params = TILESCOPE_CUPTI_PARAMS(CUpti_PmSampling_Start_Params);
  params.pPmSamplingObject = object_;
  TILESCOPE_CUPTI_CALL(*cupti_, cuptiPmSamplingStart, &params);
}

void PmSampler::stop() {
  auto params = TILESCOPE_CUPTI_PARAMS(CUpti_PmSampling_Stop_Params);
  params.pPmSamplingObject = object_;
  TILESCOPE_CUPTI_CALL(*cupti_, cuptiPmSamplingStop, &params);
}

void PmSampler::decode(Timeline& timeline) {
  auto decode = TILESCOPE_CUPTI_PARAMS(CUpti_PmSampling_DecodeData_Params);
  decode.pPmSamplingObject = object_;
  decode.pCounterDataImage = image_.data();
  decode.counterDataImageSize = image_.size();
  TILESCOPE_CUPTI_CALL(*cupti_, cuptiPmSamplingDecodeData, &decode);
  timeline.overflowed |= decode.overflow != 0;
  at_end_ = decode.decodeStopReason == CUPTI_PM_SAMPLING_DECODE_STOP_REASON_END_OF_RECORDS;
  auto info = TILESCOPE_CUPTI_PARAMS(CUpti_PmSampling_GetCounterDataInfo_Params);
  info.pCounterDataImage = image_.data();
  info.counterDataImageSize = image_.size();
  TILESCOPE_CUPTI_CALL(*cupti_, cuptiPmSamplingGetCounterDataInfo, &info);
  for (std::size_t index = 0; index < info.numCompletedSamples; ++index) add_sample(index, timeline);
  seen_ += info.numCompletedSamples;
  clear_image();
}

void PmSampler::decode_rest(Timeline& timeline) {
  const auto most = std::chrono::steady_clock::now() + kLongestSampleWait;
  for (;;) {
    const std::size_t before = seen_;
    decode(timeline);
    if (seen_ > before) continue;
    if ((at_end_ && seen_ > 0) || std::chrono::steady_clock::now() > most) return;
    std::this_thread::sleep_for(kBetweenDecodings);
  }
}

void PmSampler::add_sample(std::size_t index, Timeline& timeline) {
  auto info = TILESCOPE_CUPTI_PARAMS(CUpti_PmSampling_CounterData_GetSampleInfo_Params);
  info.pPmSamplingObject = object_;
  info.pCounterDataImage = image_.data();
  info.counterDataImageSize = image_.size();
  info.sampleIndex = index;
  TILESCOPE_CUPTI_CALL(*cupti_, cuptiPmSamplingCounterDataGetSampleInfo, &info);
  const double length_s = 1e-9 * static_cast<double>(info.endTimestamp - info.startTimestamp);
  if (timeline.samples.empty()) {
    // The first reaches back to when the sampler was set up.
    if (seen_ + index == 0 && length_s > 1.5 * timeline.interval_s) {
      ++left_out_;
      return;
    }
    first_ns_ = info.startTimestamp;
  }
  const std::vector<double> v = config_.evaluate(image_, index);
  timeline.samples.push_back({1e-9 * static_cast<double>(info.startTimestamp - first_ns_), length_s, v[0],
                              v[1], 1e-2 * v[2], 1e-2 * v[3], 1e-2 * v[4], 1e-2 * v[5]});
}

/// Decodes on a thread of its own, so that the device's buffer never fills while the work runs.
class Decoding {
 public:
  Decoding(PmSampler& sampler, Timeline& timeline) : sampler_(sampler), timeline_(timeline) {
    thread_ = std::thread([this] { run(); });
  }
  ~Decoding() { end(); }
  Decoding(const Decoding&) = delete;
  Decoding& operator=(const Decoding&) = delete;
  void end() {
    ended_ = true;
    if (thread_.joinable()) thread_.join();
  }
  /// @throws what went wrong on the thread
  void check() const {
    if (failure_) std::rethrow_exception(failure_);
  }

 private:
  void run() {
    try {
      while (!ended_) {
        sampler_.decode(timeline_);  // more fits at once than is sampled in between
        std::this_thread::sleep_for(kBetweenDecodings);
      }
    } catch (...) {
      failure_ = std::current_exception();
    }
  }
  PmSampler& sampler_;
  Timeline& timeline_;
  std::atomic<bool> ended_ = false;
  std::exception_ptr failure_;
  std::thread thread_;
};

}  // namespace

Timeline sample_timeline(double interval_s, const std::function<void()>& work) {
  const DeviceContext device;
  const auto cupti = CuptiLibrary::load();
  initialize(*cupti);
  Timeline timeline{
      device.name(), chip_name(*cupti, device.device_index()), device.driver_version(), interval_s, {},
      false};
  PmSampler sampler(cupti, device.device_index(), interval_s);
  sampler.start();
  {
    Decoding decoding(sampler, timeline);
    work();
    decoding.end();
    decoding.check();
  }
  sampler.stop();
  sampler.decode_rest(timeline);
  if (timeline.samples.empty()) {
    throw MachineLacks(
        "the device gave no sample" +
        std::string(sampler.left_out() ? " but the first, which reaches back to before the work" : "") +
        ": take a shorter interval or longer work, in a process where no other profiler has been");
  }
  return timeline;
}

}  // namespace tilescope
