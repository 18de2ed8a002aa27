#include "tessera/ops/linear/cublaslt_matmul.h"

#include <fmt/format.h>

#include <bit>
#include <map>
#include <mutex>

#include "tessera/base/hash.h"
#include "tessera/ops/linear/linear_cuda.h"

namespace tessera::cublaslt {
namespace {

cudaDataType_t data_type(ir::DType dtype) {
  switch (dtype) {
    case ir::DType::kBFloat16: return CUDA_R_16BF;
    case ir::DType::kFloat16: return CUDA_R_16F;
    default: return CUDA_R_32F;
  }
}

// Allows only algorithms that compute each sum in one block. Without a workspace and a reduction scheme, no block can
// pass a partial sum to another.
Status allow_one_block_each(cublasLtMatmulPreference_t preference, const LinearProblem& p) {
  const std::uint64_t no_workspace = 0;
  const std::uint32_t no_reduction = CUBLASLT_REDUCTION_SCHEME_NONE;
  TRY(to_status(cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                                     &no_workspace, sizeof(no_workspace)),
                "cublasLtMatmulPreferenceSetAttribute", p));
  return to_status(cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
                                                        &no_reduction, sizeof(no_reduction)),
                   "cublasLtMatmulPreferenceSetAttribute", p);
}

}  // namespace

Status to_status(cublasStatus_t status, std::string_view call, const LinearProblem& p) {
  if (status == CUBLAS_STATUS_SUCCESS) return ok_status();
  const std::string message = fmt::format("{} for linear {} [{}, {}] x [{}, {}]: {}", call, ir::dtype_name(p.dtype),
                                          p.m, p.k, p.n, p.k, cublasLtGetStatusString(status));
  if (status == CUBLAS_STATUS_ALLOC_FAILED) return resource_exhausted(message);
  if (status == CUBLAS_STATUS_NOT_SUPPORTED) return unimplemented(message);
  return internal_error(message);
}

Result<cublasLtHandle_t> library_handle(const LinearProblem& p, Device& device) {
  static std::mutex mutex;
  static auto* handles = new std::map<int, cublasLtHandle_t>;
  int ordinal = 0;
  if (const cudaError_t error = cudaGetDevice(&ordinal); error != cudaSuccess) {
    static_cast<void>(cudaGetLastError());  // clears the error, which the next launch would report as its own
    return internal_error(fmt::format("cudaGetDevice: {}", cudaGetErrorString(error)));
  }
  const std::lock_guard lock(mutex);
  cublasLtHandle_t& handle = (*handles)[ordinal];
  if (handle == nullptr) {
    TRY(device.begin_initialisation("cuBLASLt"));
    TRY(to_status(cublasLtCreate(&handle), "cublasLtCreate", p));
  }
  return handle;
}

// Describes the product y = x · wᵀ. cuBLAS is column-major, so it sees the transposes of our matrices: wᵀ [k, n],
// xᵀ [k, m] and yᵀ [n, m]. cuBLAS transposes its first matrix, wᵀ, so it computes yᵀ = w · xᵀ.
Status describe(const LinearProblem& p, MatmulDesc& matmul, Layout& w, Layout& x, Layout& y,
                std::optional<cudaDataType_t> operands) {
  const cudaDataType_t y_type = data_type(p.dtype);
  const cudaDataType_t type = operands.value_or(y_type);
  const auto m = static_cast<std::uint64_t>(p.m);
  const auto n = static_cast<std::uint64_t>(p.n);
  const auto k = static_cast<std::uint64_t>(p.k);
  TRY(to_status(cublasLtMatmulDescCreate(matmul.out(), CUBLAS_COMPUTE_32F, CUDA_R_32F), "cublasLtMatmulDescCreate", p));
  const cublasOperation_t transposed = CUBLAS_OP_T;
  TRY(to_status(
      cublasLtMatmulDescSetAttribute(matmul.get(), CUBLASLT_MATMUL_DESC_TRANSA, &transposed, sizeof(transposed)),
      "cublasLtMatmulDescSetAttribute", p));
  if (p.bias != nullptr) {
    const cublasLtEpilogue_t epilogue = p.gelu ? CUBLASLT_EPILOGUE_GELU_BIAS : CUBLASLT_EPILOGUE_BIAS;
    TRY(to_status(
        cublasLtMatmulDescSetAttribute(matmul.get(), CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof(epilogue)),
        "cublasLtMatmulDescSetAttribute", p));
  }
  TRY(to_status(cublasLtMatrixLayoutCreate(w.out(), type, k, n, p.k), "cublasLtMatrixLayoutCreate", p));
  TRY(to_status(cublasLtMatrixLayoutCreate(x.out(), type, k, m, p.k), "cublasLtMatrixLayoutCreate", p));
  return to_status(cublasLtMatrixLayoutCreate(y.out(), y_type, n, m, p.n), "cublasLtMatrixLayoutCreate", p);
}

std::uint64_t variant_of(const Choice& choice, const LinearProblem& p) {
  Hasher hash;
  for (const std::uint64_t word : std::bit_cast<OpaqueAlgorithm>(choice.algorithm)) hash.add(word);
  hash.add(p.dtype);
  hash.add(p.n);
  hash.add(p.k);
  hash.add(p.bias != nullptr);
  hash.add(p.residual != nullptr);
  hash.add(p.gelu);
  return hash.finish().low;
}

Status set_bias(const LinearProblem& p, const MatmulDesc& matmul) {
  return to_status(cublasLtMatmulDescSetAttribute(matmul.get(), CUBLASLT_MATMUL_DESC_BIAS_POINTER,
                                                  static_cast<const void*>(&p.bias), sizeof(p.bias)),
                   "cublasLtMatmulDescSetAttribute", p);
}

LinearShape shape_of(const LinearProblem& p, Rows rows) {
  return {.m = p.m, .n = p.n, .k = p.k, .dtype = p.dtype, .bias = p.bias != nullptr, .any_rows = rows == Rows::kAny};
}

Status ask(cublasLtHandle_t handle, const LinearProblem& p, Rows rows, const Choice& choice,
           std::span<cublasLtMatmulHeuristicResult_t> offered, int& found) {
  Preference preference;
  TRY(to_status(cublasLtMatmulPreferenceCreate(preference.out()), "cublasLtMatmulPreferenceCreate", p));
  if (rows == Rows::kAny) {
    TRY(allow_one_block_each(preference.get(), p));
  } else {
    TRY(to_status(cublasLtMatmulPreferenceSetAttribute(preference.get(), CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                                       &kCublasLtWorkspaceBytes, sizeof(kCublasLtWorkspaceBytes)),
                  "cublasLtMatmulPreferenceSetAttribute", p));
  }
  return to_status(cublasLtMatmulAlgoGetHeuristic(handle, choice.matmul.get(), choice.w.get(), choice.x.get(),
                                                  choice.y.get(), choice.y.get(), preference.get(),
                                                  static_cast<int>(offered.size()), offered.data(), &found),
                   "cublasLtMatmulAlgoGetHeuristic", p);
}

LinearAlgorithms& known_algorithms() {
  static auto* algorithms = new LinearAlgorithms;
  return *algorithms;
}

}  // namespace tessera::cublaslt
