#include "tessera/ops/vision/axial_rotary.h"

#include "tessera/ops/cuda/cuda_launch.cuh"
#include "tessera/ops/cuda/cuda_op.h"
#include "tessera/ops/cuda/cuda_rotary.cuh"

namespace tessera {
namespace {

using namespace cuda;

__global__ void axial_table(const std::int32_t* positions, const float* inv_freq, float* table, std::int64_t rows,
                            int frequencies) {
  const std::int64_t row = row_of_thread();
  if (row >= rows) return;
  float* const to = table + row * 4 * frequencies;
  for (int i = static_cast<int>(item_of_thread()); i < 2 * frequencies; i += static_cast<int>(item_step())) {
    const float position = static_cast<float>(positions[2 * row + i / frequencies]);
    sincosf(position * inv_freq[i % frequencies], to + 2 * frequencies + i, to + i);
  }
}

template <class T>
struct RotateHeads {
  T* x;                // [rows, cols]; a row begins with the heads, which have 2·half values each
  const float* table;  // [rows, 2, half]
  std::int64_t rows;
  std::int64_t cols;
  int heads;
  int half;
};

// Rotates the heads in place. Each thread rotates N neighbouring pairs at a time.
template <class T, int N>
__global__ void rotate_heads(const RotateHeads<T> r) {
  let_next_begin();
  wait_for_previous();
  const std::int64_t row = row_of_thread();
  if (row >= r.rows) return;
  const float* const angles = r.table + row * 2 * r.half;
  const int packs = r.half / N;
  for (int i = static_cast<int>(item_of_thread()); i < r.heads * packs; i += static_cast<int>(item_step())) {
    const int first = i % packs * N;
    T* const low = r.x + row * r.cols + i / packs * 2 * r.half + first;
    Pack<T, N> a = load_pack<T, N>(low);
    Pack<T, N> b = load_pack<T, N>(low + r.half);
    rotate_packs(a, b, load_angles<N>(angles, r.half, first));
    store_pack(low, a);
    store_pack(low + r.half, b);
  }
}

template <class T, int N>
std::unique_ptr<BoundOp> make_rotate_heads(const RotateHeads<T>& r) {
  const LaunchShape shape = row_shape(r.rows, static_cast<std::int64_t>(r.heads) * (r.half / N));
  return make_cuda_op("rotate_heads", [=](cudaStream_t stream) { launch_early(rotate_heads<T, N>, shape, stream, r); });
}

Result<std::unique_ptr<BoundOp>> bind_axial_table(const BindArgs& args) {
  const std::int32_t* positions = args.operands[0].as<std::int32_t>();
  const float* inv_freq = args.operands[1].as<float>();
  float* table = args.results[0].as<float>();
  const std::int64_t rows = args.operands[0].dim(0);
  const int frequencies = static_cast<int>(args.operands[1].dim(0));
  const LaunchShape shape = row_shape(rows, 2 * frequencies);
  return make_cuda_op("axial_table", [=](cudaStream_t stream) {
    launch(axial_table, shape, stream, positions, inv_freq, table, rows, frequencies);
  });
}

Result<std::unique_ptr<BoundOp>> bind_rotate_heads(const BindArgs& args) {
  return dispatch_dtype(args.operands[0].dtype, "rotate_heads", [&]<class T>() -> Result<std::unique_ptr<BoundOp>> {
    const RotateHeads<T> r{.x = args.operands[0].as<T>(),
                           .table = args.operands[1].as<float>(),
                           .rows = args.operands[0].dim(0),
                           .cols = args.operands[0].dim(1),
                           .heads = static_cast<int>(args.node.attribute_or("heads", std::int64_t{0})),
                           .half = static_cast<int>(args.operands[1].dim(1) / 2)};
    const auto fits = [&](int n) { return r.half % n == 0 && r.cols % n == 0; };
    if (fits(kPackSize<T>)) return make_rotate_heads<T, kPackSize<T>>(r);
    if (fits(4)) return make_rotate_heads<T, 4>(r);
    return make_rotate_heads<T, 1>(r);
  });
}

}  // namespace

const KernelDef kAxialTableCuda{.op = "axial_table", .name = "cuda", .bind = bind_axial_table};

const KernelDef kRotateHeadsCuda{.op = "rotate_heads", .name = "cuda", .bind = bind_rotate_heads};

}  // namespace tessera
