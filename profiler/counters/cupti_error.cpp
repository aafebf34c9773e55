// SPDX-License-Identifier: Apache-2.0
#include "profiler/counters/cupti_error.hpp"

#include <algorithm>
#include <iterator>

namespace tilescope {
namespace {

struct CodeRow {
  int code;
  const char* name;
  const char* advice;  // nullptr: the caller's fault, or a defect
};

// Codes and names: cupti_result.h of CUDA 13.0. Advice: its comments and the CUPTI documentation.
constexpr CodeRow kCodes[] = {
    {1, "CUPTI_ERROR_INVALID_PARAMETER", nullptr},
    {2, "CUPTI_ERROR_INVALID_DEVICE", nullptr},
    {3, "CUPTI_ERROR_INVALID_CONTEXT", nullptr},
    {7, "CUPTI_ERROR_INVALID_OPERATION", nullptr},
    {8, "CUPTI_ERROR_OUT_OF_MEMORY", "the profiler ran out of memory; profile fewer kernels at a time"},
    {9, "CUPTI_ERROR_HARDWARE", nullptr},
    {10, "CUPTI_ERROR_PARAMETER_SIZE_NOT_SUFFICIENT", nullptr},
    {11, "CUPTI_ERROR_API_NOT_IMPLEMENTED", nullptr},
    {12, "CUPTI_ERROR_MAX_LIMIT_REACHED", nullptr},
    {13, "CUPTI_ERROR_NOT_READY", nullptr},
    {14, "CUPTI_ERROR_NOT_COMPATIBLE", nullptr},
    {15, "CUPTI_ERROR_NOT_INITIALIZED",
     "CUPTI cannot reach the driver, or libnvperf_host.so and libnvperf_target.so are not beside libcupti; "
     "put that folder on LD_LIBRARY_PATH"},
    {17, "CUPTI_ERROR_INVALID_METRIC_NAME", nullptr},
    {23, "CUPTI_ERROR_DISABLED", "another profiler has switched CUPTI off; end it first"},
    {26, "CUPTI_ERROR_HARDWARE_BUSY",
     "the counters are held by another client; end it, or pause a DCGM that samples them with "
     "`dcgmi profile --pause`"},
    {27, "CUPTI_ERROR_NOT_SUPPORTED", "this device or system has no counters for CUPTI"},
    {33, "CUPTI_ERROR_VIRTUALIZED_DEVICE_NOT_SUPPORTED", "a virtual GPU gives no counters"},
    {35, "CUPTI_ERROR_INSUFFICIENT_PRIVILEGES",
     "this user may not read the GPU's counters; run as root or with CAP_SYS_ADMIN, or load the driver with "
     "NVreg_RestrictProfilingToAdminUsers=0"},
    {38, "CUPTI_ERROR_LEGACY_PROFILER_NOT_SUPPORTED", nullptr},
    {39, "CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED",
     "another tool (Nsight, cuda-gdb, compute-sanitizer, the PyTorch profiler) has subscribed to CUPTI in "
     "this process; run without it"},
    {40, "CUPTI_ERROR_VIRTUALIZED_DEVICE_INSUFFICIENT_PRIVILEGES",
     "the hypervisor does not let this virtual GPU be profiled"},
    {41, "CUPTI_ERROR_CONFIDENTIAL_COMPUTING_NOT_SUPPORTED",
     "there are no counters in confidential computing mode"},
    {42, "CUPTI_ERROR_CMP_DEVICE_NOT_SUPPORTED", "mining processors give no counters"},
    {43, "CUPTI_ERROR_MIG_DEVICE_NOT_SUPPORTED", "a MIG slice gives no counters; use a whole device"},
    {44, "CUPTI_ERROR_SLI_DEVICE_NOT_SUPPORTED", "SLI devices give no counters"},
    {45, "CUPTI_ERROR_WSL_DEVICE_NOT_SUPPORTED", "this WSL gives no counters; use Linux itself"},
    {46, "CUPTI_ERROR_INVALID_CHIP_NAME",
     "this libcupti does not know the chip; use the one of a newer CUDA toolkit"},
    {999, "CUPTI_ERROR_UNKNOWN", "CUPTI does not say why; without an NVIDIA driver this is what it answers"},
};

const CodeRow* find_code(int code) {
  const auto* row = std::ranges::find(kCodes, code, &CodeRow::code);
  return row == std::end(kCodes) ? nullptr : row;
}

}  // namespace

std::string cupti_code_name(int code) {
  const CodeRow* row = find_code(code);
  return std::string(row ? row->name : "CUPTI result") + " (" + std::to_string(code) + ")";
}

std::string cupti_advice(int code) {
  const CodeRow* row = find_code(code);
  return row && row->advice ? row->advice : "";
}

void check_cupti(int code, const char* call) {
  if (code == 0) return;
  const std::string failed = std::string(call) + ": " + cupti_code_name(code);
  const std::string advice = cupti_advice(code);
  if (advice.empty()) throw CuptiError(code, failed);
  throw CountersUnavailable(code, "no hardware counters: " + advice + " [" + failed + "]");
}

}  // namespace tilescope
