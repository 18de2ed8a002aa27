#include "tessera/ops/rows/elementwise.h"

#include "tessera/ops/cuda/cuda_unary.cuh"

namespace tessera {
namespace {

using namespace cuda;

// Adds and rounds explicitly, so that the compiler does not contract the sum and another operation into a fused
// multiply-add.
struct Add {
  __device__ float operator()(float a, float b) const { return __fadd_rn(a, b); }
};
struct Mul {
  __device__ float operator()(float a, float b) const { return __fmul_rn(a, b); }
};
struct Scale {
  float factor;
  __device__ float operator()(float x) const { return x * factor; }
};
struct Identity {
  __device__ float operator()(float x) const { return x; }
};

// Computes y = f(a, b). a, b and y are [n]. Each thread takes one pack. The last pack may have fewer than N elements.
template <class T, int N, class F>
__global__ void binary(const T* a, const T* b, T* y, std::int64_t n, F f) {
  const std::int64_t first = flat_item() * N;
  if (first + N <= n) {
    const Pack<T, N> in_a = load_pack<T, N>(a + first);
    const Pack<T, N> in_b = load_pack<T, N>(b + first);
    Pack<T, N> out;
#pragma unroll
    for (int j = 0; j < N; ++j) out.at[j] = from_float<T>(f(to_float(in_a.at[j]), to_float(in_b.at[j])));
    store_pack(y + first, out);
  } else {
    for (std::int64_t i = first; i < n; ++i) y[i] = from_float<T>(f(to_float(a[i]), to_float(b[i])));
  }
}

// Computes y = f(a, b) with one row b. a and y are [rows, packs · N], and b is [packs · N].
template <class T, int N, class F>
__global__ void binary_with_row(const T* a, const T* b, T* y, std::int64_t rows, std::int64_t packs, F f) {
  const std::int64_t row = row_of_thread();
  if (row >= rows) return;
  for (std::int64_t i = item_of_thread(); i < packs; i += item_step()) {
    const Pack<T, N> in_a = load_pack<T, N>(a + (row * packs + i) * N);
    const Pack<T, N> in_b = load_pack<T, N>(b + i * N);
    Pack<T, N> out;
#pragma unroll
    for (int j = 0; j < N; ++j) out.at[j] = from_float<T>(f(to_float(in_a.at[j]), to_float(in_b.at[j])));
    store_pack(y + (row * packs + i) * N, out);
  }
}

// Computes y = f(a, b) with one element b. a and y are [n], and b is [1]. Each thread takes one pack. The last pack may
// have fewer than N elements.
template <class T, int N, class F>
__global__ void binary_with_one(const T* a, const T* b, T* y, std::int64_t n, F f) {
  const std::int64_t first = flat_item() * N;
  const float one = to_float(*b);
  if (first + N <= n) {
    const Pack<T, N> in = load_pack<T, N>(a + first);
    Pack<T, N> out;
#pragma unroll
    for (int j = 0; j < N; ++j) out.at[j] = from_float<T>(f(to_float(in.at[j]), one));
    store_pack(y + first, out);
  } else {
    for (std::int64_t i = first; i < n; ++i) y[i] = from_float<T>(f(to_float(a[i]), one));
  }
}

template <class T, class F>
std::unique_ptr<BoundOp> make_binary_with_one(const BindArgs& args, const char* name, F f) {
  const T* a = args.operands[0].as<T>();
  const T* b = args.operands[1].as<T>();
  T* y = args.results[0].as<T>();
  const std::int64_t n = args.operands[0].elements();
  const LaunchShape shape = flat_shape(ceil_div(n, kPackSize<T>));
  return make_cuda_op(
      name, [=](cudaStream_t stream) { launch(binary_with_one<T, kPackSize<T>, F>, shape, stream, a, b, y, n, f); });
}

template <class T, int N, class F>
std::unique_ptr<BoundOp> make_binary_with_row(const BindArgs& args, const char* name, F f) {
  const T* a = args.operands[0].as<T>();
  const T* b = args.operands[1].as<T>();
  T* y = args.results[0].as<T>();
  const std::int64_t rows = args.operands[0].rows();
  const std::int64_t packs = args.operands[1].elements() / N;
  const LaunchShape shape = row_shape(rows, packs);
  return make_cuda_op(
      name, [=](cudaStream_t stream) { launch(binary_with_row<T, N, F>, shape, stream, a, b, y, rows, packs, f); });
}

template <class T, class F>
std::unique_ptr<BoundOp> make_binary(const BindArgs& args, const char* name, F f) {
  const T* a = args.operands[0].as<T>();
  const T* b = args.operands[1].as<T>();
  T* y = args.results[0].as<T>();
  const std::int64_t n = args.operands[0].elements();
  const LaunchShape shape = flat_shape(ceil_div(n, kPackSize<T>));
  return make_cuda_op(name,
                      [=](cudaStream_t stream) { launch(binary<T, kPackSize<T>, F>, shape, stream, a, b, y, n, f); });
}

// Binds y = f(a, b). `name` is a string literal.
template <class F>
Result<std::unique_ptr<BoundOp>> bind_binary(const BindArgs& args, const char* name, F f) {
  return dispatch_dtype(args.operands[0].dtype, name, [&]<class T>() -> Result<std::unique_ptr<BoundOp>> {
    const std::int64_t n = args.operands[1].elements();
    if (n == args.operands[0].elements()) return make_binary<T>(args, name, f);
    if (n == 1) return make_binary_with_one<T>(args, name, f);
    if (n % kPackSize<T> == 0) return make_binary_with_row<T, kPackSize<T>>(args, name, f);
    return make_binary_with_row<T, 1>(args, name, f);
  });
}

Result<std::unique_ptr<BoundOp>> bind_add(const BindArgs& args) { return bind_binary(args, "add", Add{}); }
Result<std::unique_ptr<BoundOp>> bind_mul(const BindArgs& args) { return bind_binary(args, "mul", Mul{}); }

Result<std::unique_ptr<BoundOp>> bind_scale(const BindArgs& args) {
  return bind_unary(args, "scale", Scale{static_cast<float>(args.node.attribute_or("factor", 1.0))});
}

Result<std::unique_ptr<BoundOp>> bind_cast(const BindArgs& args) {
  return dispatch_dtype(args.operands[0].dtype, "cast", [&]<class From>() -> Result<std::unique_ptr<BoundOp>> {
    return dispatch_dtype(args.results[0].dtype, "cast", [&]<class To>() -> Result<std::unique_ptr<BoundOp>> {
      return make_unary<From, To>(args, "cast", Identity{});
    });
  });
}

// Copies bytes. Each thread copies sixteen bytes. The last thread may copy fewer.
__global__ void copy_bytes(const std::byte* x, std::byte* y, std::int64_t bytes) {
  const std::int64_t first = flat_item() * static_cast<std::int64_t>(sizeof(uint4));
  if (first + static_cast<std::int64_t>(sizeof(uint4)) <= bytes) {
    *reinterpret_cast<uint4*>(y + first) = *reinterpret_cast<const uint4*>(x + first);
  } else {
    for (std::int64_t i = first; i < bytes; ++i) y[i] = x[i];
  }
}

Result<std::unique_ptr<BoundOp>> bind_copy(const BindArgs& args) {
  const std::byte* x = args.operands[0].data.raw();
  std::byte* y = args.results[0].data.raw();
  const std::int64_t bytes = args.operands[0].bytes();
  const LaunchShape shape = flat_shape(ceil_div(bytes, sizeof(uint4)));
  return make_cuda_op("copy", [=](cudaStream_t stream) { launch(copy_bytes, shape, stream, x, y, bytes); });
}

}  // namespace

const KernelDef kAddCuda{.op = "add", .name = "cuda", .bind = bind_add};

const KernelDef kMulCuda{.op = "mul", .name = "cuda", .bind = bind_mul};

const KernelDef kScaleCuda{.op = "scale", .name = "cuda", .bind = bind_scale};

const KernelDef kCopyCuda{.op = "copy", .name = "cuda", .bind = bind_copy};

const KernelDef kCastCuda{.op = "cast", .name = "cuda", .bind = bind_cast};

}  // namespace tessera
