#include "tessera/ops/cuda/cuda_activation.cuh"
#include "tessera/ops/cuda/cuda_launch.cuh"
#include "tessera/ops/cuda/cuda_math.cuh"
#include "tessera/ops/cuda/cuda_op.h"
#include "tessera/ops/rows/add_gated.h"

namespace tessera {
namespace cuda {
namespace {

// Computes y = a + x · σ(gate). a, x and y are [rows, packs · N], and gate is [rows].
template <class T, int N>
__global__ void add_gated(const T* a, const T* x, const T* gate, T* y, std::int64_t rows, std::int64_t packs) {
  let_next_begin();
  wait_for_previous();
  const std::int64_t row = row_of_thread();
  if (row >= rows) return;
  const float factor = times_sigmoid(1.0f, to_float(gate[row]));
  for (std::int64_t i = item_of_thread(); i < packs; i += item_step()) {
    const std::int64_t at = (row * packs + i) * N;
    const Pack<T, N> base = load_pack<T, N>(a + at);
    const Pack<T, N> more = load_pack<T, N>(x + at);
    Pack<T, N> sum;
#pragma unroll
    for (int j = 0; j < N; ++j) sum.at[j] = from_float<T>(to_float(base.at[j]) + to_float(more.at[j]) * factor);
    store_pack(y + at, sum);
  }
}

template <class T, int N>
std::unique_ptr<BoundOp> make_add_gated(const BindArgs& args) {
  const T* a = args.operands[0].as<T>();
  const T* x = args.operands[1].as<T>();
  const T* gate = args.operands[2].as<T>();
  T* y = args.results[0].as<T>();
  const std::int64_t rows = args.operands[0].dim(0);
  const std::int64_t packs = args.operands[0].cols() / N;
  const LaunchShape shape = row_shape(rows, packs);
  return make_cuda_op("add_gated", [=](cudaStream_t stream) {
    launch_early(add_gated<T, N>, shape, stream, a, x, gate, y, rows, packs);
  });
}

}  // namespace
}  // namespace cuda

namespace {

Result<std::unique_ptr<BoundOp>> bind(const BindArgs& args) {
  return cuda::dispatch_dtype(args.operands[0].dtype, "add_gated", [&]<class T>() -> Result<std::unique_ptr<BoundOp>> {
    if (args.operands[0].cols() % cuda::kPackSize<T> == 0) return cuda::make_add_gated<T, cuda::kPackSize<T>>(args);
    return cuda::make_add_gated<T, 1>(args);
  });
}

}  // namespace

const KernelDef kAddGatedCuda{.op = "add_gated", .name = "cuda", .bind = bind};

}  // namespace tessera
