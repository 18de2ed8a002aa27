// Binds the operators that multiply a linear's input x by adapters' matrices: adapter_shrink (adapter_linear.h) and
// adapter_whole_linear (adapter_whole.h). The template parameter Args is AdapterShrinkArgs for the first and
// AdapterWholeLinearArgs for the second.
#pragma once

#include <cstdint>
#include <memory>

#include "tessera/base/ceil_div.h"
#include "tessera/ops/adapters/adapter_tiles.cuh"
#include "tessera/ops/cuda/cuda_op.h"
#include "tessera/ops/cuda/is_aligned.h"

namespace tessera::cuda::adapters {

// Computes x · aᵀ. Each warp computes one dot product of a row of x and a row of A. The columns are distributed over
// the lanes.
template <class T, class Args>
__global__ void product_values(const Args in) {
  let_next_begin();
  wait_for_previous();
  const std::int64_t row = blockIdx.x;
  const std::int32_t values = in.modules * in.rank;
  const std::int32_t n = static_cast<std::int32_t>(blockIdx.y * kManyWarps + threadIdx.x / kWarp);
  const std::int32_t slot = in.table.slots[row];
  if (slot < 0 || n >= values || !has_results(in, slot)) return;
  float sum = 0;
  if (n % in.rank < in.ranks[slot * in.modules + n / in.rank]) {
    const T* const x = static_cast<const T*>(in.x) + row * in.cols;
    const T* const a = static_cast<const T*>(in.a) + (std::int64_t{slot} * values + n) * in.cols;
    for (std::int64_t k = threadIdx.x % kWarp; k < in.cols; k += kWarp) sum = fmaf(to_float(x[k]), to_float(a[k]), sum);
    sum = warp_sum(sum);
  }
  if (threadIdx.x % kWarp == 0) store_result<T>(in, row, n, sum);
}

template <class Args>
unsigned chunks_of(const Args& in) {
  return static_cast<unsigned>(max_adapter_chunks(in.rows, in.num_slots));
}
inline unsigned groups_of(const AdapterProductArgs& in, int groups) {
  return static_cast<unsigned>(ceil_div(std::int64_t{in.modules} * in.rank, std::int64_t{groups} * kValues));
}

// Calls f.template operator()<kGroups>(), where kGroups is the number of groups of kValues rows of A for a block.
template <class F>
auto with_groups(const AdapterProductArgs& in, const F& f) {
  switch (groups_of(in, 1)) {
    case 1: return f.template operator()<1>();
    case 2: return f.template operator()<2>();
    default: return f.template operator()<kMostGroups>();
  }
}

// Makes an operator that computes `items` values for each row of the batch. gridDim.x is the number of rows. A block
// computes `size` values of a row, and gridDim.y is the number of blocks for a row.
template <class Args>
std::unique_ptr<BoundOp> make_by_row(const char* name, void (*kernel)(Args), const Args& in, std::int64_t items,
                                     std::int64_t size) {
  const LaunchShape shape{.grid = dim3(static_cast<unsigned>(in.rows), static_cast<unsigned>(ceil_div(items, size))),
                          .block = dim3(kBlockThreads)};
  return make_cuda_op(name, [=](cudaStream_t stream) { launch_early(kernel, shape, stream, in); });
}

template <class Args>
std::unique_ptr<BoundOp> make_product(const char* name, void (*kernel)(Args), const LaunchShape& shape,
                                      const Args& in) {
  return make_cuda_op(name, [=](cudaStream_t stream) {
    if (in.rows > 0) launch_early(kernel, shape, stream, in);
  });
}

template <class T, class Args>
std::unique_ptr<BoundOp> make_product_of_values(const char* name, const Args& in) {
  return make_by_row<Args>(name, product_values<T, Args>, in, std::int64_t{in.modules} * in.rank, kManyWarps);
}

// Returns whether tensor cores can multiply these matrices. Precondition: T has 16 bits.
template <class T>
bool fits_tiles(const AdapterProductArgs& in) {
  return in.cols % kPackSize<T> == 0 && is_aligned(in.x) && is_aligned(in.a);
}

// Makes an operator that runs product_many on chunks of adapter_chunk_rows(in.rows) rows. For whole matrices
// (adapter_whole.h), a block processes several chunks of one slot together. These chunks have at most 64 rows in total,
// or at most 8 if the batch has at most 8 rows. Precondition: fits_tiles<T>().
template <class T, class Args>
std::unique_ptr<BoundOp> make_product_of_many(const char* name, const Args& in) {
  const auto make = [&]<int kEights, int kGroups>() {
    const unsigned groups = groups_of(in, kGroups);
    const unsigned chunks = chunks_of(in);
    return make_product<Args>(
        name, product_many<T, kEights, kGroups, Args>,
        {.grid = kOfWhole<Args> ? dim3(chunks, groups) : dim3(groups, chunks), .block = dim3(kManyWarps * kWarp)}, in);
  };
  const auto make_large = [&]<int kEights>() {
    return with_groups(in, [&]<int kGroups>() { return make.template operator()<kEights, kGroups>(); });
  };
  if constexpr (kOfWhole<Args>)
    return in.rows <= 8 ? make.template operator()<1, 1>() : make_large.template operator()<8>();
  switch (adapter_chunk_rows(in.rows)) {
    case 8: return make.template operator()<1, 1>();
    case 16: return make.template operator()<2, 1>();
    case 32: return make_large.template operator()<4>();
    default: return make_large.template operator()<8>();
  }
}

}  // namespace tessera::cuda::adapters
