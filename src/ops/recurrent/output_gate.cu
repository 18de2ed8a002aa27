#include "tessera/ops/recurrent/output_gate.h"

#include <algorithm>
#include <bit>

#include "tessera/ops/cuda/cuda_launch.cuh"
#include "tessera/ops/cuda/cuda_norm.cuh"
#include "tessera/ops/cuda/cuda_op.h"
#include "tessera/ops/cuda/row_results.cuh"
#include "tessera/ops/recurrent/converted_output_gate.cuh"

namespace tessera {
namespace {

using namespace cuda;

template <class T>
struct GatedNorm {
  const T* x;              // [rows, heads, head_dim]
  const T* z;              // [rows, width]; points to column `column` (the attribute) of the first row
  const float* w;          // [head_dim]
  std::int64_t num_heads;  // the number of heads of all rows together
  std::int64_t heads;      // the number of heads of one row
  std::int64_t head_dim;
  std::int64_t width;
  float eps;
};

__device__ inline float sigmoid_of(float x) { return 1.0f / (1.0f + expf(-x)); }

// Computes gated_norm. A block has blockDim.y heads. blockDim.x neighbouring lanes compute a head. blockDim.x is a
// power of two up to kWarp. After the sum of squares is known, a thread reads its elements a second time, now from the
// cache.
template <class T, int N, class Results>
__global__ void gated_norm(const GatedNorm<T> p, const Results results) {
  let_next_begin();
  wait_for_previous();
  const std::int64_t head = row_of_thread();
  const bool real = head < p.num_heads;  // false past the last head; lanes of such heads still take part in warp_sum()
  const T* const x = p.x + head * p.head_dim;
  float squares = 0;
  for (std::int64_t i = threadIdx.x * N; real && i < p.head_dim; i += blockDim.x * N)
    squares += sum_of_squares(load_pack<T, N>(x + i));
  const float scale = rms_scale(warp_sum(squares, static_cast<int>(blockDim.x)), p.head_dim, p.eps);
  if (!real) return;
  const std::int64_t row = head / p.heads;
  const std::int64_t first = head % p.heads * p.head_dim;
  const T* const z = p.z + row * p.width + first;
  for (std::int64_t i = threadIdx.x * N; i < p.head_dim; i += blockDim.x * N) {
    const Pack<T, N> values = load_pack<T, N>(x + i);
    const Pack<T, N> gates = load_pack<T, N>(z + i);
    float out[N];
#pragma unroll
    for (int j = 0; j < N; ++j) {
      const float gate = to_float(gates.at[j]);
      out[j] = rounded<T>(to_float(values.at[j]) * scale) * p.w[i + j] * (gate * sigmoid_of(gate));
    }
    results.store(row, first + i, pack_of<T>(out));
  }
}

template <class T, int N, class Results>
std::unique_ptr<BoundOp> make_gated_norm(const char* name, const GatedNorm<T>& p, const Results& results) {
  const std::int64_t across = std::min<std::int64_t>(
      kWarp, static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(p.head_dim / N))));
  const std::int64_t down = kBlockThreads / across;
  const LaunchShape shape{.grid = dim3(static_cast<unsigned>(ceil_div(p.num_heads, down))),
                          .block = dim3(static_cast<unsigned>(across), static_cast<unsigned>(down))};
  return make_cuda_op(name,
                      [=](cudaStream_t stream) { launch_early(gated_norm<T, N, Results>, shape, stream, p, results); });
}

template <class T>
GatedNorm<T> gated_norm_of(const BindArgs& args) {
  const std::int64_t head_dim = args.operands[2].cols();
  return {.x = args.operands[0].as<T>(),
          .z = args.operands[1].as<T>() + args.node.attribute_or("column", std::int64_t{0}),
          .w = args.operands[2].as<float>(),
          .num_heads = args.operands[0].elements() / head_dim,
          .heads = args.operands[0].cols() / head_dim,
          .head_dim = head_dim,
          .width = args.operands[1].cols(),
          .eps = static_cast<float>(args.node.attribute_or("eps", 0.0))};
}

// Returns whether all elements can be read in packs of N.
template <class T, int N>
bool has_packs(const BindArgs& args, const GatedNorm<T>& p) {
  return p.head_dim % N == 0 && p.width % N == 0 && args.node.attribute_or("column", std::int64_t{0}) % N == 0;
}

Result<std::unique_ptr<BoundOp>> bind_gated_norm(const BindArgs& args) {
  return dispatch_dtype(args.operands[0].dtype, "gated_norm", [&]<class T>() -> Result<std::unique_ptr<BoundOp>> {
    constexpr int N = kPackSize<T>;
    const GatedNorm<T> p = gated_norm_of<T>(args);
    const Numbers<T> y{.y = args.results[0].as<T>(), .n = args.results[0].cols()};
    return has_packs<T, N>(args, p) ? make_gated_norm<T, N>("gated_norm", p, y)
                                    : make_gated_norm<T, 1>("gated_norm", p, y);
  });
}

// Returns the results of sigmoid_gate for one pack.
template <class T, int N>
__device__ inline Pack<T, N> gated_pack(const Pack<T, N>& values, const Pack<T, N>& gates) {
  float out[N];
#pragma unroll
  for (int j = 0; j < N; ++j) out[j] = to_float(values.at[j]) * rounded<T>(sigmoid_of(to_float(gates.at[j])));
  return pack_of<T>(out);
}

// Computes sigmoid_gate. Each thread takes one pack. The last pack may have fewer than N elements.
template <class T, int N>
__global__ void sigmoid_gate(const T* x, const T* gate, T* y, std::int64_t n) {
  let_next_begin();
  wait_for_previous();
  const std::int64_t first = flat_item() * N;
  if (first + N <= n) {
    store_pack(y + first, gated_pack(load_pack<T, N>(x + first), load_pack<T, N>(gate + first)));
  } else {
    for (std::int64_t i = first; i < n; ++i)
      y[i] = from_float<T>(to_float(x[i]) * rounded<T>(sigmoid_of(to_float(gate[i]))));
  }
}

// Computes sigmoid_gate and writes the products as converted rows (cuda/converted_rows.cuh). The length of a row is a
// multiple of kConvertedGroup.
template <class T, class Results>
__global__ void sigmoid_gate_converted(const T* x, const T* gate, const Results y, std::int64_t n) {
  let_next_begin();
  wait_for_previous();
  const std::int64_t first = flat_item() * 8;
  if (first < n)
    y.store(first / y.n, first % y.n, gated_pack(load_pack<T, 8>(x + first), load_pack<T, 8>(gate + first)));
}

Result<std::unique_ptr<BoundOp>> bind_sigmoid_gate(const BindArgs& args) {
  return dispatch_dtype(args.operands[0].dtype, "sigmoid_gate", [&]<class T>() -> Result<std::unique_ptr<BoundOp>> {
    constexpr int N = kPackSize<T>;
    const T* x = args.operands[0].as<T>();
    const T* gate = args.operands[1].as<T>();
    T* y = args.results[0].as<T>();
    const std::int64_t n = args.operands[0].elements();
    const LaunchShape shape = flat_shape(ceil_div(n, N));
    return make_cuda_op("sigmoid_gate",
                        [=](cudaStream_t stream) { launch_early(sigmoid_gate<T, N>, shape, stream, x, gate, y, n); });
  });
}

template <class T, class Rows>
std::unique_ptr<BoundOp> make_converted(const BindArgs& args, const Rows& to) {
  const auto y = results_in<T>(to, args.operands[0].cols());
  if (y.n % kConvertedGroup != 0) return nullptr;
  if (args.node.op == "gated_norm") {
    const GatedNorm<T> p = gated_norm_of<T>(args);
    if (p.head_dim != kConvertedGroup || !has_packs<T, 8>(args, p)) return nullptr;
    return make_gated_norm<T, 8>(name_by_form<Rows>("gated_norm, rounded rows", "gated_norm, fixed point"), p, y);
  }
  if (args.node.op != "sigmoid_gate") return nullptr;
  const std::int64_t n = args.operands[0].elements();
  const T* x = args.operands[0].as<T>();
  const T* gate = args.operands[1].as<T>();
  return make_cuda_op(name_by_form<Rows>("sigmoid_gate, rounded rows", "sigmoid_gate, fixed point"),
                      [=, shape = flat_shape(n / 8)](cudaStream_t stream) {
                        launch_early(sigmoid_gate_converted<T, std::remove_const_t<decltype(y)>>, shape, stream, x,
                                     gate, y, n);
                      });
}

}  // namespace

std::unique_ptr<BoundOp> bind_converted_output_gate(const BindArgs& args, const ConvertedRows& to) {
  return make_in_form(args.operands[0].dtype, to,
                      [&]<class T>(const auto& rows) { return make_converted<T>(args, rows); });
}

const KernelDef kGatedNormCuda{.op = "gated_norm", .name = "cuda", .bind = bind_gated_norm};

const KernelDef kSigmoidGateCuda{.op = "sigmoid_gate", .name = "cuda", .bind = bind_sigmoid_gate};

}  // namespace tessera
