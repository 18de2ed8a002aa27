// Binds quantised_linear of many rows in two steps: the matrix is converted to 16-bit numbers in scratch memory
// (dequantised.cuh), and cuBLASLt multiplies x by them.
#include <utility>
#include <vector>

#include "tessera/ops/contract/bound_sequence.h"
#include "tessera/ops/cuda/cuda_op.h"
#include "tessera/ops/linear/linear_cuda.h"
#include "tessera/ops/quantised/dequantised.cuh"
#include "tessera/ops/quantised/quantised_kernels.cuh"

namespace tessera {
namespace {

using namespace cuda;
using namespace cuda::quantised;

// The minimum number of rows with which the two steps are faster than the plain kernel (quantised_plain.cu). With fewer
// rows, the conversion takes longer than cuBLASLt's product saves.
constexpr std::int64_t kFewestRows = 1024;
// The limit of the scratch memory, which is taken from the memory for the KV cache. Larger matrices are not converted.
constexpr std::int64_t kMostBytes = std::int64_t{256} << 20;

std::int64_t matrix_bytes(const QuantisedCall& p) { return p.n * p.k * 2; }

template <class T, Values kValues>
std::unique_ptr<BoundOp> make_conversion(const QuantisedCall& p) {
  const std::int64_t threads = p.n * p.k / kDequantisedColumns;
  const LaunchShape shape{.grid = dim3(static_cast<unsigned>(ceil_div(threads, std::int64_t{kDequantisedThreads}))),
                          .block = dim3(kDequantisedThreads)};
  return make_cuda_op("quantised_linear, dequantised",
                      [shape, w = p.w, to = reinterpret_cast<T*>(p.workspace)](cudaStream_t stream) {
                        launch_early(dequantise<T, kValues>, shape, stream, w, to);
                      });
}

template <class T>
std::unique_ptr<BoundOp> make_conversion(const QuantisedCall& p) {
  switch (p.w.format.values) {
    case Values::kE4M3: return make_conversion<T, Values::kE4M3>(p);
    case Values::kInt8: return make_conversion<T, Values::kInt8>(p);
    case Values::kE2M1: return make_conversion<T, Values::kE2M1>(p);
    default: return make_conversion<T, Values::kInt4>(p);
  }
}

}  // namespace

bool quantised_dequantised_serves(const QuantisedCall& p) {
  const bool half = p.dtype == ir::DType::kBFloat16 || p.dtype == ir::DType::kFloat16;
  const bool one_scale = p.w.num_groups == 1 || p.w.format.group_cols % kDequantisedColumns == 0;
  return half && !p.deterministic && p.gate == Gate::kNone && p.m >= kFewestRows && p.k % kDequantisedColumns == 0 &&
         p.n % 8 == 0 && p.w.groups == nullptr && one_scale && matrix_bytes(p) <= kMostBytes && is_aligned(p.x) &&
         is_aligned(p.w.values) && is_aligned(p.y);
}

std::size_t quantised_dequantised_workspace(const QuantisedCall& p) {
  return static_cast<std::size_t>(matrix_bytes(p)) + kCublasLtWorkspaceBytes;
}

Result<std::unique_ptr<BoundOp>> bind_quantised_dequantised(const QuantisedCall& p, Device& device) {
  LinearProblem linear = without_matrix(p);
  linear.w = p.workspace;
  linear.workspace = p.workspace + matrix_bytes(p);
  std::vector<std::unique_ptr<BoundOp>> parts;
  parts.push_back(p.dtype == ir::DType::kBFloat16 ? make_conversion<__nv_bfloat16>(p) : make_conversion<__half>(p));
  parts.push_back(TRY(bind_cublaslt(linear, device)));
  return Result<std::unique_ptr<BoundOp>>(std::make_unique<BoundSequence>(std::move(parts)));
}

}  // namespace tessera
