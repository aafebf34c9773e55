// SPDX-License-Identifier: Apache-2.0
#include "profiler/timing/cold_timer.hpp"
#include "common/statistics.hpp"

#include <algorithm>
#include <chrono>
#include <thread>

namespace tilescope {
namespace {

constexpr unsigned kStampThreads = 1024;  // two such CTAs fill an SM, so that a full grid reaches every SM
constexpr std::chrono::milliseconds kFirstRest{
    50};  // after a throttled sample; doubled after each further one

// Each SM notes its cycle counter and the device's nanosecond clock: two such notes give its clock between
// them.
constexpr const char* kPtx = R"(
.version 7.0
.target sm_70
.address_size 64
.visible .entry tilescope_clock_stamp(.param .u64 stamps)
{
  .reg .pred %other;
  .reg .b32 %thread, %sm;
  .reg .b64 %stamps, %offset, %cycles, %nanoseconds;
  mov.u32 %thread, %tid.x;
  setp.ne.u32 %other, %thread, 0;
  @%other bra end;
  ld.param.u64 %stamps, [stamps];
  cvta.to.global.u64 %stamps, %stamps;
  mov.u32 %sm, %smid;
  mul.wide.u32 %offset, %sm, 16;
  add.u64 %stamps, %stamps, %offset;
  mov.u64 %cycles, %clock64;
  mov.u64 %nanoseconds, %globaltimer;
  st.global.v2.u64 [%stamps], {%cycles, %nanoseconds};
end:
  ret;
}
)";

struct Stamp {
  std::uint64_t cycles, nanoseconds;
};

double clock_between(const std::vector<Stamp>& stamps, std::size_t sms) {
  std::vector<double> clocks;
  for (std::size_t sm = 0; sm < sms; ++sm) {
    const Stamp &before = stamps[sm], &after = stamps[sms + sm];
    if (before.nanoseconds == 0 || after.nanoseconds <= before.nanoseconds) continue;
    clocks.push_back(1e9 * static_cast<double>(after.cycles - before.cycles) /
                     static_cast<double>(after.nanoseconds - before.nanoseconds));
  }
  return median_of(std::move(clocks));
}

}  // namespace

ColdTimer::ColdTimer(const DeviceContext& device)
    : driver_(device.driver()),
      sweep_(driver_),
      boost_clock_hz_(1e3 * device.attribute(CU_DEVICE_ATTRIBUTE_CLOCK_RATE)),
      sms_(static_cast<unsigned>(device.attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT))) {
  TILESCOPE_DRIVER_CALL(*driver_, cuModuleLoadData, &module_, kPtx);
  TILESCOPE_DRIVER_CALL(*driver_, cuModuleGetFunction, &stamp_, module_, "tilescope_clock_stamp");
  TILESCOPE_DRIVER_CALL(*driver_, cuMemAlloc, &stamps_, 2 * sms_ * sizeof(Stamp));
  TILESCOPE_DRIVER_CALL(*driver_, cuEventCreate, &begin_, CU_EVENT_DEFAULT);
  TILESCOPE_DRIVER_CALL(*driver_, cuEventCreate, &end_, CU_EVENT_DEFAULT);
}

ColdTimer::~ColdTimer() {
  for (const CUevent event : {begin_, end_}) {
    if (event) driver_->cuEventDestroy(event);
  }
  if (stamps_) driver_->cuMemFree(stamps_);
  if (module_) driver_->cuModuleUnload(module_);
}

ColdTimer::Sample ColdTimer::sample(const std::function<void(CUstream)>& work,
                                    const std::function<void(CUstream)>& prepare, L2State l2) const {
  std::vector<Stamp> stamps(2 * sms_);
  CUdeviceptr before = stamps_, after = stamps_ + sms_ * sizeof(Stamp);
  TILESCOPE_DRIVER_CALL(*driver_, cuMemsetD8, stamps_, 0, 2 * sms_ * sizeof(Stamp));
  const auto stamp = [&](CUdeviceptr* where) {
    void* arguments[] = {where};
    TILESCOPE_DRIVER_CALL(*driver_, cuLaunchKernel, stamp_, 2 * sms_, 1, 1, kStampThreads, 1, 1, 0, nullptr,
                          arguments, nullptr);
  };
  if (prepare) prepare(nullptr);
  // While the sweep runs the rest is enqueued, so that no launch latency comes between the events.
  stamp(&before);
  sweep_.enqueue(nullptr);
  if (l2 == L2State::warm) work(nullptr);
  if (l2 == L2State::warm && prepare) prepare(nullptr);
  TILESCOPE_DRIVER_CALL(*driver_, cuEventRecord, begin_, nullptr);
  work(nullptr);
  TILESCOPE_DRIVER_CALL(*driver_, cuEventRecord, end_, nullptr);
  stamp(&after);
  TILESCOPE_DRIVER_CALL(*driver_, cuMemcpyDtoH, stamps.data(), stamps_, stamps.size() * sizeof(Stamp));
  float elapsed_ms = 0;
  TILESCOPE_DRIVER_CALL(*driver_, cuEventElapsedTime, &elapsed_ms, begin_, end_);
  return {1e-3 * elapsed_ms, clock_between(stamps, sms_)};
}

TimedSamples ColdTimer::time(const std::function<void(CUstream)>& work, const TimerOptions& options,
                             const std::function<void(CUstream)>& prepare) const {
  using Clock = std::chrono::steady_clock;
  const auto began = Clock::now();
  const auto wall_s = [&] { return std::chrono::duration<double>(Clock::now() - began).count(); };
  for (int i = 0; i < options.warm_up; ++i) work(nullptr);
  TILESCOPE_DRIVER_CALL(*driver_, cuCtxSynchronize);

  TimedSamples timed;
  timed.l2 = options.l2;
  double total_s = 0, clocks = 0;
  auto rest = kFirstRest;
  const auto count = [&] { return static_cast<int>(timed.samples_s.size()); };
  while (count() < options.max_samples && (wall_s() < options.time_limit_s || timed.samples_s.empty())) {
    std::this_thread::sleep_for(std::chrono::duration<double>(options.rest_s));
    const Sample one = sample(work, prepare, options.l2);
    if (one.sm_clock_hz < options.least_clock * boost_clock_hz_) {
      if (++timed.throttled > options.max_samples || wall_s() > options.time_limit_s) break;
      std::this_thread::sleep_for(rest);
      rest = std::min(2 * rest, std::chrono::milliseconds(1000));
      continue;
    }
    timed.samples_s.push_back(one.elapsed_s);
    total_s += one.elapsed_s;
    clocks += one.sm_clock_hz;
    if (count() < options.min_samples || total_s < options.min_time_s) continue;
    timed.noise_met = coefficient_of_variation(timed.samples_s) <= options.max_noise;
    if (timed.noise_met) break;
  }
  if (timed.samples_s.empty()) {
    throw MachineLacks("no sample could be taken: the SM clock stayed below " +
                       std::to_string(static_cast<int>(1e-6 * options.least_clock * boost_clock_hz_)) +
                       " MHz all the time; let the device cool down or raise its power limit");
  }
  timed.noise = coefficient_of_variation(timed.samples_s);
  timed.mean_sm_clock_hz = clocks / count();
  return timed;
}

}  // namespace tilescope
