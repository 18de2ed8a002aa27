// Binds adapter_shrink and adapter_add to tensor-core kernels if the types and sizes allow it, else to kernels that
// compute value by value.
#include <cstdint>

#include "tessera/base/ceil_div.h"
#include "tessera/ops/adapters/adapter_linear.h"
#include "tessera/ops/adapters/adapter_tiles.cuh"
#include "tessera/ops/cuda/cuda_op.h"
#include "tessera/ops/cuda/is_aligned.h"

namespace tessera {
namespace cuda::adapters {
namespace {

// Computes t = x · aᵀ. A warp multiplies a row of x by a row of A, and its lanes share out the columns.
template <class T>
__global__ void shrink_values(const AdapterShrinkArgs in) {
  let_next_begin();
  wait_for_previous();
  const std::int64_t row = blockIdx.x;
  const std::int32_t values = in.modules * in.rank;
  const std::int32_t n = static_cast<std::int32_t>(blockIdx.y * kManyWarps + threadIdx.x / kWarp);
  const std::int32_t slot = in.table.slots[row];
  if (slot < 0 || n >= values) return;
  float sum = 0;
  if (n % in.rank < in.ranks[slot * in.modules + n / in.rank]) {
    const T* const x = static_cast<const T*>(in.x) + row * in.cols;
    const T* const a = static_cast<const T*>(in.a) + (std::int64_t{slot} * values + n) * in.cols;
    for (std::int64_t k = threadIdx.x % kWarp; k < in.cols; k += kWarp) sum = fmaf(to_float(x[k]), to_float(a[k]), sum);
    sum = warp_sum(sum);
  }
  if (threadIdx.x % kWarp == 0) in.t[row * values + n] = sum;
}

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

template <class Args>
unsigned chunks_of(const Args& in) {
  return static_cast<unsigned>(max_adapter_chunks(in.rows, in.num_slots));
}

std::unique_ptr<BoundOp> make_shrink(void (*kernel)(AdapterShrinkArgs), const LaunchShape& shape,
                                     const AdapterShrinkArgs& in) {
  return make_cuda_op("adapter_shrink", [=](cudaStream_t stream) {
    if (in.rows > 0) launch_early(kernel, shape, stream, in);
  });
}

unsigned groups_of(const AdapterShrinkArgs& in, int groups) {
  return static_cast<unsigned>(ceil_div(std::int64_t{in.modules} * in.rank, std::int64_t{groups} * kValues));
}

template <class T, int kEights, int kWarps, int kSteps, int kParts>
std::unique_ptr<BoundOp> make_shrink_few(const AdapterShrinkArgs& in) {
  return make_shrink(
      shrink_few<T, kEights, kWarps, kSteps, kParts>,
      {.grid = dim3(kParts, groups_of(in, 1), chunks_of(in)), .block = dim3(kWarps * kWarp), .cluster = kParts}, in);
}

// Makes a shape of shrink_few whose cluster holds all columns of A, up to 16384.
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

template <class T, int kEights>
std::unique_ptr<BoundOp> make_shrink_many(const AdapterShrinkArgs& in) {
  const auto make = [&]<int kGroups>() {
    return make_shrink(shrink_many<T, kEights, kGroups>,
                       {.grid = dim3(groups_of(in, kGroups), chunks_of(in)), .block = dim3(kManyWarps * kWarp)}, in);
  };
  if constexpr (kEights > 2) {
    if (groups_of(in, 1) == 2) return make.template operator()<2>();
    if (groups_of(in, 1) > 2) return make.template operator()<kMostGroups>();
  }
  return make.template operator()<1>();
}

// Makes an operator that runs adapter_shrink on tensor cores, with the kernel for chunks of adapter_chunk_rows(in.rows)
// rows.
template <class T>
std::unique_ptr<BoundOp> make_shrink_tiles(const AdapterShrinkArgs& in, bool deterministic) {
  const bool few = !deterministic && can_launch_early();
  switch (adapter_chunk_rows(in.rows)) {
    case 8: return few ? make_shrink_of_eight<T>(in) : make_shrink_many<T, 1>(in);
    case 16: return few ? make_shrink_of_sixteen<T>(in) : make_shrink_many<T, 2>(in);
    case 32: return make_shrink_many<T, 4>(in);
    default: return make_shrink_many<T, 8>(in);
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

// Makes an operator that computes `items` values for each row of the batch. Grid x: the rows. Grid y: one block for
// every `size` values of a row.
template <class Args>
std::unique_ptr<BoundOp> make_by_row(const char* name, void (*kernel)(Args), const Args& in, std::int64_t items,
                                     std::int64_t size) {
  const LaunchShape shape{.grid = dim3(static_cast<unsigned>(in.rows), static_cast<unsigned>(ceil_div(items, size))),
                          .block = dim3(kBlockThreads)};
  return make_cuda_op(name, [=](cudaStream_t stream) { launch_early(kernel, shape, stream, in); });
}

// Returns whether all columns that one warp of add_tiles computes always belong to one module.
bool are_whole_tiles(const AdapterRanges& ranges) {
  for (std::int32_t i = 0; i < ranges.count; ++i)
    if (ranges.ends[i] % kAddColumns != 0) return false;
  return true;
}

Result<std::unique_ptr<BoundOp>> bind_shrink(const BindArgs& args) {
  const AdapterShrinkArgs in = adapter_shrink_args(args);
  return dispatch_dtype(args.operands[0].dtype, "adapter_shrink", [&]<class T>() -> Result<std::unique_ptr<BoundOp>> {
    if constexpr (sizeof(T) == 2) {
      if (in.cols % kPackSize<T> == 0 && is_aligned(in.x) && is_aligned(in.a))
        return make_shrink_tiles<T>(in, args.context.limits.deterministic);
    }
    return make_by_row<AdapterShrinkArgs>("adapter_shrink", shrink_values<T>, in, std::int64_t{in.modules} * in.rank,
                                          kManyWarps);
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
