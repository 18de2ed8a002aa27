// Binds adapter_shrink and adapter_add to tensor-core kernels if the types and sizes allow it, else to kernels that
// compute value by value.
#include <cstdint>

#include "tessera/base/ceil_div.h"
#include "tessera/ops/adapters/adapter_add_tiles.cuh"
#include "tessera/ops/adapters/adapter_linear.h"
#include "tessera/ops/adapters/adapter_products.cuh"
#include "tessera/ops/adapters/adapter_shrink_tiles.cuh"
#include "tessera/ops/adapters/adapter_tiles.cuh"
#include "tessera/ops/cuda/cuda_op.h"
#include "tessera/ops/cuda/cuda_shared_memory.h"
#include "tessera/ops/cuda/is_aligned.h"

namespace tessera {
namespace cuda::adapters {
namespace {

// Computes y += scale · t · b. A thread computes one element of y.
template <class T>
__global__ void add_values(const AdapterAddArgs in) {
  let_next_begin();
  wait_for_previous();
  const std::int64_t row = blockIdx.x;
  const std::int64_t column = std::int64_t{blockIdx.y} * blockDim.x + threadIdx.x;
  const std::int32_t slot = in.table.slots[row];
  if (slot < 0 || column >= in.cols) return;
  const std::int32_t module = module_of(in.ranges, column);
  const std::int32_t rank = in.ranks[slot * in.modules + module];
  if (rank == 0) return;
  const float* const t = in.t + (row * in.modules + module) * in.rank;
  const T* const b = static_cast<const T*>(in.b) + std::int64_t{slot} * in.rank * in.cols + column;
  float sum = 0;
#pragma unroll 4
  for (std::int32_t r = 0; r < rank; ++r) sum = fmaf(t[r], to_float(b[r * in.cols]), sum);
  T* const y = static_cast<T*>(in.y) + row * in.cols + column;
  *y = from_float<T>(fmaf(in.scales[slot * in.modules + module], sum, to_float(*y)));
}

constexpr const char* kShrink = "adapter_shrink";

template <class T, int kEights, int kWarps, int kSteps, int kParts>
std::unique_ptr<BoundOp> make_shrink_few(const AdapterShrinkArgs& in) {
  return make_product(
      kShrink, shrink_few<T, kEights, kWarps, kSteps, kParts>,
      {.grid = dim3(kParts, groups_of(in, 1), chunks_of(in)), .block = dim3(kWarps * kWarp), .cluster = kParts}, in);
}

// Makes an operator that runs shrink_few for up to 8 rows. If A has at most 16384 columns, the registers of a cluster
// hold all columns of the cluster's rows of A.
template <class T>
std::unique_ptr<BoundOp> make_shrink_of_eight(const AdapterShrinkArgs& in) {
  if (in.cols <= 4096) return make_shrink_few<T, 1, 16, 8, 1>(in);
  if (in.cols <= 8192) return make_shrink_few<T, 1, 16, 8, 2>(in);
  return make_shrink_few<T, 1, 16, 8, 4>(in);
}
template <class T>
std::unique_ptr<BoundOp> make_shrink_of_sixteen(const AdapterShrinkArgs& in) {
  if (in.cols <= 4096) return make_shrink_few<T, 2, 8, 4, 4>(in);
  if (in.cols <= 8192) return make_shrink_few<T, 2, 8, 4, 8>(in);
  return make_shrink_few<T, 2, 8, 8, 8>(in);
}

template <class T, int kRows, int kGroups, int kParts>
Result<std::unique_ptr<BoundOp>> make_shrink_tiles(const AdapterShrinkArgs& in) {
  const auto kernel = shrink_tiles<T, kRows, kGroups, kParts>;
  TRY(allow_shared_memory(reinterpret_cast<const void*>(kernel), kShrinkBytes<T, kRows, kGroups>, kShrink));
  const LaunchShape shape{
      .grid = dim3(kParts, groups_of(in, kGroups), chunks_of(in)), .block = dim3(kTileThreads), .cluster = kParts};
  return make_cuda_op(kShrink, [=](cudaStream_t stream) {
    if (in.rows > 0) launch_with(kernel, shape, kShrinkBytes<T, kRows, kGroups>, can_launch_early(), stream, in);
  });
}

// Makes an operator that runs shrink_tiles for chunks of up to kRows rows. The clusters are so large that all
// multiprocessors have work. A block still has at least eight stages if the linear has 4096 columns.
template <class T, int kRows>
Result<std::unique_ptr<BoundOp>> make_shrink_of_tiles(const AdapterShrinkArgs& in) {
  return with_groups(in, [&]<int kGroups>() {
    return in.cols > 8192 ? make_shrink_tiles<T, kRows, kGroups, 8>(in) : make_shrink_tiles<T, kRows, kGroups, 4>(in);
  });
}

// Makes an operator that runs adapter_shrink on tensor cores, with the kernel for chunks of adapter_chunk_rows(in.rows)
// rows.
template <class T>
Result<std::unique_ptr<BoundOp>> make_shrink(const AdapterShrinkArgs& in, bool deterministic) {
  if (deterministic || !can_launch_early()) return make_product_of_many<T>(kShrink, in);
  switch (adapter_chunk_rows(in.rows)) {
    case 8: return make_shrink_of_eight<T>(in);
    case 16: return make_shrink_of_sixteen<T>(in);
    case 32: return make_shrink_of_tiles<T, 32>(in);
    default: return make_shrink_of_tiles<T, 64>(in);
  }
}

template <class T>
std::unique_ptr<BoundOp> make_add_tiles(const AdapterAddArgs& in) {
  const LaunchShape shape{
      .grid = dim3(static_cast<unsigned>(ceil_div(in.cols, std::int64_t{kAddWarps} * kAddColumns)), chunks_of(in)),
      .block = dim3(kAddWarps * kWarp)};
  return make_cuda_op("adapter_add", [=](cudaStream_t stream) {
    if (in.rows > 0) launch_early(add_tiles<T>, shape, stream, in);
  });
}

// Returns whether the columns that a warp of add_tiles computes always belong to one module.
bool are_whole_tiles(const AdapterRanges& ranges) {
  for (std::int32_t i = 0; i < ranges.count; ++i)
    if (ranges.ends[i] % kAddColumns != 0) return false;
  return true;
}

Result<std::unique_ptr<BoundOp>> bind_shrink(const BindArgs& args) {
  const AdapterShrinkArgs in = adapter_shrink_args(args);
  return dispatch_dtype(args.operands[0].dtype, kShrink, [&]<class T>() -> Result<std::unique_ptr<BoundOp>> {
    if constexpr (sizeof(T) == 2) {
      if (fits_tiles<T>(in)) return make_shrink<T>(in, args.context.limits.deterministic);
    }
    return make_product_of_values<T>(kShrink, in);
  });
}

Result<std::unique_ptr<BoundOp>> bind_add(const BindArgs& args) {
  const AdapterAddArgs in = adapter_add_args(args);
  return dispatch_dtype(args.operands[0].dtype, "adapter_add", [&]<class T>() -> Result<std::unique_ptr<BoundOp>> {
    if constexpr (sizeof(T) == 2) {
      if (are_whole_tiles(in.ranges) && is_aligned(in.y) && is_aligned(in.b)) return make_add_tiles<T>(in);
    }
    return make_by_row<AdapterAddArgs>("adapter_add", add_values<T>, in, in.cols, kBlockThreads);
  });
}

}  // namespace
}  // namespace cuda::adapters

const KernelDef kAdapterShrinkCuda{.op = "adapter_shrink", .name = "cuda", .bind = cuda::adapters::bind_shrink};
const KernelDef kAdapterAddCuda{.op = "adapter_add", .name = "cuda", .bind = cuda::adapters::bind_add};

}  // namespace tessera
