// SPDX-License-Identifier: Apache-2.0
// What CUPTI tells of a process, brought to those whom it concerns. Nothing that goes wrong in here may reach
// the process.
#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "profiler/injection/injected/counted_devices.hpp"
#include "profiler/injection/injected/graph_kernels.hpp"
#include "profiler/injection/injected/launch_choice.hpp"
#include "profiler/injection/injected/launch_facts.hpp"
#include "profiler/timing/activity_trace.hpp"

namespace tilescope {

class Injection {
 public:
  explicit Injection(ProfileRequest request);

  /// Subscribes to what the request needs. What cannot be had is said in the file.
  void begin();
  /// The process is about to end.
  void finish();

  /// In a process that counts itself, and has long made its context: begins, with its launches from now on.
  /// @throws what begin() would say in the file
  void begin_late(CUcontext context);
  /// Lets launches end that are under way, and counts no more. What was counted is in the file.
  void end();

  /// In a child of fork(): CUDA does not work there, and the file belongs to the parent.
  void abandon() { abandoned_ = true; }

 private:
  static void CUPTIAPI callback(void* self, CUpti_CallbackDomain domain, CUpti_CallbackId id,
                                const void* data);
  void on_resource(CUpti_CallbackId id, const CUpti_ResourceData& data);
  void on_call(CUpti_CallbackId id, const CUpti_CallbackData& data);
  void before_launch(CUpti_CallbackId id, const CUpti_CallbackData& data);
  void after_launch(const CUpti_CallbackData& data);

  void connect();
  void subscribe();
  std::vector<KernelMeasurement> kernels_of(const LaunchCall& call, const CUpti_CallbackData& data);
  bool is_captured(CUstream stream) const;

  ProfileRequest request_;
  EventFile file_;
  LaunchChoice choice_;
  GraphKernels graphs_;
  CountedDevices devices_;
  std::shared_ptr<const CuptiLibrary> cupti_;
  std::shared_ptr<const DriverLibrary> driver_;
  std::unique_ptr<ActivityTrace> trace_;
  CUpti_SubscriberHandle subscriber_ = nullptr;
  std::atomic<bool> abandoned_ = false;
  bool late_ = false;
  std::atomic<bool> ending_ = false;
  std::atomic<int> callbacks_ = 0, launches_ = 0;  // under way
};

}  // namespace tilescope
