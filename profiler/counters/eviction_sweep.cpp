// SPDX-License-Identifier: Apache-2.0
#include "profiler/counters/eviction_sweep.hpp"

#include <algorithm>

#include "profiler/timing/timed_samples.hpp"

namespace tilescope {
namespace {

constexpr unsigned kThreads = 1024;
constexpr unsigned kBlocksPerSm = 2;

// PTX, so that the driver can load it into any process on any chip without a CUDA runtime. Every thread reads
// 16-byte vectors past L1 with a grid stride and ors them together; the buffer is zero, so nothing is stored.
constexpr const char* kPtx = R"(
.version 7.0
.target sm_70
.address_size 64
.visible .entry tilescope_eviction_sweep(.param .u64 data, .param .u64 vectors)
{
  .reg .pred %at_end, %zero;
  .reg .b32 %cta, %threads, %thread, %ctas, %sum, %a, %b, %c, %d;
  .reg .b64 %data, %count, %index, %stride, %offset, %address;
  ld.param.u64 %data, [data];
  ld.param.u64 %count, [vectors];
  cvta.to.global.u64 %data, %data;
  mov.u32 %cta, %ctaid.x;
  mov.u32 %threads, %ntid.x;
  mov.u32 %thread, %tid.x;
  mov.u32 %ctas, %nctaid.x;
  mul.wide.u32 %index, %cta, %threads;
  cvt.u64.u32 %offset, %thread;
  add.u64 %index, %index, %offset;
  mul.wide.u32 %stride, %ctas, %threads;
  mov.u32 %sum, 0;
next:
  setp.ge.u64 %at_end, %index, %count;
  @%at_end bra done;
  shl.b64 %offset, %index, 4;
  add.u64 %address, %data, %offset;
  ld.global.cg.v4.u32 {%a, %b, %c, %d}, [%address];
  or.b32 %a, %a, %b;
  or.b32 %c, %c, %d;
  or.b32 %sum, %sum, %a;
  or.b32 %sum, %sum, %c;
  add.u64 %index, %index, %stride;
  bra next;
done:
  setp.eq.u32 %zero, %sum, 0;
  @%zero bra end;
  st.global.u32 [%data], %sum;
end:
  ret;
}
)";

int attribute(const DriverLibrary& driver, CUdevice_attribute which) {
  CUdevice device = 0;
  int value = 0;
  TILESCOPE_DRIVER_CALL(driver, cuCtxGetDevice, &device);
  TILESCOPE_DRIVER_CALL(driver, cuDeviceGetAttribute, &value, which, device);
  return value;
}

}  // namespace

EvictionSweep::EvictionSweep(std::shared_ptr<const DriverLibrary> driver) : driver_(std::move(driver)) {
  const int l2_bytes = std::max(attribute(*driver_, CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE), 1 << 20);
  bytes_ = static_cast<std::size_t>(l2_bytes) * kSweptL2Multiples / 16 * 16;
  blocks_ =
      kBlocksPerSm * static_cast<unsigned>(attribute(*driver_, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT));
  TILESCOPE_DRIVER_CALL(*driver_, cuModuleLoadData, &module_, kPtx);
  TILESCOPE_DRIVER_CALL(*driver_, cuModuleGetFunction, &kernel_, module_, "tilescope_eviction_sweep");
  TILESCOPE_DRIVER_CALL(*driver_, cuMemAlloc, &buffer_, bytes_);
  TILESCOPE_DRIVER_CALL(*driver_, cuMemsetD8, buffer_, 0, bytes_);
}

EvictionSweep::~EvictionSweep() {
  if (buffer_) driver_->cuMemFree(buffer_);
  if (module_) driver_->cuModuleUnload(module_);
}

void EvictionSweep::enqueue(CUstream stream) const {
  CUdeviceptr data = buffer_;
  std::uint64_t vectors = bytes_ / 16;
  void* arguments[] = {&data, &vectors};
  TILESCOPE_DRIVER_CALL(*driver_, cuLaunchKernel, kernel_, blocks_, 1, 1, kThreads, 1, 1, 0, stream,
                        arguments, nullptr);
}

}  // namespace tilescope
