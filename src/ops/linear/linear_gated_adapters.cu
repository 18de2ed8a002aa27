// Binds the linear with a gate on Hopper, whose rows may have adapters.
#include "tessera/device/alignment.h"
#include "tessera/ops/linear/linear_gated.h"
#include "tessera/ops/linear/linear_gated_bind.cuh"

namespace tessera {
namespace {

using namespace cuda;
using namespace cuda::gated_linear;

using T = __nv_bfloat16;

// Returns whether one module of the adapters has all columns of the gate, and one has all of the up projection.
bool has_two_parts(const AdapterRanges& ranges, std::int64_t n) {
  return ranges.count == 1 || (ranges.count == 2 && ranges.ends[0] == n);
}

// Makes the tensor map of n columns of b, from column `first` on (Parts).
Result<CUtensorMap> encode_columns_of_b(ir::DType dtype, const AdapterAddArgs& in, std::int64_t first, std::int64_t n) {
  return encode_tensor_map(
      dtype, static_cast<const std::byte*>(in.b) + static_cast<std::size_t>(first) * ir::dtype_size(dtype),
      std::array{
          TensorBox{.size = 8, .stride = 1, .box = 8}, TensorBox{.size = in.rank, .stride = in.cols, .box = kPartRanks},
          TensorBox{.size = 1, .stride = n, .box = 2}, TensorBox{.size = n / 8, .stride = 8, .box = kBlockColumns / 8},
          TensorBox{.size = in.num_slots, .stride = in.rank * in.cols, .box = 1}},
      Swizzle::kNone);
}

// Returns the maximum number of all tiles' parts (linear_gated_parts.cuh). A part begins with its tile, or where the
// slot changes from one row to the next. The slot changes at most once per request (adapter_rows.h).
std::int64_t most_parts(const AdapterAddArgs& in, std::int64_t tiles, std::int64_t tile_rows, std::int64_t requests) {
  return std::min(tiles * std::min<std::int64_t>(in.num_slots, tile_rows), tiles + std::min(requests, in.rows));
}

// Places the parts in the workspace. `requests` is the maximum number of requests. Returns nothing if the parts do not
// fit.
Result<std::optional<Parts<T>>> make_parts_of(const LinearProblem& p, const AdapterAddArgs& in, int tile_rows,
                                              std::int64_t requests) {
  const std::int64_t n = p.n / 2;
  const std::int64_t tiles = ceil_div(p.m, tile_rows);
  const std::int64_t most = most_parts(in, tiles, tile_rows, requests);
  const std::int64_t depths = ceil_div(in.rank, kPartRanks);
  const std::int64_t rows = most * depths * tile_rows;
  const auto numbers = static_cast<std::size_t>(align_up((2 * tiles + most) * std::int64_t{sizeof(std::int32_t)}));
  if (tiles > kMostTiles || numbers + static_cast<std::size_t>(rows * kHopperRowBytes) > kCublasLtWorkspaceBytes)
    return std::optional<Parts<T>>();
  std::byte* const t = p.workspace + numbers;
  const CUtensorMap x = TRY(encode_tensor_map(
      p.dtype, t,
      std::array{TensorBox{.size = kHopperDepth, .stride = 1, .box = kHopperDepth},
                 TensorBox{.size = rows, .stride = kHopperDepth, .box = tile_rows / kHopperCluster}}));
  const CUtensorMap gate = TRY(encode_columns_of_b(p.dtype, in, 0, n));
  const CUtensorMap up = TRY(encode_columns_of_b(p.dtype, in, n, n));
  auto* const firsts = reinterpret_cast<std::int32_t*>(p.workspace);
  return std::optional<Parts<T>>({.x = x,
                                  .gate = gate,
                                  .up = up,
                                  .firsts = firsts,
                                  .counts = firsts + tiles,
                                  .slots = firsts + 2 * tiles,
                                  .t = reinterpret_cast<T*>(t),
                                  .most = static_cast<int>(most),
                                  .depths = static_cast<int>(depths),
                                  .tile_rows = tile_rows,
                                  .modules = {in.ranges.modules[0], in.ranges.modules[in.ranges.count - 1]}});
}

template <class Gate>
Result<std::unique_ptr<BoundOp>> make(const LinearProblem& p, const AdapterAddArgs& in, std::int64_t requests,
                                      std::byte* y) {
  const std::optional<Launch<T>> launch = TRY(make_launch<T, Gate, Parts<T>>(p, y));
  if (!launch) return std::unique_ptr<BoundOp>();
  const std::optional<Parts<T>> parts = TRY(make_parts_of(p, in, launch->linear.tile_rows, requests));
  if (!parts) return std::unique_ptr<BoundOp>();
  const LaunchShape shape_of_parts{
      .grid = dim3(static_cast<unsigned>(ceil_div(p.m, launch->linear.tile_rows)), kPartBlocks),
      .block = dim3(kPartThreads)};
  return make_cuda_op("linear with adapters and gate, by warpgroups",
                      [=, launch = *launch, parts = *parts](cudaStream_t stream) {
                        launch_early(make_parts<T>, shape_of_parts, stream, in, parts);
                        launch_with(linear_gated<T, Gate, Parts<T>>, launch.shape, kSharedBytes, /*early=*/true, stream,
                                    launch.linear, parts);
                      });
}

}  // namespace

Result<std::unique_ptr<BoundOp>> bind_gated_adapted(std::span<const BindArgs> calls) {
  const LinearProblem p = make_linear_problem(calls[0]);
  const AdapterAddArgs in = adapter_add_args(calls[1]);
  std::byte* const y = calls[2].results[0].data.raw();
  if (!supports<Parts<T>>(calls[0], p, y) || !is_aligned(in.b) || in.num_slots > kMostSlots ||
      !has_two_parts(in.ranges, p.n / 2) || p.dtype != ir::DType::kBFloat16)
    return std::unique_ptr<BoundOp>();
  const std::int64_t requests = calls[0].context.limits.max_requests;
  return with_gate(calls[2].node, [&]<class Gate>() { return make<Gate>(p, in, requests, y); });
}

}  // namespace tessera
