#include "tessera/ops/rows/activation.h"

#include "tessera/ops/cuda/cuda_activation.cuh"
#include "tessera/ops/cuda/cuda_unary.cuh"
#include "tessera/ops/cuda/row_results.cuh"
#include "tessera/ops/rows/converted_results.cuh"

namespace tessera {
namespace {

using namespace cuda;

struct Softcap {
  float cap;
  __device__ float operator()(float x) const { return cap * tanhf(x / cap); }
};

template <class T, int N, class F>
__device__ Pack<T, N> gated_pack(const Pack<T, N>& gate, const Pack<T, N>& up, F activation) {
  float out[N];
#pragma unroll
  for (int j = 0; j < N; ++j) out[j] = rounded<T>(activation(to_float(gate.at[j]))) * to_float(up.at[j]);
  return pack_of<T>(out);
}

// Computes y [rows, packs · N] from x [rows, 2, packs · N]. The first half of a row of x is the gate, and the second
// half is the up projection.
template <class T, int N, class F>
__global__ void gated(const T* x, T* y, std::int64_t rows, std::int64_t packs, F activation) {
  let_next_begin();
  wait_for_previous();
  const std::int64_t row = row_of_thread();
  if (row >= rows) return;
  for (std::int64_t i = item_of_thread(); i < packs; i += item_step()) {
    const Pack<T, N> gate = load_pack<T, N>(x + (2 * row * packs + i) * N);
    const Pack<T, N> up = load_pack<T, N>(x + ((2 * row + 1) * packs + i) * N);
    store_pack(y + (row * packs + i) * N, gated_pack(gate, up, activation));
  }
}

// Does what gated() does, but writes the products as converted rows (cuda/converted_rows.cuh). The length of a row is a
// multiple of kConvertedGroup.
template <class T, class Results, class F>
__global__ void gated_converted(const T* x, const Results y, std::int64_t rows, std::int64_t packs, F activation) {
  let_next_begin();
  wait_for_previous();
  const std::int64_t row = row_of_thread();
  if (row >= rows) return;
  for (std::int64_t i = item_of_thread(); i < packs; i += item_step()) {
    const Pack<T, 8> gate = load_pack<T, 8>(x + (2 * row * packs + i) * 8);
    const Pack<T, 8> up = load_pack<T, 8>(x + ((2 * row + 1) * packs + i) * 8);
    y.store(row, i * 8, gated_pack(gate, up, activation));
  }
}

template <class T, int N, class F>
std::unique_ptr<BoundOp> make_gated(const BindArgs& args, const char* name, F activation) {
  const T* x = args.operands[0].as<T>();
  T* y = args.results[0].as<T>();
  const std::int64_t rows = args.results[0].rows();
  const std::int64_t packs = args.results[0].cols() / N;
  const LaunchShape shape = row_shape(rows, packs);
  return make_cuda_op(
      name, [=](cudaStream_t stream) { launch_early(gated<T, N, F>, shape, stream, x, y, rows, packs, activation); });
}

// Binds a gated activation. `name` is a string literal.
template <class F>
Result<std::unique_ptr<BoundOp>> bind_gated(const BindArgs& args, const char* name, F activation) {
  return dispatch_dtype(args.operands[0].dtype, name, [&]<class T>() -> Result<std::unique_ptr<BoundOp>> {
    if (args.results[0].cols() % kPackSize<T> == 0) return make_gated<T, kPackSize<T>>(args, name, activation);
    return make_gated<T, 1>(args, name, activation);
  });
}

Result<std::unique_ptr<BoundOp>> bind_silu_mul(const BindArgs& args) { return bind_gated(args, "silu_mul", Silu{}); }
Result<std::unique_ptr<BoundOp>> bind_silu(const BindArgs& args) { return bind_unary(args, "silu", Silu{}); }

Result<std::unique_ptr<BoundOp>> bind_gelu_mul(const BindArgs& args) {
  if (args.node.attribute_or("tanh", true)) return bind_gated(args, "gelu_mul", GeluTanh{});
  return bind_gated(args, "gelu_mul", GeluErf{});
}

template <class T, class Rows, class F>
std::unique_ptr<BoundOp> make_gated_converted(const BindArgs& args, const char* name, const Rows& to, F activation) {
  const std::int64_t columns = args.results[0].cols();
  if (columns % kConvertedGroup != 0) return nullptr;
  const std::int64_t rows = args.results[0].rows();
  const std::int64_t packs = columns / 8;
  const LaunchShape shape = row_shape(rows, packs);
  const auto y = results_in<T>(to, columns);
  return make_cuda_op(name, [=, x = args.operands[0].as<T>()](cudaStream_t stream) {
    launch_early(gated_converted<T, std::remove_const_t<decltype(y)>, F>, shape, stream, x, y, rows, packs, activation);
  });
}

template <class T, class Rows>
std::unique_ptr<BoundOp> make_gated_converted(const BindArgs& args, const Rows& to) {
  if (args.node.op == "silu_mul")
    return make_gated_converted<T>(args, name_by_form<Rows>("silu_mul, rounded rows", "silu_mul, fixed point"), to,
                                   Silu{});
  constexpr const char* kName = name_by_form<Rows>("gelu_mul, rounded rows", "gelu_mul, fixed point");
  if (args.node.attribute_or("tanh", true)) return make_gated_converted<T>(args, kName, to, GeluTanh{});
  return make_gated_converted<T>(args, kName, to, GeluErf{});
}

Result<std::unique_ptr<BoundOp>> bind_gelu(const BindArgs& args) {
  if (args.node.attribute_or("tanh", true)) return bind_unary(args, "gelu", GeluTanh{});
  return bind_unary(args, "gelu", GeluErf{});
}

Result<std::unique_ptr<BoundOp>> bind_quick_gelu(const BindArgs& args) {
  return bind_unary(args, "quick_gelu", QuickGelu{});
}

Result<std::unique_ptr<BoundOp>> bind_softcap(const BindArgs& args) {
  return bind_unary(args, "softcap", Softcap{static_cast<float>(args.node.attribute_or("cap", 1.0))});
}

}  // namespace

std::unique_ptr<BoundOp> bind_converted_gate(const BindArgs& args, const ConvertedRows& to) {
  if (args.node.op != "silu_mul" && args.node.op != "gelu_mul") return nullptr;
  return make_in_form(args.operands[0].dtype, to,
                      [&]<class T>(const auto& rows) { return make_gated_converted<T>(args, rows); });
}

const KernelDef kSiluMulCuda{.op = "silu_mul", .name = "cuda", .bind = bind_silu_mul};

const KernelDef kGeluMulCuda{.op = "gelu_mul", .name = "cuda", .bind = bind_gelu_mul};

const KernelDef kSiluCuda{.op = "silu", .name = "cuda", .bind = bind_silu};

const KernelDef kGeluCuda{.op = "gelu", .name = "cuda", .bind = bind_gelu};

const KernelDef kQuickGeluCuda{.op = "quick_gelu", .name = "cuda", .bind = bind_quick_gelu};

const KernelDef kSoftcapCuda{.op = "softcap", .name = "cuda", .bind = bind_softcap};

}  // namespace tessera
