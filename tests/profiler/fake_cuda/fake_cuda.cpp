// SPDX-License-Identifier: Apache-2.0
// The functions of the fake libcuda and libcupti that do something: enough for a program to be injected, to
// make a context and to launch, and for CUPTI to refuse. TILESCOPE_FAKE_REFUSAL="cuptiSubscribe=39" makes
// that call return 39.
#include <cuda.h>
#include <cupti.h>
#include <cupti_profiler_target.h>
#include <cupti_target.h>
#include <dlfcn.h>

#include <cstdlib>
#include <string>

namespace {

CUpti_CallbackFunc subscriber = nullptr;
void* subscriber_data = nullptr;
int the_context = 0;

CUcontext context() { return reinterpret_cast<CUcontext>(&the_context); }

/// What `function` is asked to return.
CUptiResult refusal(const std::string& function) {
  const char* variable = std::getenv("TILESCOPE_FAKE_REFUSAL");
  const std::string asked = variable ? variable : "";
  if (!asked.starts_with(function + "=")) return CUPTI_SUCCESS;
  return static_cast<CUptiResult>(std::atoi(asked.c_str() + function.size() + 1));
}

void tell(CUpti_CallbackDomain domain, CUpti_CallbackId id, const void* data) {
  if (subscriber) subscriber(subscriber_data, domain, id, data);
}

}  // namespace

extern "C" {

CUresult cuInit(unsigned) {
  static bool injected = false;
  const char* library = std::getenv("CUDA_INJECTION64_PATH");
  if (injected || !library) return CUDA_SUCCESS;
  injected = true;
  void* handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
  const auto initialize =
      handle ? reinterpret_cast<int (*)()>(dlsym(handle, "InitializeInjection")) : nullptr;
  if (initialize) initialize();
  return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext* made, CUdevice) {
  *made = context();
  CUpti_ResourceData data{};
  data.context = context();
  tell(CUPTI_CB_DOMAIN_RESOURCE, CUPTI_CBID_RESOURCE_CONTEXT_CREATED, &data);
  return CUDA_SUCCESS;
}

CUresult cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                        unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
                        CUstream stream, void** arguments, void** extra) {
  cuLaunchKernel_params parameters{function, grid_x,       grid_y, grid_z,    block_x, block_y,
                                   block_z,  shared_bytes, stream, arguments, extra};
  CUresult status = CUDA_SUCCESS;
  CUpti_CallbackData data{};
  data.context = context();
  data.symbolName = "fake_kernel";
  data.functionParams = &parameters;
  data.functionReturnValue = &status;
  for (const CUpti_ApiCallbackSite site : {CUPTI_API_ENTER, CUPTI_API_EXIT}) {
    data.callbackSite = site;
    tell(CUPTI_CB_DOMAIN_DRIVER_API, CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel, &data);
  }
  return status;
}

CUptiResult cuptiSubscribe(CUpti_SubscriberHandle*, CUpti_CallbackFunc callback, void* data) {
  const CUptiResult result = refusal("cuptiSubscribe");
  if (result != CUPTI_SUCCESS) return result;
  subscriber = callback;
  subscriber_data = data;
  return result;
}

CUptiResult cuptiDeviceGetChipName(CUpti_Device_GetChipName_Params* parameters) {
  parameters->pChipName = "GH100";
  return CUPTI_SUCCESS;
}

CUptiResult cuptiProfilerGetCounterAvailability(CUpti_Profiler_GetCounterAvailability_Params*) {
  return refusal("cuptiProfilerGetCounterAvailability");
}

}  // extern "C"
