// Binds quantised_linear on CUDA. bind() chooses one of six kernels, by sizes, types and the format alone:
//
//   staged        16-bit types, very few rows, Hopper (quantised_staged.cuh): like streamed, with x in shared memory
//   streamed      16-bit types, up to 16 rows, Hopper (quantised_streamed.cuh): bound by reading w
//   rounded rows  FP8 made for rounded inputs, Hopper (quantised_fp8.cuh): products of eight bits
//   tiles         16-bit types, any number of rows, Hopper (quantised_tiles.cuh): products of sixteen bits
//   dequantised   16-bit types, at least 1024 rows (dequantised.cuh): converts w to scratch memory
//   plain         everything else (quantised_plain.cu)
//
// Only the kernel of rounded rows rounds x. A deterministic forward uses the same kernel for any number of rows, so it
// never uses the staged, the streamed or the dequantised one.
#include "tessera/ops/quantised/quantised_linear.h"

#include "tessera/device/cuda/cuda_device.h"
#include "tessera/ops/cuda/cuda_op.h"
#include "tessera/ops/quantised/quantised_kernels.cuh"

namespace tessera {
namespace {

using Way = QuantisedWay;

// Returns whether the product of rounded rows is faster than the kernels for few rows although they support the call.
// It is faster from two rows up, except with small matrices. With one row the staged kernel is at least as fast
// (docs/measurements/kernels.md).
bool prefers_rounded_rows(const QuantisedCall& call) {
  constexpr std::int64_t kFewestRows = 2;
  constexpr std::int64_t kSmall = std::int64_t{4} << 20;  // bytes of w
  return call.m >= kFewestRows && call.n * call.k > kSmall && quantised_fp8_serves(call);
}

// Returns whether tiles are faster than the streamed kernel although both support the call. With four-bit weights the
// time of tiles is the same for up to 32 rows, and the streamed kernel's time grows beyond eight rows. With fourteen
// rows of int4 both take about 88 us for the linears of a layer of Llama-3-8B's sizes (H200). With small groups of
// int4, tiles are slower.
bool prefers_tiles(const QuantisedCall& call) {
  const QuantisedFormat& f = call.w.format;
  const bool is_fast = f.values == QuantisedFormat::Values::kE2M1 ||
                       (f.values == QuantisedFormat::Values::kInt4 && f.group_cols % 128 == 0);
  return is_fast && call.m >= 14 && quantised_tiles_serve(call);
}

Result<std::size_t> workspace_bytes(const BindArgs& args) {
  const QuantisedCall call = quantised_call(args);
  switch (choose_way(call)) {
    case Way::kRoundedRows: return quantised_fp8_workspace(call);
    case Way::kDequantised: return quantised_dequantised_workspace(call);
    default: return std::size_t{0};
  }
}

Result<std::unique_ptr<BoundOp>> bind(const BindArgs& args) {
  TRY(static_cast<CudaDevice&>(args.device).make_current());
  const QuantisedCall call = quantised_call(args);
  return bind_way(choose_way(call), call, args.device);
}

}  // namespace

Way choose_way(const QuantisedCall& call) {
  if (call.m == 0) return Way::kNothing;
  if (call.w.format.is_blocks()) return Way::kRefused;
  if (prefers_rounded_rows(call)) return Way::kRoundedRows;
  if (quantised_staged_serves(call)) return Way::kStaged;
  if (quantised_streamed_serves(call) && !prefers_tiles(call)) return Way::kStreamed;
  if (quantised_fp8_serves(call)) return Way::kRoundedRows;
  if (quantised_tiles_serve(call)) return Way::kTiles;
  return quantised_dequantised_serves(call) ? Way::kDequantised : Way::kPlain;
}

Result<std::unique_ptr<BoundOp>> bind_way(Way way, const QuantisedCall& call, Device& device) {
  switch (way) {
    case Way::kNothing: return make_cuda_op("quantised_linear", [](cudaStream_t) {});
    case Way::kRefused: return refuse_blocks("quantised_linear", call.w.format.blocks);
    case Way::kStaged: return bind_quantised_staged(call);
    case Way::kStreamed: return bind_quantised_streamed(call);
    case Way::kRoundedRows: return bind_quantised_fp8(call, {}, device);
    case Way::kDequantised: return bind_quantised_dequantised(call, device);
    case Way::kTiles: return bind_quantised_tiles(call);
    default: return bind_quantised_plain(call);
  }
}

QuantisedCall quantised_call(const BindArgs& args) {
  QuantisedCall call{make_quantised_problem(args)};
  call.deterministic = args.context.limits.deterministic;
  return call;
}

const KernelDef kQuantisedLinearCuda{
    .op = "quantised_linear", .name = "cuda", .bind = bind, .workspace_bytes = workspace_bytes};

}  // namespace tessera
