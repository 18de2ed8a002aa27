#include "tessera/ops/embedding/embedding.h"

#include "tessera/ops/cuda/cuda_launch.cuh"
#include "tessera/ops/cuda/cuda_math.cuh"
#include "tessera/ops/cuda/cuda_op.h"
#include "tessera/ops/embedding/block_table.h"
#include "tessera/ops/embedding/embedding_args.h"
#include "tessera/ops/quantised/quantised_matrix.h"
#include "tessera/ops/rows/row_copy.cuh"

namespace tessera {
namespace {

using namespace cuda;

__global__ void resolve_ids(const IdResolution r) {
  const std::int64_t t = flat_item();
  if (t >= r.count) return;
  const std::int32_t row = r.rows[t];
  std::int32_t id = row < 0 ? r.ids[t] : row < r.last_rows ? r.last_ids[row] : -2;
#pragma unroll
  for (const std::int32_t replaced : r.replaced)
    if (id == replaced) id = r.by;
  r.out[t] = id;
}

// Writes rows, each with packs · N values. A row is either a row of the table times T(scale), or a given row unchanged.
// A row whose number is outside the table or the given rows becomes zeros.
template <class T, int N>
__global__ void scaled_rows(const RowCopy copy, std::int64_t packs, float scale) {
  const std::int64_t t = row_of_thread();
  if (t >= copy.count) return;
  const std::int64_t given = copy.given_rows != nullptr ? copy.given_rows[t] : -1;
  const std::int64_t row = given >= 0 ? given : copy.rows[t] - copy.first_row;
  const bool inside = row >= 0 && row < (given >= 0 ? copy.num_given : copy.table_rows);
  const T* from = reinterpret_cast<const T*>(given >= 0 ? copy.given + row * copy.given_row_bytes
                                                        : copy.table + row * copy.row_bytes);
  for (std::int64_t i = item_of_thread(); i < packs; i += item_step()) {
    Pack<T, N> y;
    if (inside) y = load_pack<T, N>(from + i * N);
#pragma unroll
    for (int j = 0; j < N; ++j) {
      if (!inside) y.at[j] = from_float<T>(0.0f);
      if (given < 0) y.at[j] = from_float<T>(to_float(y.at[j]) * rounded<T>(scale));
    }
    store_pack(reinterpret_cast<T*>(copy.out) + (t * packs + i) * N, y);
  }
}

template <class T, int N>
std::unique_ptr<BoundOp> make_scaled_rows(const RowCopy& copy, std::int64_t cols, float scale) {
  const LaunchShape shape = row_shape(copy.count, cols / N);
  return make_cuda_op("embedding",
                      [=](cudaStream_t stream) { launch(scaled_rows<T, N>, shape, stream, copy, cols / N, scale); });
}

// Adds columns of given rows (GivenSum) to rows of x, in packs of N values. x and y are [count, packs · N].
template <class T, int N>
__global__ void add_given(const GivenSum<T> sum, std::int64_t packs) {
  let_next_begin();
  wait_for_previous();
  const std::int64_t t = row_of_thread();
  if (t >= sum.count) return;
  const T* more = sum.row_of(t);
  for (std::int64_t i = item_of_thread(); i < packs; i += item_step()) {
    const std::int64_t at = t * sum.cols + i * N;
    Pack<T, N> y = load_pack<T, N>(sum.x + at);
    if (more != nullptr) {
      const Pack<T, N> b = load_pack<T, N>(more + i * N);
#pragma unroll
      for (int j = 0; j < N; ++j) y.at[j] = from_float<T>(to_float(y.at[j]) + to_float(b.at[j]));
    }
    store_pack(sum.y + at, y);
  }
}

template <class T, int N>
std::unique_ptr<BoundOp> make_add_given(const GivenSum<T>& sum) {
  const LaunchShape shape = row_shape(sum.count, sum.cols / N);
  return make_cuda_op("add_given",
                      [=](cudaStream_t stream) { launch_early(add_given<T, N>, shape, stream, sum, sum.cols / N); });
}

Result<std::unique_ptr<BoundOp>> bind_add_given(const BindArgs& args) {
  return dispatch_dtype(args.operands[0].dtype, "add_given", [&]<class T>() -> Result<std::unique_ptr<BoundOp>> {
    const GivenSum<T> sum = given_sum<T>(args);
    if (sum.cols % kPackSize<T> == 0) return make_add_given<T, kPackSize<T>>(sum);
    return make_add_given<T, 1>(sum);
  });
}

Result<std::unique_ptr<BoundOp>> bind_embedding(const BindArgs& args) {
  if (is_block_table(args.node)) return refuse_blocks("embedding", TRY(QuantisedFormat::of(args.node)).blocks);
  const RowCopy copy = embedding_rows(args);
  const double scale = args.node.attribute_or("scale", 1.0);
  if (scale == 1.0) return make_row_copy("embedding", copy);
  return dispatch_dtype(args.operands[1].dtype, "embedding", [&]<class T>() -> Result<std::unique_ptr<BoundOp>> {
    const std::int64_t cols = args.operands[1].cols();
    const auto factor = static_cast<float>(scale);
    if (cols % kPackSize<T> == 0) return make_scaled_rows<T, kPackSize<T>>(copy, cols, factor);
    return make_scaled_rows<T, 1>(copy, cols, factor);
  });
}

Result<std::unique_ptr<BoundOp>> bind_resolve_ids(const BindArgs& args) {
  const IdResolution r = id_resolution(args);
  const LaunchShape shape = flat_shape(r.count);
  return make_cuda_op("resolve_ids", [=](cudaStream_t stream) { launch(resolve_ids, shape, stream, r); });
}

}  // namespace

const KernelDef kEmbeddingCuda{.op = "embedding", .name = "cuda", .bind = bind_embedding};

const KernelDef kAddGivenCuda{.op = "add_given", .name = "cuda", .bind = bind_add_given};

const KernelDef kResolveIdsCuda{.op = "resolve_ids", .name = "cuda", .bind = bind_resolve_ids};

}  // namespace tessera
