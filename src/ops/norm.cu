#include "tessera/ops/norm.h"

#include "tessera/ops/cuda_launch.cuh"
#include "tessera/ops/cuda_norm.cuh"
#include "tessera/ops/cuda_op.h"
#include "tessera/ops/norm_form.h"

namespace tessera {
namespace {

using namespace cuda;

constexpr int kRowThreads = 512;  // of a row, at most

template <class T>
struct Norm {
  const T* x;         // [rows, n]
  const T* residual;  // [rows, n], added to x first; null for the norms of x alone
  const T* w;         // [n]
  T* y;               // [rows, n]
  T* sum;             // [rows, n], T(x + residual); null without a residual
  std::int64_t rows;
  std::int64_t n;
  float eps;
  NormForm form;
};

// T(x + residual)
template <class T, int N>
__device__ Pack<T, N> added(const Pack<T, N>& x, const Pack<T, N>& residual) {
  Pack<T, N> sum;
#pragma unroll
  for (int j = 0; j < N; ++j) sum.at[j] = from_float<T>(to_float(x.at[j]) + to_float(residual.at[j]));
  return sum;
}

// A row stays in the registers of blockDim.x threads, kHeld packs in each; a block has blockDim.y rows. All loads are
// under way before the first is waited for.
template <class T, int kHeld, bool kAdd>
__global__ void __launch_bounds__(kRowThreads) norm_held(const Norm<T> norm) {
  constexpr int N = kPackSize<T>;
  __shared__ float scratch[kWarp];
  const std::int64_t row = row_of_thread();
  const auto column = [](int h) { return static_cast<std::int64_t>(threadIdx.x + h * blockDim.x) * N; };
  const auto mine = [&](int h) { return row < norm.rows && column(h) < norm.n; };
  Pack<T, N> held[kHeld];
  Pack<T, N> residual[kHeld];
  Pack<T, N> w[kHeld];
  let_next_begin();
  wait_for_previous();
#pragma unroll
  for (int h = 0; h < kHeld; ++h) {
    if (!mine(h)) continue;
    held[h] = load_pack<T, N>(norm.x + row * norm.n + column(h));
    if constexpr (kAdd) residual[h] = load_pack<T, N>(norm.residual + row * norm.n + column(h));
  }
#pragma unroll
  for (int h = 0; h < kHeld; ++h)
    if (mine(h)) w[h] = load_pack<T, N>(norm.w + column(h));

  float squares = 0;
#pragma unroll
  for (int h = 0; h < kHeld; ++h) {
    if (!mine(h)) continue;  // but all threads take part in the sum
    if constexpr (kAdd) {
      held[h] = added(held[h], residual[h]);
      store_pack(norm.sum + row * norm.n + column(h), held[h]);
    }
    squares += sum_of_squares(held[h]);
  }
  const float scale = rms_scale(row_sum(squares, scratch), norm.n, norm.eps);
#pragma unroll
  for (int h = 0; h < kHeld; ++h)
    if (mine(h)) store_pack(norm.y + row * norm.n + column(h), normalised(held[h], w[h], scale, norm.form));
}

// Rows of any length, a block to each; they are read again, from the cache, after the sum.
template <class T, bool kAdd>
__global__ void norm_reread(const Norm<T> norm) {
  __shared__ float scratch[kWarp];
  let_next_begin();
  wait_for_previous();
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * norm.n;
  float squares = 0;
  for (std::int64_t i = threadIdx.x; i < norm.n; i += blockDim.x) {
    Pack<T, 1> value = load_pack<T, 1>(norm.x + row + i);
    if constexpr (kAdd) {
      value = added(value, load_pack<T, 1>(norm.residual + row + i));
      store_pack(norm.sum + row + i, value);
    }
    squares += sum_of_squares(value);
  }
  const float scale = rms_scale(row_sum(squares, scratch), norm.n, norm.eps);
  const T* values = kAdd ? norm.sum : norm.x;
  for (std::int64_t i = threadIdx.x; i < norm.n; i += blockDim.x)
    store_pack(norm.y + row + i,
               normalised(load_pack<T, 1>(values + row + i), load_pack<T, 1>(norm.w + i), scale, norm.form));
}

// How many packs a thread holds depends on n alone, so that a row's sum has the same order in every batch.
template <class T, bool kAdd>
std::unique_ptr<BoundOp> make_norm(const char* name, const Norm<T>& norm) {
  constexpr std::int64_t kShortRow = 128;  // packs up to which a thread holds one
  constexpr int kHeld = 4;
  const std::int64_t packs = norm.n / kPackSize<T>;
  LaunchShape shape{.grid = dim3(static_cast<unsigned>(norm.rows))};
  if (norm.n % kPackSize<T> != 0 || packs > kRowThreads * kHeld) {
    shape.block = dim3(kRowThreads);
    return make_cuda_op(name, [=](cudaStream_t stream) { launch_early(norm_reread<T, kAdd>, shape, stream, norm); });
  }
  if (packs <= kShortRow) {
    if (packs <= kWarp)
      shape = row_shape(norm.rows, packs);
    else
      shape.block = dim3(static_cast<unsigned>(ceil_div(packs, kWarp) * kWarp));
    return make_cuda_op(name, [=](cudaStream_t stream) { launch_early(norm_held<T, 1, kAdd>, shape, stream, norm); });
  }
  shape.block = dim3(static_cast<unsigned>(ceil_div(packs, kHeld * kWarp) * kWarp));
  return make_cuda_op(name, [=](cudaStream_t stream) { launch_early(norm_held<T, kHeld, kAdd>, shape, stream, norm); });
}

// rms_norm and head_norm normalise runs of as many values as w has. `name` is a string literal.
Result<std::unique_ptr<BoundOp>> bind_norm(const BindArgs& args, const char* name) {
  return dispatch_dtype(args.operands[0].dtype, name, [&]<class T>() -> Result<std::unique_ptr<BoundOp>> {
    const std::int64_t n = args.operands[1].cols();
    return make_norm<T, false>(name, {.x = args.operands[0].as<T>(),
                                      .residual = nullptr,
                                      .w = args.operands[1].as<T>(),
                                      .y = args.results[0].as<T>(),
                                      .sum = nullptr,
                                      .rows = args.operands[0].elements() / n,
                                      .n = n,
                                      .eps = static_cast<float>(args.node.attribute_or("eps", 0.0)),
                                      .form = norm_form(args.node)});
  });
}

Result<std::unique_ptr<BoundOp>> bind_rms_norm(const BindArgs& args) { return bind_norm(args, "rms_norm"); }
Result<std::unique_ptr<BoundOp>> bind_head_norm(const BindArgs& args) { return bind_norm(args, "head_norm"); }

Result<std::unique_ptr<BoundOp>> bind_add_rms_norm(const BindArgs& args) {
  return dispatch_dtype(args.operands[0].dtype, "add_rms_norm", [&]<class T>() -> Result<std::unique_ptr<BoundOp>> {
    return make_norm<T, true>("add_rms_norm", {.x = args.operands[0].as<T>(),
                                               .residual = args.operands[1].as<T>(),
                                               .w = args.operands[2].as<T>(),
                                               .y = args.results[0].as<T>(),
                                               .sum = args.results[1].as<T>(),
                                               .rows = args.operands[0].rows(),
                                               .n = args.operands[2].cols(),
                                               .eps = static_cast<float>(args.node.attribute_or("eps", 0.0)),
                                               .form = norm_form(args.node)});
  });
}

}  // namespace

const KernelDef kRmsNormCuda{.op = "rms_norm", .name = "cuda", .bind = bind_rms_norm};

const KernelDef kAddRmsNormCuda{.op = "add_rms_norm", .name = "cuda", .bind = bind_add_rms_norm};

const KernelDef kHeadNormCuda{.op = "head_norm", .name = "cuda", .bind = bind_head_norm};

}  // namespace tessera
