// SPDX-License-Identifier: Apache-2.0
#include "profiler/calibration/matrix_product.hpp"

#include <cublasLt.h>

#include <string>

#include "common/errors.hpp"
#include "profiler/driver/library_search.hpp"

namespace tilescope {
namespace {

constexpr std::size_t kWorkspaceBytes = std::size_t{64} << 20;

struct Functions {
#define TILESCOPE_LT_FUNCTIONS(X)         \
  X(cublasLtCreate)                       \
  X(cublasLtDestroy)                      \
  X(cublasLtMatmul)                       \
  X(cublasLtMatmulAlgoGetHeuristic)       \
  X(cublasLtMatmulDescCreate)             \
  X(cublasLtMatmulDescDestroy)            \
  X(cublasLtMatmulDescSetAttribute)       \
  X(cublasLtMatmulPreferenceCreate)       \
  X(cublasLtMatmulPreferenceDestroy)      \
  X(cublasLtMatmulPreferenceSetAttribute) \
  X(cublasLtMatrixLayoutCreate)           \
  X(cublasLtMatrixLayoutDestroy)
#define TILESCOPE_DECLARE(name) decltype(&::name) name = nullptr;
  TILESCOPE_LT_FUNCTIONS(TILESCOPE_DECLARE)
#undef TILESCOPE_DECLARE
};

template <class Function>
void resolve(const SharedObject& library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(library.symbol(name));
  if (!function) throw MachineLacks(std::string("the libcublasLt that was found lacks ") + name);
}

void check(cublasStatus_t status, const char* call) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  throw MachineLacks(std::string("cuBLASLt has no such matrix product here (") + call + ": status " +
                     std::to_string(status) + ")");
}

cudaDataType_t input_type(MatrixType type) {
  switch (type) {
    case MatrixType::fp16:
      return CUDA_R_16F;
    case MatrixType::bf16:
      return CUDA_R_16BF;
    default:
      return CUDA_R_8F_E4M3;
  }
}

}  // namespace

struct MatrixProduct::State {
  SharedObject library;
  Functions lt;
  std::int64_t size = 0;
  cublasLtHandle_t handle = nullptr;
  cublasLtMatmulDesc_t operation = nullptr;
  cublasLtMatrixLayout_t input = nullptr, output = nullptr;
  cublasLtMatmulHeuristicResult_t choice{};
  void* workspace = nullptr;

  ~State() {
    if (workspace) cudaFree(workspace);
    if (output) lt.cublasLtMatrixLayoutDestroy(output);
    if (input) lt.cublasLtMatrixLayoutDestroy(input);
    if (operation) lt.cublasLtMatmulDescDestroy(operation);
    if (handle) lt.cublasLtDestroy(handle);
  }
};

MatrixProduct::MatrixProduct(MatrixType type, std::int64_t size) : state_(std::make_unique<State>()) {
  State& s = *state_;
  s.library = find_library({"libcublasLt.so.13", "libcublasLt.so.12"}, "cublas");
#define TILESCOPE_RESOLVE(name) resolve(s.library, #name, s.lt.name);
  TILESCOPE_LT_FUNCTIONS(TILESCOPE_RESOLVE)
#undef TILESCOPE_RESOLVE
  s.size = size;
  const auto n = static_cast<std::uint64_t>(size);
  const cudaDataType_t in = input_type(type), out = type == MatrixType::fp16 ? CUDA_R_16F : CUDA_R_16BF;
  check(s.lt.cublasLtCreate(&s.handle), "cublasLtCreate");
  check(s.lt.cublasLtMatmulDescCreate(&s.operation, CUBLAS_COMPUTE_32F, CUDA_R_32F),
        "cublasLtMatmulDescCreate");
  const cublasOperation_t transposed = CUBLAS_OP_T;  // the only form that fp8 has
  check(s.lt.cublasLtMatmulDescSetAttribute(s.operation, CUBLASLT_MATMUL_DESC_TRANSA, &transposed,
                                            sizeof transposed),
        "cublasLtMatmulDescSetAttribute");
  check(s.lt.cublasLtMatrixLayoutCreate(&s.input, in, n, n, size), "cublasLtMatrixLayoutCreate");
  check(s.lt.cublasLtMatrixLayoutCreate(&s.output, out, n, n, size), "cublasLtMatrixLayoutCreate");
  if (cudaMalloc(&s.workspace, kWorkspaceBytes) != cudaSuccess) throw MachineLacks("out of device memory");

  cublasLtMatmulPreference_t preference = nullptr;
  check(s.lt.cublasLtMatmulPreferenceCreate(&preference), "cublasLtMatmulPreferenceCreate");
  s.lt.cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                            &kWorkspaceBytes, sizeof kWorkspaceBytes);
  int found = 0;
  const cublasStatus_t status = s.lt.cublasLtMatmulAlgoGetHeuristic(
      s.handle, s.operation, s.input, s.input, s.output, s.output, preference, 1, &s.choice, &found);
  s.lt.cublasLtMatmulPreferenceDestroy(preference);
  check(status, "cublasLtMatmulAlgoGetHeuristic");
  if (found == 0) throw MachineLacks("cuBLASLt has no kernel for this type on this device");
}

MatrixProduct::~MatrixProduct() = default;

void MatrixProduct::launch(const void* a, const void* b, void* c, cudaStream_t stream) const {
  const State& s = *state_;
  const float alpha = 1, beta = 0;
  check(s.lt.cublasLtMatmul(s.handle, s.operation, &alpha, a, s.input, b, s.input, &beta, c, s.output, c,
                            s.output, &s.choice.algo, s.workspace, kWorkspaceBytes, stream),
        "cublasLtMatmul");
}

double MatrixProduct::flops() const {
  const auto n = static_cast<double>(state_->size);
  return 2 * n * n * n;
}

}  // namespace tilescope
