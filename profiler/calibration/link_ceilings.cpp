// SPDX-License-Identifier: Apache-2.0
#include "profiler/calibration/ceilings.hpp"

#include <algorithm>
#include <array>
#include <functional>
#include <memory>

#include "common/statistics.hpp"
#include "profiler/calibration/kernels.hpp"
#include "profiler/driver/runtime_check.hpp"
#include "profiler/driver/scratch_buffer.hpp"

namespace tilescope {
namespace {

constexpr std::int64_t kMiB = 1 << 20;
constexpr std::int64_t kMostBytes = 256 * kMiB;
constexpr int kSamples = 12, kWarmUps = 3;

void use_device(int device) { check_runtime(cudaSetDevice(device), "choosing a device"); }

/// One GPU: memory that it sends from and memory that it receives in, a stream, and two times.
struct LinkEnd {
  explicit LinkEnd(int of) : device((use_device(of), of)), own(kMostBytes), other(kMostBytes) {
    const cudaError_t peer = cudaDeviceEnablePeerAccess(1 - of, 0);
    if (peer == cudaErrorPeerAccessAlreadyEnabled) {
      cudaGetLastError();
    } else {
      check_runtime(peer, "enabling peer access");
    }
    check_runtime(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "making a stream");
    for (cudaEvent_t* const event : {&ready, &begin, &end})
      check_runtime(cudaEventCreate(event), "making an event");
    check_runtime(cudaMemset(own.data(), 1, kMostBytes), "filling memory");
    check_runtime(cudaDeviceSynchronize(), "filling memory");
  }
  ~LinkEnd() {
    cudaSetDevice(device);
    for (const cudaEvent_t event : {ready, begin, end}) cudaEventDestroy(event);
    cudaStreamDestroy(stream);
  }
  LinkEnd(const LinkEnd&) = delete;
  LinkEnd& operator=(const LinkEnd&) = delete;

  int device;
  ScratchBuffer own, other;
  cudaStream_t stream = nullptr;
  cudaEvent_t ready = nullptr, begin = nullptr, end = nullptr;
};

class LinkMeasuring {
 public:
  /// @param move  enqueues a transfer of so many bytes from one end, or to it
  void add(LinkCeiling ceiling, const std::function<void(LinkEnd& here, LinkEnd& there)>& move) {
    std::vector<double> samples;
    for (int i = 0; i < kWarmUps + kSamples; ++i) {
      const double seconds = sample(ceiling.both_ways ? 2 : 1, move);
      if (i >= kWarmUps) samples.push_back(seconds);
    }
    const auto bytes = static_cast<double>(ceiling.bytes);
    ceiling.per_second = bytes / *std::ranges::min_element(samples);
    ceiling.median_per_second = bytes / median_of(samples);
    ceilings_.push_back(ceiling);
  }
  std::vector<LinkCeiling> take() { return std::move(ceilings_); }

 private:
  /// The seconds of the slower end; both begin when both are ready.
  double sample(int ends, const std::function<void(LinkEnd&, LinkEnd&)>& move) {
    for (int i = 0; i < ends; ++i) {
      use_device(i);
      check_runtime(cudaEventRecord(at(i).ready, at(i).stream), "noting a beginning");
    }
    for (int i = 0; i < ends; ++i) {
      use_device(i);
      LinkEnd& end = at(i);
      check_runtime(cudaStreamWaitEvent(end.stream, at(ends - 1 - i).ready), "waiting for the other GPU");
      check_runtime(cudaEventRecord(end.begin, end.stream), "taking the time");
      move(end, at(1 - i));
      check_runtime(cudaGetLastError(), "moving bytes over the link");
      check_runtime(cudaEventRecord(end.end, end.stream), "taking the time");
    }
    double seconds = 0;
    for (int i = 0; i < ends; ++i) {
      float milliseconds = 0;
      check_runtime(cudaEventSynchronize(at(i).end), "moving bytes over the link");
      check_runtime(cudaEventElapsedTime(&milliseconds, at(i).begin, at(i).end), "reading a time");
      seconds = std::max(seconds, 1e-3 * static_cast<double>(milliseconds));
    }
    return seconds;
  }
  LinkEnd& at(int i) { return *ends_[static_cast<std::size_t>(i)]; }

  std::array<std::unique_ptr<LinkEnd>, 2> ends_ = {std::make_unique<LinkEnd>(0),
                                                   std::make_unique<LinkEnd>(1)};
  std::vector<LinkCeiling> ceilings_;
};

void require_linked() {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices < 2)
    throw MachineLacks("a link needs two GPUs, and " + std::to_string(devices) + " is visible");
  for (int from = 0; from < 2; ++from) {
    int reaches = 0;
    check_runtime(cudaDeviceCanAccessPeer(&reaches, from, 1 - from), "asking for peer access");
    if (reaches == 0) throw MachineLacks("the first two GPUs do not reach each other's memory");
  }
}

void measure_engine(LinkMeasuring& measuring, const std::string& engine, bool both_ways, int ctas,
                    std::int64_t bytes) {
  measuring.add({.engine = engine, .both_ways = both_ways, .ctas = ctas, .bytes = bytes},
                [&](LinkEnd& here, LinkEnd& there) {
                  if (engine == kSmLoads)
                    return launch_link_read(there.own.data(), here.other.data(), bytes, ctas, here.stream);
                  if (engine == kSmStores)
                    return launch_link_write(there.other.data(), bytes, ctas, here.stream);
                  check_runtime(
                      cudaMemcpyAsync(there.other.data(), here.own.data(), static_cast<std::size_t>(bytes),
                                      cudaMemcpyDefault, here.stream),
                      "copying between GPUs");
                });
}

}  // namespace

std::vector<LinkCeiling> measure_links() {
  require_linked();
  int sms = 0;
  check_runtime(cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, 0), "counting SMs");
  LinkMeasuring measuring;
  for (const bool both_ways : {false, true}) {
    for (const std::int64_t bytes : {kMiB, 4 * kMiB, 16 * kMiB, 64 * kMiB, kMostBytes}) {
      measure_engine(measuring, kCopyEngine, both_ways, 0, bytes);
      for (const char* const engine : {kSmLoads, kSmStores})
        measure_engine(measuring, engine, both_ways, 2 * sms, bytes);
    }
  }
  for (const char* const engine : {kSmLoads, kSmStores}) {
    for (const int ctas : {8, 16, 32, 64, sms}) measure_engine(measuring, engine, false, ctas, kMostBytes);
  }
  use_device(0);
  return measuring.take();
}

}  // namespace tilescope
