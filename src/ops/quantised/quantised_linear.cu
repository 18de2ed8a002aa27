// Binds quantised_linear on CUDA. bind() chooses one of seven kernels, by sizes, types and the format alone. Each line
// below gives a kernel's name, what the kernel needs, its file, and its main property:
//
//   staged        16-bit types, very few rows, Hopper (quantised_staged.cuh): like streamed, with x in shared memory
//   streamed      16-bit types, up to 16 rows, Hopper (quantised_streamed.cuh): bound by reading w
//   fixed point   16-bit types, up to 32 rows, int4, Hopper (quantised_fixed.cuh): exact products of integers
//   rounded rows  FP8 made for rounded inputs, Hopper (quantised_fp8.cuh): products of eight bits
//   tiles         16-bit types, any number of rows, Hopper (quantised_tiles.cuh): products of sixteen bits. For 33 to
//                 128 rows of int4, scales are applied to sums of groups (quantised_groups.cuh)
//   dequantised   16-bit types, at least 1024 rows (dequantised.cuh): converts w to scratch memory
//   plain         everything else (quantised_plain.cu)
//
// The kernel of rounded rows rounds x to eight bits, and the kernel of fixed point rounds it to sixteen bits. No other
// kernel rounds x. A deterministic forward uses kernels whose sums have the same order for any number of rows, so it
// never uses the staged, the streamed, the fixed-point or the dequantised one, nor sums of groups.
#include "tessera/ops/quantised/quantised_linear.h"

#include <algorithm>

#include "tessera/device/cuda/cuda_device.h"
#include "tessera/ops/cuda/cuda_op.h"
#include "tessera/ops/quantised/quantised_kernels.cuh"

namespace tessera {
namespace {

using Way = QuantisedWay;

// Returns whether the kernel of rounded rows supports the call and is faster than the kernels for few rows. From two
// rows up it is faster than these, except with small matrices. With one row the staged kernel is at least as fast
// (docs/measurements/kernels.md).
bool prefers_rounded_rows(const QuantisedCall& call) {
  constexpr std::int64_t kFewestRows = 2;
  constexpr std::int64_t kSmall = std::int64_t{4} << 20;  // a matrix of up to 4 MiB is small
  return call.m >= kFewestRows && call.n * call.k > kSmall && quantised_fp8_serves(call);
}

// Returns whether the kernel of tiles supports the call and is faster than the streamed kernel. With four-bit weights
// the time of tiles is the same for up to 32 rows, and the streamed kernel's time grows beyond eight rows. With int4
// and fourteen rows, both take about 88 us for the linears of a layer with Llama-3-8B's sizes (H200). With small groups
// of int4, the kernel of tiles is slower than the streamed kernel.
bool prefers_tiles(const QuantisedCall& call) {
  const QuantisedFormat& f = call.w.format;
  const bool is_fast = f.values == QuantisedFormat::Values::kE2M1 ||
                       (f.values == QuantisedFormat::Values::kInt4 && f.group_cols % 128 == 0);
  return is_fast && call.m >= 14 && quantised_tiles_serve(call);
}

// Returns whether the kernel of integer products supports the call and is faster than the kernels that multiply 16-bit
// numbers. Products of integers need a launch that converts x, unless a norm or gate before them converts it. With one
// row this launch takes longer than an integer product saves. With 2 to 15 rows the launch takes longer only if the
// matrix is small (docs/measurements/kernels.md).
bool prefers_fixed_point(const QuantisedCall& call) {
  if (call.m < 2 || !quantised_fixed_serves(call)) return false;
  // The maximum number of values of a small matrix, in units of 2^20.
  const std::int64_t most_small = call.m < 4 ? 12 : call.m < 16 ? 6 : 0;
  return call.n * call.k > most_small << 20;
}

std::size_t workspace_of(const QuantisedCall& call) {
  switch (choose_way(call)) {
    case Way::kRoundedRows: return quantised_fp8_workspace(call);
    case Way::kFixedPoint: return quantised_fixed_workspace(call);
    case Way::kDequantised: return quantised_dequantised_workspace(call);
    default: return 0;
  }
}

// Returns the number of bytes of workspace that the call needs. If the call has more than kMostFixedPointRows rows, the
// result also suffices for an equal call with kMostFixedPointRows rows.
Result<std::size_t> workspace_bytes(const BindArgs& args) {
  QuantisedCall call = quantised_call(args);
  const std::size_t bytes = workspace_of(call);
  if (call.m <= kMostFixedPointRows) return bytes;
  call.m = kMostFixedPointRows;
  return std::max(bytes, workspace_of(call));
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
  if (prefers_fixed_point(call)) return Way::kFixedPoint;
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
    case Way::kFixedPoint: return bind_quantised_fixed(call, {});
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
