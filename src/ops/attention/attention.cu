// Our own attention kernel on CUDA, for cases without a faster kernel (cuda_attention.h). It supports every dtype,
// window, softcap and group size, sinks, and head sizes up to 512. Two cases with queries in bf16 or f16 run on tensor
// cores: heads of 512 elements with a cache of the queries' type (wide_attention.cuh), and heads of 64, 128 or 256
// elements with a cache of E4M3 (float8_attention.cuh). All other cases run in float32.
//
// A block processes one KV head and a tile of query rows of one request. A row is one query head of one token. The keys
// that the rows see are divided into tiles, too. For each tile of keys the block computes the scores, the online
// softmax and the weighted sums of values. If a forward has too few tiles of rows to fill the device, the keys are cut
// into `splits` ranges. Each range has its own block, and the kernel merge_states merges the partial results of the
// ranges.
//
// The grid of the launch depends only on the number of rows of the bucket, which is the size to which the forward is
// padded. A block finds its request in the metadata when it runs.
//
// In deterministic forwards the bits of a row's result do not depend on the other rows, for four reasons. Keys are not
// cut into ranges. Tiles of keys start at the same keys for all rows. A key that a row does not see adds an exact zero.
// Products are added in a fixed order, which explicit fused multiply-adds guarantee in the float32 kernel.
#include <algorithm>
#include <string>

#include "tessera/ops/attention/attention_merge.cuh"
#include "tessera/ops/attention/cuda_attention.h"
#include "tessera/ops/attention/float8_attention.cuh"
#include "tessera/ops/attention/own_attention.cuh"
#include "tessera/ops/attention/wide_attention.cuh"
#include "tessera/ops/cuda/cuda_op.h"

namespace tessera {
namespace {

using namespace own_attention;

// Computes attention for one tile of rows and one range of the keys that these rows see. blockIdx.x is the tile slot
// (find_rows()), blockIdx.y is the KV head, and blockIdx.z is the range of keys.
template <int kDim>
__global__ void __launch_bounds__(kThreads) attention(const Problem p) {
  extern __shared__ __align__(16) unsigned char shared[];
  using Shared = Tile<kDim>;
  auto& tile = *reinterpret_cast<Shared*>(shared);
  const int tx = static_cast<int>(threadIdx.x) % 16;
  const int ty = static_cast<int>(threadIdx.x) / 16;
  const int kv_head = static_cast<int>(blockIdx.y);
  const int split = static_cast<int>(blockIdx.z);
  Rows rows;
  if (!find_rows(p, static_cast<int>(blockIdx.x), Shared::kRows, rows)) return;

  // `first` and `last` are the positions of the tokens of the block's first and last row. [begin, end) initially
  // contains all keys that any row of the block sees. It is then reduced to the keys that also lie in the block's
  // range.
  const int first = rows.offset + rows.row_begin / p.group;
  const int last = rows.offset + (rows.row_begin + rows.rows - 1) / p.group;
  int begin = p.window > 0 ? max(0, first - p.window + 1) : 0;
  int end = last + 1;
  const int range = ceil_div(ceil_div(end - begin, p.splits), Shared::kKeys) * Shared::kKeys;
  begin += split * range;
  end = min(end, begin + range);

  with_type(p.dtype, [&]<class X>() { load_queries<X>(p, rows, kv_head, tile); });
  Sums<kDim> sums;
  start(p, rows, kv_head, split, ty, sums);
  const int used = ceil_div(rows.rows, 16);
  const int* pages = p.page_table + static_cast<long>(rows.request) * p.max_pages;
  for (int first_key = begin / Shared::kKeys * Shared::kKeys; first_key < end; first_key += Shared::kKeys) {
    if (threadIdx.x < Shared::kKeys) {
      const int key = first_key + static_cast<int>(threadIdx.x);
      long offset = -1;
      if (key >= begin && key < end) {
        const long slot = static_cast<long>(pages[key / p.page_size]) * p.page_size + key % p.page_size;
        offset = (slot * p.kv_heads + kv_head) * p.head_dim;
      }
      tile.offsets[threadIdx.x] = offset;
    }
    __syncthreads();
    with_cache_type(p.cache_dtype, [&]<class Y>() { load_keys<Y>(p, tile); });
    __syncthreads();
    float scores[Sums<kDim>::kRows][4] = {};
    multiply(tile, tx, ty, used, scores);
    update_softmax(p, rows, first_key, tx, ty, scores, sums, tile);
    __syncwarp();  // enough, because the same half of a warp writes and reads a row's weights
    add_values(tile, tx, ty, used, sums);
    __syncthreads();
  }
  store(p, rows, kv_head, split, tx, ty, sums);
}

constexpr int padded_dim(std::int64_t head_dim) {
  return head_dim <= 64 ? 64 : head_dim <= 128 ? 128 : head_dim <= 256 ? 256 : 512;
}
bool is_16_bit(ir::DType dtype) { return dtype == ir::DType::kBFloat16 || dtype == ir::DType::kFloat16; }
bool is_wide(const CudaAttention& a) {
  return a.shape.head_dim == kWideDim && a.shape.dtype == a.shape.cache_dtype && is_16_bit(a.shape.dtype);
}
bool is_float8(const CudaAttention& a) {
  const std::int64_t dim = a.shape.head_dim;
  return a.shape.cache_dtype == ir::DType::kFloat8E4M3 && is_16_bit(a.shape.dtype) &&
         (dim == 64 || dim == 128 || dim == 256);
}
int tile_rows(const CudaAttention& a) {
  if (is_float8(a)) return kFloat8Rows;
  return is_wide(a) ? kWideRows : padded_dim(a.shape.head_dim) <= 128 ? 32 : 16;
}

// Returns an upper bound for the number of tiles into which `requests` requests are divided if they have a.num_rows
// tokens in total. A token has a.group() rows for each KV head.
std::int64_t slots(const CudaAttention& a, std::int64_t requests) {
  return a.num_rows * a.group() / tile_rows(a) + requests;
}

constexpr std::int64_t kMostSplits = 16;

// Returns the number of ranges into which the keys of each tile are cut, so that every multiprocessor has about two
// blocks. The function counts tiles as if every row were a request of its own. So the result does not depend on how a
// forward's rows are divided into requests.
int splits(const CudaAttention& a, int multiprocessors) {
  if (a.deterministic) return 1;
  const std::int64_t blocks = std::max<std::int64_t>(1, slots(a, a.num_rows) * a.shape.kv_heads);
  return static_cast<int>(std::clamp<std::int64_t>(2 * multiprocessors / blocks, 1, kMostSplits));
}

// Returns the size in bytes of the values of `parts` partial results, rounded up to the device's alignment. A partial
// result is one token's output over one range of its keys.
std::size_t partial_values_bytes(const CudaAttention& a, std::int64_t parts) {
  const auto floats = static_cast<std::size_t>(parts * a.shape.heads * a.shape.head_dim);
  return (floats * sizeof(float) + kDeviceAlignment - 1) / kDeviceAlignment * kDeviceAlignment;
}

Problem make_problem(const CudaAttention& a, int parts) {
  std::byte* values = parts > 1 ? a.workspace : nullptr;
  std::byte* lse = parts > 1 ? values + partial_values_bytes(a, a.num_rows * parts) : nullptr;
  return {.q = a.q,
          .k_cache = a.k_cache,
          .v_cache = a.v_cache,
          .out = a.out,
          .sinks = a.sinks,
          .scales = a.scales,
          .partial_values = reinterpret_cast<float*>(values),
          .partial_lse = reinterpret_cast<float*>(lse),
          .num_requests = a.metadata.num_requests,
          .query_starts = a.metadata.query_starts,
          .kv_lens = a.metadata.kv_lens,
          .page_table = a.metadata.page_table,
          // A launch may skip rows outside of ForwardBatch::wanted_rows if keys are not cut. If keys are cut, it must
          // compute all rows, because merge_states reads the results of all rows.
          .wanted_starts = a.shape.wanted_rows_only && parts == 1 ? a.metadata.wanted_starts : nullptr,
          .max_pages = static_cast<int>(a.metadata.max_pages_per_request),
          .max_requests = static_cast<int>(a.max_requests()),
          .num_rows = static_cast<int>(a.num_rows),
          .heads = static_cast<int>(a.shape.heads),
          .kv_heads = static_cast<int>(a.shape.kv_heads),
          .group = static_cast<int>(a.group()),
          .head_dim = static_cast<int>(a.shape.head_dim),
          .page_size = static_cast<int>(a.page_size),
          .window = static_cast<int>(a.shape.window),
          .splits = parts,
          .dtype = a.shape.dtype,
          .cache_dtype = a.shape.cache_dtype,
          .scale = a.scale,
          .softcap = static_cast<float>(a.shape.softcap)};
}

// Makes an operator that launches kKernel with one block for each tile slot (find_rows()), KV head and range of keys.
// If there are several ranges, a second launch joins their results. X is the type of the output's elements.
template <class X, void (*kKernel)(Problem), std::size_t kBytes>
Result<std::unique_ptr<BoundOp>> bind_kernel(const CudaAttention& a, const Problem& p) {
  const dim3 grid(static_cast<unsigned>(slots(a, a.max_requests())), static_cast<unsigned>(a.shape.kv_heads),
                  static_cast<unsigned>(p.splits));
  TRY(allow_shared_memory(reinterpret_cast<const void*>(kKernel), kBytes, "attention"));
  const cuda::MergeStates merge{.values = p.partial_values,
                                .lse = p.partial_lse,
                                .part_starts = nullptr,
                                .out_rows = nullptr,
                                .parts_per_row = p.splits,
                                .num_requests = p.num_requests,
                                .query_starts = p.query_starts,
                                .out = p.out,
                                .rows = p.num_rows,
                                .heads = p.heads,
                                .head_dim = p.head_dim};
  const auto launches = [p, merge, grid](cudaStream_t stream) {
    if (grid.x == 0) return;
    kKernel<<<grid, kThreads, kBytes, stream>>>(p);
    if (p.splits > 1) cuda::launch_merge_states<float, X>(merge, stream);
  };
  // The last argument becomes the operator's choice(), which identifies the kernels that the operator runs. The head
  // size decides which instantiation of merge_states runs.
  return make_cuda_op("attention", launches, p.splits > 1 ? static_cast<std::uint64_t>(p.head_dim) : 0);
}

template <int kDim>
Result<std::unique_ptr<BoundOp>> bind(const CudaAttention& a, const Problem& p) {
  return cuda::dispatch_dtype(a.shape.dtype, "attention",
                              [&]<class X>() { return bind_kernel<X, attention<kDim>, sizeof(Tile<kDim>)>(a, p); });
}

Result<std::unique_ptr<BoundOp>> bind_wide(const CudaAttention& a, const Problem& p) {
  if (a.shape.dtype == ir::DType::kFloat16)
    return bind_kernel<__half, wide_attention<__half>, sizeof(WideShared<__half>)>(a, p);
  return bind_kernel<__nv_bfloat16, wide_attention<__nv_bfloat16>, sizeof(WideShared<__nv_bfloat16>)>(a, p);
}

template <class T, int kDim>
Result<std::unique_ptr<BoundOp>> bind_float8(const CudaAttention& a, const Problem& p) {
  return bind_kernel<T, float8_attention<T, kDim>, sizeof(Float8Shared<T, kDim>)>(a, p);
}

template <class T>
Result<std::unique_ptr<BoundOp>> bind_float8(const CudaAttention& a, const Problem& p) {
  if (a.shape.head_dim == 64) return bind_float8<T, 64>(a, p);
  return a.shape.head_dim == 128 ? bind_float8<T, 128>(a, p) : bind_float8<T, 256>(a, p);
}

}  // namespace

std::size_t own_attention_workspace_bytes(const CudaAttention& attention, int multiprocessors) {
  if (attention.deterministic) return 0;
  // `most` is the maximum number of partial results of all tokens together if keys are cut. splits() counts at least
  // one tile for each token, so a token has at most 2 · multiprocessors / (num_rows · kv_heads) partial results. All
  // num_rows tokens together have at most num_rows times as many.
  const std::int64_t most = 2 * multiprocessors / attention.shape.kv_heads;
  if (most < 2) return 0;
  const std::int64_t parts = std::min(attention.num_rows * kMostSplits, most);
  const auto lse = static_cast<std::size_t>(parts * attention.shape.heads) * sizeof(float);
  return partial_values_bytes(attention, parts) + lse;
}

Result<std::unique_ptr<BoundOp>> bind_own_attention(const CudaAttention& attention, int multiprocessors) {
  const Problem p = make_problem(attention, splits(attention, multiprocessors));
  if (is_wide(attention)) return bind_wide(attention, p);
  if (is_float8(attention))
    return attention.shape.dtype == ir::DType::kFloat16 ? bind_float8<__half>(attention, p)
                                                        : bind_float8<__nv_bfloat16>(attention, p);
  switch (padded_dim(attention.shape.head_dim)) {
    case 64: return bind<64>(attention, p);
    case 128: return bind<128>(attention, p);
    case 256: return bind<256>(attention, p);
    default: break;
  }
  if (attention.shape.head_dim > kGreatestOwnHeadDim)
    return unimplemented("attention on CUDA takes head sizes to " + std::to_string(kGreatestOwnHeadDim) + ", not " +
                         std::to_string(attention.shape.head_dim));
  return bind<512>(attention, p);
}

}  // namespace tessera
