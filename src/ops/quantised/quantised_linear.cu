// quantised_linear on CUDA. bind() chooses one of five kernels, by sizes, types and the format alone:
//
//   streamed      16-bit types, up to 16 rows, Hopper (quantised_streamed.cuh): reading w bounds it
//   rounded rows  FP8 made for rounded inputs, Hopper (quantised_fp8.cuh): products of eight bits
//   dequantised   16-bit types, 1024 rows or more (dequantised.cuh): converts w to scratch memory
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

enum class Way { kNothing, kStreamed, kRoundedRows, kDequantised, kTiles, kPlain };

Way choose(const QuantisedCall& call) {
  if (call.m == 0) return Way::kNothing;
  if (quantised_streamed_serves(call)) return Way::kStreamed;
  if (quantised_fp8_serves(call)) return Way::kRoundedRows;
  if (quantised_dequantised_serves(call)) return Way::kDequantised;
  return quantised_tiles_serve(call) ? Way::kTiles : Way::kPlain;
}

Result<std::unique_ptr<BoundOp>> bind_way(Way way, const QuantisedCall& call, Device& device) {
  switch (way) {
    case Way::kNothing: return make_cuda_op("quantised_linear", [](cudaStream_t) {});
    case Way::kStreamed: return bind_quantised_streamed(call);
    case Way::kRoundedRows: return bind_quantised_fp8(call, device);
    case Way::kDequantised: return bind_quantised_dequantised(call, device);
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
  switch (choose(call)) {
    case Way::kRoundedRows: return quantised_fp8_workspace(call);
    case Way::kDequantised: return quantised_dequantised_workspace(call);
    default: return std::size_t{0};
  }
}

Result<std::unique_ptr<BoundOp>> bind(const BindArgs& args) {
  TRY(static_cast<CudaDevice&>(args.device).make_current());
  const QuantisedCall call = call_of(args);
  return bind_way(choose(call), call, args.device);
}

// Binds a JoinedKernelDef's operators: a quantised_linear without residual, then silu_mul or gelu_mul. Null where no
// kernel serves both, where only one of both ways rounds rows, where the library's product and a gate behind it are
// faster, and in deterministic forwards. The workspace is that of the linear alone, which takes rounded rows wherever
// both together do.
Result<std::unique_ptr<BoundOp>> bind_gated(std::span<const BindArgs> calls) {
  QuantisedCall call = call_of(calls[0]);
  if (call.deterministic || call.residual != nullptr) return std::unique_ptr<BoundOp>();
  call.gate = cuda::gate_of(calls[1].node);
  call.y = calls[1].results[0].data.raw();
  const Way way = choose(call);
  const QuantisedCall alone = call_of(calls[0]);
  const Way way_alone = choose(alone);
  const bool rounds_alike = (way == Way::kRoundedRows) == (way_alone == Way::kRoundedRows);
  const bool is_library = way_alone == Way::kDequantised || (way_alone == Way::kRoundedRows && takes_library(alone));
  if (way == Way::kNothing || way == Way::kPlain || !rounds_alike || is_library) return std::unique_ptr<BoundOp>();
  return bind_way(way, call, calls[0].device);
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
