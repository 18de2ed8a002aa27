#include "tessera/ops/linear/linear.h"

#include "tessera/device/cuda/cuda_device.h"
#include "tessera/ops/cuda/cuda_op.h"
#include "tessera/ops/linear/linear_cuda.h"

namespace tessera {
namespace {

// The maximum number of rows for the simple kernel (linear_few_rows.cu), if neither the streamed nor the split kernel
// supports the linear. For one row, reading the weights takes all of the time, and the simple kernel is faster than
// cuBLASLt. For two rows or more the library is at least as fast (docs/measurements/prefill-decode.md).
constexpr std::int64_t kMaxFewRows = 1;

// Returns whether cuBLASLt would round the product to the storage type before it adds the bias. cuBLASLt does so if the
// size of a row of w or y is no multiple of 16 bytes. No model in use has such rows. Tests have them, but only with
// small matrices, so the slower kernel for few rows serves them.
bool rounds_twice(const LinearProblem& p) {
  const auto element = static_cast<std::int64_t>(ir::dtype_size(p.dtype));
  return p.bias != nullptr && p.dtype != ir::DType::kFloat32 && (p.k * element % 16 != 0 || p.n * element % 16 != 0);
}

bool takes_few_rows(const LinearProblem& p) { return p.m <= kMaxFewRows || p.k == 0 || rounds_twice(p); }

Result<std::size_t> workspace_bytes(const BindArgs& args) {
  // Streamed and split kernels need no workspace. Whether one of them runs also depends on addresses, which are not
  // known here. This function therefore returns cuBLASLt's size even if a streamed or split kernel will run.
  if (args.context.limits.deterministic || takes_few_rows(make_linear_problem(args))) return std::size_t{0};
  return kCublasLtWorkspaceBytes;
}

// Binds a kernel whose order of addition does not depend on m. The choice between cuBLASLt and the kernel for few rows
// does not depend on m either.
Result<std::unique_ptr<BoundOp>> bind_deterministic(const LinearProblem& p, Device& device) {
  if (p.k == 0 || rounds_twice(p)) return bind_cuda_few_rows(p);
  Result<std::unique_ptr<BoundOp>> bound = bind_cublaslt_for_any_rows(p, device);
  if (!bound.ok() && bound.status().code() == StatusCode::kUnimplemented) return bind_cuda_few_rows(p);
  return bound;
}

Result<std::unique_ptr<BoundOp>> bind(const BindArgs& args) {
  const LinearProblem p = make_linear_problem(args);
  if (p.m == 0 || p.n == 0) return make_cuda_op("linear", [](cudaStream_t) {});
  TRY(static_cast<CudaDevice&>(args.device).make_current());
  if (can_stream(args)) return bind_streamed(p);
  if (can_split(args)) return bind_split(p);
  if (!args.context.limits.deterministic && takes_few_rows(p)) return bind_cuda_few_rows(p);
  if (args.context.limits.deterministic) return bind_deterministic(p, args.device);
  Result<std::unique_ptr<BoundOp>> bound = bind_cublaslt(p, args.device);
  if (!bound.ok() && bound.status().code() == StatusCode::kUnimplemented) return bind_cuda_few_rows(p);
  return bound;
}

}  // namespace

const KernelDef kLinearCuda{.op = "linear", .name = "cublaslt", .bind = bind, .workspace_bytes = workspace_bytes};

}  // namespace tessera
