#include "tessera/ops/cache/kv_store.h"

#include "tessera/ops/cache/cache_type.h"
#include "tessera/ops/cuda/cuda_float8.cuh"
#include "tessera/ops/cuda/cuda_launch.cuh"
#include "tessera/ops/cuda/cuda_math.cuh"
#include "tessera/ops/cuda/cuda_op.h"

namespace tessera {
namespace {

using namespace cuda;

template <class X, class Y>
struct Store {
  const X* k;                 // [num_tokens, row]
  const X* v;                 // [num_tokens, row]
  const std::int32_t* slots;  // [num_tokens]
  Y* k_cache;                 // [num_slots, row]
  Y* v_cache;                 // [num_slots, row]
  CacheScales scales;
  std::int64_t num_tokens;
  std::int64_t num_slots;
  std::int64_t row;  // number of elements of a row
};

template <class X, class Y, int N>
__device__ void store(const X* from, float scale, Y* to) {
  const Pack<X, N> in = load_pack<X, N>(from);
  Pack<Y, N> out;
#pragma unroll
  for (int j = 0; j < N; ++j) out.at[j] = to_cache<Y>(to_float(in.at[j]), scale);
  store_pack(to, out);
}

template <class X, class Y, int N>
__global__ void kv_store(const Store<X, Y> s) {
  const std::int64_t token = row_of_thread();
  if (token >= s.num_tokens) return;
  const std::int64_t slot = s.slots[token];
  if (slot < 0 || slot >= s.num_slots) return;
  const float k_scale = scale_or_one(s.scales.keys);
  const float v_scale = scale_or_one(s.scales.values);
  for (std::int64_t i = item_of_thread() * N; i < s.row; i += item_step() * N) {
    store<X, Y, N>(s.k + token * s.row + i, k_scale, s.k_cache + slot * s.row + i);
    store<X, Y, N>(s.v + token * s.row + i, v_scale, s.v_cache + slot * s.row + i);
  }
}

template <class X, class Y, int N>
std::unique_ptr<BoundOp> make_store(const Store<X, Y>& s) {
  const LaunchShape shape = row_shape(s.num_tokens, s.row / N);
  return make_cuda_op("kv_store", [=](cudaStream_t stream) { launch(kv_store<X, Y, N>, shape, stream, s); });
}

template <class X, class Y>
std::unique_ptr<BoundOp> bind_store(const BindArgs& args) {
  const Store<X, Y> s{.k = args.operands[0].as<X>(),
                      .v = args.operands[1].as<X>(),
                      .slots = args.operands[2].as<std::int32_t>(),
                      .k_cache = args.operands[3].as<Y>(),
                      .v_cache = args.operands[4].as<Y>(),
                      .scales = cache_scales(args, args.operands[3].dtype),
                      .num_tokens = args.operands[0].dim(0),
                      .num_slots = args.operands[3].dim(0) * args.operands[3].dim(1),
                      .row = args.operands[0].dim(1)};
  constexpr int kElements = std::min(kPackSize<X>, kPackSize<Y>);
  if (s.row % kElements == 0) return make_store<X, Y, kElements>(s);
  return make_store<X, Y, 1>(s);
}

Result<std::unique_ptr<BoundOp>> bind(const BindArgs& args) {
  using Bound = Result<std::unique_ptr<BoundOp>>;
  return dispatch_dtype(args.operands[0].dtype, "kv_store", [&]<class X>() -> Bound {
    return cuda::dispatch_cache_type(args.operands[3].dtype, "kv_store's cache",
                                     [&]<class Y>() -> Bound { return bind_store<X, Y>(args); });
  });
}

}  // namespace

const KernelDef kKvStoreCuda{.op = "kv_store", .name = "cuda", .bind = bind};

}  // namespace tessera
