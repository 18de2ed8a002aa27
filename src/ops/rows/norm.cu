#include "tessera/ops/cuda/row_results.cuh"
#include "tessera/ops/rows/norm.h"

#include <limits>

#include "tessera/ops/contract/norm_form.h"
#include "tessera/ops/cuda/cuda_launch.cuh"
#include "tessera/ops/cuda/cuda_norm.cuh"
#include "tessera/ops/cuda/cuda_op.h"
#include "tessera/ops/cuda/l2_prefetch.cuh"
#include "tessera/ops/rows/converted_results.cuh"

namespace tessera {
namespace {

using namespace cuda;

constexpr int kRowThreads = 512;  // maximum number of threads that process one row

template <class T>
struct Norm {
  const T* x;         // [rows, n]
  const T* residual;  // [rows, n], added to x first; null if x is normalised without a residual
  const T* w;         // [n]
  T* sum;             // [rows, n], T(x + residual); null without a residual
  std::int64_t rows;
  std::int64_t n;
  float eps;
  NormForm form;
};

// Normalises rows that fit in registers. A row stays in the registers of blockDim.x threads, kHeld packs in each. A
// block has blockDim.y rows. A thread issues all its loads before it waits for the first one.
template <class T, int kHeld, bool kAdd, class To>
__global__ void __launch_bounds__(kRowThreads) norm_held(const Norm<T> norm, const To to) {
  constexpr int N = kPackSize<T>;
  __shared__ float scratch[kWarp];
  const std::int64_t row = row_of_thread();
  const auto column = [](int h) { return static_cast<std::int64_t>(threadIdx.x + h * blockDim.x) * N; };
  const auto mine = [&](int h) { return row < norm.rows && column(h) < norm.n; };
  Pack<T, N> held[kHeld];
  Pack<T, N> residual[kHeld];
  Pack<T, N> w[kHeld];
  let_next_begin();
  if (blockIdx.x == 0) {
#pragma unroll
    for (int h = 0; h < kHeld; ++h)
      if (mine(h)) prefetch_to_l2(norm.w + column(h));
  }
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
    if (!mine(h)) continue;  // threads without a pack still take part in the sum
    if constexpr (kAdd) {
      held[h] = added(held[h], residual[h]);
      store_pack(norm.sum + row * norm.n + column(h), held[h]);
    }
    squares += sum_of_squares(held[h]);
  }
  const float scale = rms_scale(row_sum(squares, scratch), norm.n, norm.eps);
#pragma unroll
  for (int h = 0; h < kHeld; ++h)
    if (mine(h)) to.store(row, column(h), normalised(held[h], w[h], scale, norm.form));
}

// Computes an rms_norm and the add_rms_norm after it, which adds the normalised result to a residual. The kernel
// normalises x with the weights w0 and rounds the result as if it were stored. Then it does what norm_held does.
template <class T, int kHeld>
__global__ void __launch_bounds__(kRowThreads)
    norm_twice(const Norm<T> norm, const Numbers<T> to, const T* w0, float eps0, NormForm form0) {
  constexpr int N = kPackSize<T>;
  __shared__ float scratch[2][kWarp];
  const std::int64_t row = row_of_thread();
  const auto column = [](int h) { return static_cast<std::int64_t>(threadIdx.x + h * blockDim.x) * N; };
  const auto mine = [&](int h) { return row < norm.rows && column(h) < norm.n; };
  Pack<T, N> held[kHeld];
  Pack<T, N> residual[kHeld];
  Pack<T, N> w[2][kHeld];
  let_next_begin();
  if (blockIdx.x == 0) {
#pragma unroll
    for (int h = 0; h < kHeld; ++h) {
      if (!mine(h)) continue;
      prefetch_to_l2(w0 + column(h));
      prefetch_to_l2(norm.w + column(h));
    }
  }
  wait_for_previous();
#pragma unroll
  for (int h = 0; h < kHeld; ++h) {
    if (!mine(h)) continue;
    held[h] = load_pack<T, N>(norm.x + row * norm.n + column(h));
    residual[h] = load_pack<T, N>(norm.residual + row * norm.n + column(h));
  }
#pragma unroll
  for (int h = 0; h < kHeld; ++h) {
    if (!mine(h)) continue;
    w[0][h] = load_pack<T, N>(w0 + column(h));
    w[1][h] = load_pack<T, N>(norm.w + column(h));
  }

  float squares = 0;
#pragma unroll
  for (int h = 0; h < kHeld; ++h)
    if (mine(h)) squares += sum_of_squares(held[h]);
  const float scale0 = rms_scale(row_sum(squares, scratch[0]), norm.n, eps0);
  squares = 0;
#pragma unroll
  for (int h = 0; h < kHeld; ++h) {
    if (!mine(h)) continue;
    held[h] = added(normalised(held[h], w[0][h], scale0, form0), residual[h]);
    store_pack(norm.sum + row * norm.n + column(h), held[h]);
    squares += sum_of_squares(held[h]);
  }
  const float scale = rms_scale(row_sum(squares, scratch[1]), norm.n, norm.eps);
#pragma unroll
  for (int h = 0; h < kHeld; ++h)
    if (mine(h)) to.store(row, column(h), normalised(held[h], w[1][h], scale, norm.form));
}

// Normalises rows of any length, with one block for each row. After a block has added the squares, it reads its row a
// second time, from the L1 or L2 cache.
template <class T, bool kAdd>
__global__ void norm_reread(const Norm<T> norm, const Numbers<T> to) {
  __shared__ float scratch[kWarp];
  let_next_begin();
  wait_for_previous();
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * norm.n;  // offset of the row
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
    to.store(blockIdx.x, i,
             normalised(load_pack<T, 1>(values + row + i), load_pack<T, 1>(norm.w + i), scale, norm.form));
}

constexpr std::int64_t kShortRow = kRowThreads;  // a thread holds one pack of a row of up to this number of packs
constexpr int kHeld = 4;                         // a thread holds this number of packs of a longer row

template <class T>
bool is_held(std::int64_t n) {
  return n % kPackSize<T> == 0 && n / kPackSize<T> <= kRowThreads * kHeld;
}

// Returns the launch shape of norm_held. The number of packs that a thread holds depends on n alone, so that a row's
// sum has the same order in every batch.
template <class T>
LaunchShape held_shape(std::int64_t rows, std::int64_t n) {
  const std::int64_t packs = n / kPackSize<T>;
  if (packs <= kWarp) return row_shape(rows, packs);
  const std::int64_t held = packs <= kShortRow ? 1 : kHeld;
  return {.grid = dim3(static_cast<unsigned>(rows)),
          .block = dim3(static_cast<unsigned>(ceil_div(packs, held * kWarp) * kWarp))};
}

// Makes the operator with norm_held as its kernel. Precondition: is_held<T>(norm.n).
template <class T, bool kAdd, class To>
std::unique_ptr<BoundOp> make_held(const char* name, const Norm<T>& norm, const To& to) {
  const LaunchShape shape = held_shape<T>(norm.rows, norm.n);
  auto* const kernel = norm.n / kPackSize<T> <= kShortRow ? norm_held<T, 1, kAdd, To> : norm_held<T, kHeld, kAdd, To>;
  const std::uint64_t choice = norm.n / kPackSize<T> <= kShortRow ? 1 : kHeld;
  return make_cuda_op(
      name, [=](cudaStream_t stream) { launch_early(kernel, shape, stream, norm, to); }, choice);
}

template <class T, bool kAdd>
std::unique_ptr<BoundOp> make_norm(const char* name, const Norm<T>& norm, const TensorView& y) {
  const Numbers<T> to{.y = y.as<T>(), .n = norm.n};
  if (is_held<T>(norm.n)) return make_held<T, kAdd>(name, norm, to);
  const LaunchShape shape{.grid = dim3(static_cast<unsigned>(norm.rows)), .block = dim3(kRowThreads)};
  return make_cuda_op(name, [=](cudaStream_t stream) { launch_early(norm_reread<T, kAdd>, shape, stream, norm, to); });
}

template <class T>
Norm<T> norm_of(const BindArgs& args) {
  const std::int64_t n = args.operands[1].cols();
  return {.x = args.operands[0].as<T>(),
          .residual = nullptr,
          .w = args.operands[1].as<T>(),
          .sum = nullptr,
          .rows = args.operands[0].elements() / n,
          .n = n,
          .eps = static_cast<float>(args.node.attribute_or("eps", 0.0)),
          .form = norm_form(args.node)};
}

// Binds rms_norm or head_norm, which normalise groups of w.size() neighbouring values. `name` is a string literal.
Result<std::unique_ptr<BoundOp>> bind_norm(const BindArgs& args, const char* name) {
  return dispatch_dtype(args.operands[0].dtype, name, [&]<class T>() -> Result<std::unique_ptr<BoundOp>> {
    return make_norm<T, false>(name, norm_of<T>(args), args.results[0]);
  });
}

Result<std::unique_ptr<BoundOp>> bind_rms_norm(const BindArgs& args) { return bind_norm(args, "rms_norm"); }
Result<std::unique_ptr<BoundOp>> bind_head_norm(const BindArgs& args) { return bind_norm(args, "head_norm"); }

template <class T>
Norm<T> add_norm_of(const BindArgs& args) {
  return {.x = args.operands[0].as<T>(),
          .residual = args.operands[1].as<T>(),
          .w = args.operands[2].as<T>(),
          .sum = args.results[1].as<T>(),
          .rows = args.operands[0].rows(),
          .n = args.operands[2].cols(),
          .eps = static_cast<float>(args.node.attribute_or("eps", 0.0)),
          .form = norm_form(args.node)};
}

Result<std::unique_ptr<BoundOp>> bind_add_rms_norm(const BindArgs& args) {
  return dispatch_dtype(args.operands[0].dtype, "add_rms_norm", [&]<class T>() -> Result<std::unique_ptr<BoundOp>> {
    return make_norm<T, true>("add_rms_norm", add_norm_of<T>(args), args.results[0]);
  });
}

template <class T>
std::unique_ptr<BoundOp> make_norm_twice(const BindArgs& first, const BindArgs& second) {
  Norm<T> norm = add_norm_of<T>(second);
  if (!is_held<T>(norm.n)) return nullptr;
  norm.x = first.operands[0].as<T>();
  const T* w0 = first.operands[1].as<T>();
  const auto eps0 = static_cast<float>(first.node.attribute_or("eps", 0.0));
  const NormForm form0 = norm_form(first.node);
  const Numbers<T> to{.y = second.results[0].as<T>(), .n = norm.n};
  const LaunchShape shape = held_shape<T>(norm.rows, norm.n);
  auto* kernel = norm.n / kPackSize<T> <= kShortRow ? norm_twice<T, 1> : norm_twice<T, kHeld>;
  const std::uint64_t choice = kernel == norm_twice<T, 1> ? 1 : kHeld;
  return make_cuda_op(
      "rms_norm and add_rms_norm",
      [=](cudaStream_t stream) { launch_early(kernel, shape, stream, norm, to, w0, eps0, form0); }, choice);
}

// Binds an rms_norm and the add_rms_norm after it as one kernel, which gives the same bits as the two operators.
// Returns null for float32 and for rows that do not fit in registers.
Result<std::unique_ptr<BoundOp>> bind_norm_twice(std::span<const BindArgs> calls) {
  switch (calls[0].operands[0].dtype) {
    case ir::DType::kBFloat16: return make_norm_twice<__nv_bfloat16>(calls[0], calls[1]);
    case ir::DType::kFloat16: return make_norm_twice<__half>(calls[0], calls[1]);
    default: return std::unique_ptr<BoundOp>();
  }
}

template <class T, class Rows>
std::unique_ptr<BoundOp> make_converted_norm(const BindArgs& args, const Rows& y) {
  const bool adds = args.node.op == "add_rms_norm";
  const Norm<T> norm = adds ? add_norm_of<T>(args) : norm_of<T>(args);
  if (!is_held<T>(norm.n) || norm.n % kConvertedGroup != 0) return nullptr;
  const auto to = results_in<T>(y, norm.n);
  if (adds)
    return make_held<T, true>(name_by_form<Rows>("add_rms_norm, rounded rows", "add_rms_norm, fixed point"), norm, to);
  return make_held<T, false>(name_by_form<Rows>("rms_norm, rounded rows", "rms_norm, fixed point"), norm, to);
}

}  // namespace

std::unique_ptr<BoundOp> bind_converted_norm(const BindArgs& args, const ConvertedRows& to) {
  if (args.node.op != "rms_norm" && args.node.op != "add_rms_norm") return nullptr;
  return make_in_form(args.operands[0].dtype, to,
                      [&]<class T>(const auto& rows) { return make_converted_norm<T>(args, rows); });
}

const KernelDef kRmsNormCuda{.op = "rms_norm", .name = "cuda", .bind = bind_rms_norm};

const KernelDef kAddRmsNormCuda{.op = "add_rms_norm", .name = "cuda", .bind = bind_add_rms_norm};

const JoinedKernelDef kNormTwiceCuda{.ops = {"rms_norm", "add_rms_norm"},
                                     .name = "cuda",
                                     .most_rows = std::numeric_limits<std::int64_t>::max(),
                                     .bind = bind_norm_twice};

const KernelDef kHeadNormCuda{.op = "head_norm", .name = "cuda", .bind = bind_head_norm};

}  // namespace tessera
