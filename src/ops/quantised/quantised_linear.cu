// quantised_linear on CUDA. bind() chooses one of four kernels, by sizes, types and the format alone:
//
//   streamed      16-bit types, up to 16 rows, Hopper (quantised_streamed.cuh): reading w bounds it
//   rounded rows  FP8 made for rounded inputs, Hopper (quantised_fp8.cuh): products of eight bits
//   tiles         16-bit types, any number of rows, Hopper (quantised_tiles.cuh): products of sixteen bits
//   plain         everything else (quantised_plain.cu)
//
// Only rounded rows are rounded. Deterministic forwards take the same kernel for any number of rows, so none of them is
// streamed.
#include "tessera/ops/quantised/quantised_linear.h"

#include <limits>
#include <span>

#include "tessera/device/cuda/cuda_device.h"
#include "tessera/ops/cuda/cuda_op.h"
#include "tessera/ops/quantised/quantised_kernels.cuh"

namespace tessera {
namespace {

enum class Way { kNothing, kStreamed, kRoundedRows, kTiles, kPlain };

Way choose(const QuantisedCall& call) {
  if (call.m == 0) return Way::kNothing;
  if (quantised_streamed_serves(call)) return Way::kStreamed;
  if (quantised_fp8_serves(call)) return Way::kRoundedRows;
  return quantised_tiles_serve(call) ? Way::kTiles : Way::kPlain;
}

Result<std::unique_ptr<BoundOp>> bind_way(Way way, const QuantisedCall& call) {
  switch (way) {
    case Way::kNothing: return make_cuda_op("quantised_linear", [](cudaStream_t) {});
    case Way::kStreamed: return bind_quantised_streamed(call);
    case Way::kRoundedRows: return bind_quantised_fp8(call);
    case Way::kTiles: return bind_quantised_tiles(call);
    default: return bind_quantised_plain(call);
  }
}

QuantisedCall call_of(const BindArgs& args) {
  QuantisedCall call{make_quantised_problem(args)};
  call.deterministic = args.context.limits.deterministic;
  return call;
}

Result<std::size_t> workspace_bytes(const BindArgs& args) {
  const QuantisedCall call = call_of(args);
  return choose(call) == Way::kRoundedRows ? quantised_fp8_workspace(call) : std::size_t{0};
}

Result<std::unique_ptr<BoundOp>> bind(const BindArgs& args) {
  TRY(static_cast<CudaDevice&>(args.device).make_current());
  const QuantisedCall call = call_of(args);
  return bind_way(choose(call), call);
}

// Binds a JoinedKernelDef's operators: a quantised_linear without residual, then silu_mul or gelu_mul. Null where no
// kernel serves both, and in deterministic forwards. The workspace is that of the linear alone, which takes rounded
// rows wherever both together do.
Result<std::unique_ptr<BoundOp>> bind_gated(std::span<const BindArgs> calls) {
  QuantisedCall call = call_of(calls[0]);
  if (call.deterministic || call.residual != nullptr) return std::unique_ptr<BoundOp>();
  call.gate = cuda::gate_of(calls[1].node);
  call.y = calls[1].results[0].data.raw();
  const Way way = choose(call);
  if (way == Way::kNothing || way == Way::kPlain) return std::unique_ptr<BoundOp>();
  return bind_way(way, call);
}

}  // namespace

const KernelDef kQuantisedLinearCuda{
    .op = "quantised_linear", .name = "cuda", .bind = bind, .workspace_bytes = workspace_bytes};

const std::vector<JoinedKernelDef>& joined_quantised_kernels() {
  constexpr std::int64_t kAnyRows = std::numeric_limits<std::int64_t>::max();
  static const std::vector<JoinedKernelDef> kernels{
      {.ops = {"quantised_linear", "silu_mul"}, .name = "gated", .most_rows = kAnyRows, .bind = bind_gated},
      {.ops = {"quantised_linear", "gelu_mul"}, .name = "gated", .most_rows = kAnyRows, .bind = bind_gated}};
  return kernels;
}

}  // namespace tessera
