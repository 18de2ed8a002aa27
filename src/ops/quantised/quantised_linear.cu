// quantised_linear on CUDA. bind() chooses one of three kernels, by sizes, types and the format alone:
//
//   streamed  16-bit types, up to 16 rows, Hopper (quantised_streamed.cuh): reading w bounds it
//   tiles     16-bit types, any number of rows, Hopper (quantised_tiles.cuh): tensor cores bound many rows
//   plain     everything else (quantised_plain.cu)
//
// All keep x as it is. Deterministic forwards go by tiles, or by the plain kernel, whatever their number of rows.
#include "tessera/ops/quantised/quantised_linear.h"

#include <limits>

#include "tessera/device/cuda/cuda_device.h"
#include "tessera/ops/cuda/cuda_op.h"
#include "tessera/ops/quantised/quantised_cuda.h"

namespace tessera {
namespace {

Result<std::unique_ptr<BoundOp>> bind(const BindArgs& args) {
  const QuantisedProblem p = make_quantised_problem(args);
  if (p.m == 0) return make_cuda_op("quantised_linear", [](cudaStream_t) {});
  TRY(static_cast<CudaDevice&>(args.device).make_current());
  const bool deterministic = args.context.limits.deterministic;
  if (!deterministic && quantised_streamed_serves(p)) return bind_quantised_streamed(p);
  if (quantised_tiles_serve(p)) return bind_quantised_tiles(p, deterministic);
  return bind_quantised_plain(p);
}

}  // namespace

const KernelDef kQuantisedLinearCuda{.op = "quantised_linear", .name = "cuda", .bind = bind};

const std::vector<JoinedKernelDef>& joined_quantised_kernels() {
  constexpr std::int64_t kAnyRows = std::numeric_limits<std::int64_t>::max();
  static const std::vector<JoinedKernelDef> kernels{
      {.ops = {"quantised_linear", "silu_mul"}, .name = "streamed", .most_rows = 16, .bind = bind_quantised_gated},
      {.ops = {"quantised_linear", "gelu_mul"}, .name = "streamed", .most_rows = 16, .bind = bind_quantised_gated},
      {.ops = {"quantised_linear", "silu_mul"},
       .name = "tiles",
       .most_rows = kAnyRows,
       .bind = bind_quantised_tiles_gated},
      {.ops = {"quantised_linear", "gelu_mul"},
       .name = "tiles",
       .most_rows = kAnyRows,
       .bind = bind_quantised_tiles_gated}};
  return kernels;
}

}  // namespace tessera
