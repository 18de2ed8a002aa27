#include "tessera/ops/quantised/rounded_library.h"

#include <cublasLt.h>

#include <map>
#include <mutex>
#include <optional>
#include <tuple>
#include <utility>

#include "tessera/device/cuda/cuda_stream.h"
#include "tessera/ops/linear/cublaslt_matmul.h"

namespace tessera {
namespace {

using namespace cublaslt;

constexpr std::int64_t kFewestRows = 65;
constexpr std::int64_t kBlock = 128;

template <class T>
Status set(const MatmulDesc& matmul, cublasLtMatmulDescAttributes_t attribute, const T& value, const LinearProblem& p) {
  return to_status(
      cublasLtMatmulDescSetAttribute(matmul.get(), attribute, static_cast<const void*>(&value), sizeof(value)),
      "cublasLtMatmulDescSetAttribute", p);
}

Status describe_rounded(const QuantisedProblem& call, const LibraryRows& rows, Choice& choice) {
  const LinearProblem p = without_matrix(call);
  TRY(describe(p, choice.matmul, choice.w, choice.x, choice.y, CUDA_R_8F_E4M3));
  const auto* const w_scales = reinterpret_cast<const float*>(call.w.scales);
  TRY(set(choice.matmul, CUBLASLT_MATMUL_DESC_A_SCALE_MODE, CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F, p));
  TRY(set(choice.matmul, CUBLASLT_MATMUL_DESC_B_SCALE_MODE, CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F, p));
  TRY(set(choice.matmul, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, w_scales, p));
  TRY(set(choice.matmul, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, rows.scales, p));
  return p.bias != nullptr ? set_bias(p, choice.matmul) : ok_status();
}

// Asks cuBLASLt for an algorithm that needs no workspace. The result is empty if there is none.
std::optional<cublasLtMatmulAlgo_t> ask_library(cublasLtHandle_t handle, const Choice& choice) {
  Preference preference;
  if (cublasLtMatmulPreferenceCreate(preference.out()) != CUBLAS_STATUS_SUCCESS) return std::nullopt;
  cublasLtMatmulHeuristicResult_t offered{};
  int found = 0;
  const cublasStatus_t status =
      cublasLtMatmulAlgoGetHeuristic(handle, choice.matmul.get(), choice.w.get(), choice.x.get(), choice.y.get(),
                                     choice.y.get(), preference.get(), 1, &offered, &found);
  return status == CUBLAS_STATUS_SUCCESS && found > 0 ? std::optional(offered.algo) : std::nullopt;
}

// Returns what ask_library() returns, but asks only once for each shape. A forward has products of four or five shapes,
// which recur in dozens of layers. The table has at most kMostAlgorithms entries, because eager forwards may have any
// number of rows. A full table is emptied.
std::optional<cublasLtMatmulAlgo_t> algorithm_of(cublasLtHandle_t handle, const QuantisedProblem& p,
                                                 const Choice& choice) {
  using Key = std::tuple<cublasLtHandle_t, std::int64_t, std::int64_t, std::int64_t, ir::DType, bool>;
  constexpr std::size_t kMostAlgorithms = 2048;
  static std::mutex mutex;
  static auto* algorithms = new std::map<Key, std::optional<cublasLtMatmulAlgo_t>>;
  const Key key{handle, p.m, p.n, p.k, p.dtype, p.bias != nullptr};
  const std::lock_guard lock(mutex);
  if (const auto it = algorithms->find(key); it != algorithms->end()) return it->second;
  if (algorithms->size() >= kMostAlgorithms) algorithms->clear();
  return algorithms->emplace(key, ask_library(handle, choice)).first->second;
}

class RoundedLibraryLinear final : public BoundOp {
 public:
  RoundedLibraryLinear(const QuantisedProblem& call, const LibraryRows& rows, cublasLtHandle_t handle, Choice choice)
      : p_(call), rows_(rows), handle_(handle), choice_(std::move(choice)) {}

  Status enqueue(Stream& stream) const override {
    CudaStream& cuda = as_cuda(stream);
    TRY(cuda.begin_launch("quantised_linear, cuBLASLt"));
    const float one = 1;
    const float beta = p_.residual == nullptr ? 0 : 1;
    const std::byte* const c = p_.residual == nullptr ? p_.y : p_.residual;
    return to_status(
        cublasLtMatmul(handle_, choice_.matmul.get(), &one, p_.w.values, choice_.w.get(), rows_.values, choice_.x.get(),
                       &beta, c, choice_.y.get(), p_.y, choice_.y.get(), &choice_.algorithm, nullptr, 0, cuda.handle()),
        "cublasLtMatmul", without_matrix(p_));
  }

 private:
  std::uint64_t choice() const override { return variant_of(choice_, without_matrix(p_)); }

  QuantisedProblem p_;
  LibraryRows rows_;
  cublasLtHandle_t handle_;
  Choice choice_;
};

}  // namespace

bool rounded_library_serves(const QuantisedProblem& p) {
  const QuantisedFormat& f = p.w.format;
  return p.m >= kFewestRows && p.m % 4 == 0 && p.n % 16 == 0 && p.k % (4 * kBlock) == 0 && f.group_rows == kBlock &&
         f.group_cols == kBlock;
}

Result<std::unique_ptr<BoundOp>> bind_rounded_library(const QuantisedProblem& call, const LibraryRows& rows,
                                                      Device& device) {
  cublasLtHandle_t handle = TRY(library_handle(without_matrix(call), device));
  Choice choice;
  TRY(describe_rounded(call, rows, choice));
  const std::optional<cublasLtMatmulAlgo_t> algorithm = algorithm_of(handle, call, choice);
  if (!algorithm) return std::unique_ptr<BoundOp>();
  choice.algorithm = *algorithm;
  return std::unique_ptr<BoundOp>(std::make_unique<RoundedLibraryLinear>(call, rows, handle, std::move(choice)));
}

}  // namespace tessera
