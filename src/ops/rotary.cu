#include "tessera/ops/rotary.h"

#include "tessera/ops/cuda_launch.cuh"
#include "tessera/ops/cuda_op.h"
#include "tessera/ops/cuda_rotary.cuh"

namespace tessera {
namespace {

using namespace cuda;

// positions [rows], inv_freq [half] → table [rows, 2, half]. In double: float32's own range reduction is slow far from
// zero, and a table serves all layers.
__global__ void rotary_table(const std::int32_t* positions, const float* inv_freq, float* table, std::int64_t rows,
                             std::int64_t half, float scale) {
  const std::int64_t row = row_of_thread();
  if (row >= rows) return;
  const float position = static_cast<float>(positions[row]);
  for (std::int64_t i = item_of_thread(); i < half; i += item_step()) {
    double sine;
    double cosine;
    sincos(static_cast<double>(position * inv_freq[i]), &sine, &cosine);
    table[2 * row * half + i] = static_cast<float>(cosine) * scale;
    table[(2 * row + 1) * half + i] = static_cast<float>(sine) * scale;
  }
}

template <class T>
struct Rotary {
  const T* x;          // [rows, heads, head.dim]
  const float* table;  // [rows, 2, head.half]
  T* y;                // as x
  std::int64_t rows;
  int heads;
  HeadShape head;
};

// An item is a slot of a head.
template <class T, int N>
__global__ void rotary(const Rotary<T> r) {
  const std::int64_t row = row_of_thread();
  if (row >= r.rows) return;
  const int slots = slots_of<N>(r.head);
  const float* angles = r.table + row * 2 * r.head.half;
  for (std::int64_t i = item_of_thread(); i < static_cast<std::int64_t>(r.heads) * slots; i += item_step()) {
    const int head = static_cast<int>(i) / slots;
    const HeadSlot slot = slot_at<N>(r.head, static_cast<int>(i) % slots);
    const std::int64_t at = (row * r.heads + head) * r.head.dim;
    Pack<T, N> a = load_pack<T, N>(r.x + at + slot.first);
    if (slot.second >= 0) {
      Pack<T, N> b = load_pack<T, N>(r.x + at + slot.second);
      if (slot.rotated) rotate_packs(a, b, load_angles<N>(angles, r.head.half, slot.first));
      store_pack(r.y + at + slot.second, b);
    }
    store_pack(r.y + at + slot.first, a);
  }
}

// An item is a pair of neighbours (2i, 2i + 1), or a pair or single value that stays.
template <class T>
__global__ void rotary_interleaved(const Rotary<T> r) {
  const std::int64_t row = row_of_thread();
  if (row >= r.rows) return;
  const int pairs = (r.head.dim + 1) / 2;
  const float* cosines = r.table + row * 2 * r.head.half;
  for (std::int64_t i = item_of_thread(); i < static_cast<std::int64_t>(r.heads) * pairs; i += item_step()) {
    const int pair = static_cast<int>(i) % pairs;
    const std::int64_t at = (row * r.heads + static_cast<int>(i) / pairs) * r.head.dim + 2 * pair;
    T a = r.x[at];
    if (2 * pair + 1 < r.head.dim) {
      T b = r.x[at + 1];
      if (pair < r.head.half) rotate(a, b, cosines[pair], cosines[r.head.half + pair]);
      r.y[at + 1] = b;
    }
    r.y[at] = a;
  }
}

template <class T, int N>
std::unique_ptr<BoundOp> make_rotary(const Rotary<T>& r) {
  const LaunchShape shape = row_shape(r.rows, static_cast<std::int64_t>(r.heads) * slots_of<N>(r.head));
  return make_cuda_op("rotary", [=](cudaStream_t stream) { launch(rotary<T, N>, shape, stream, r); });
}

Result<std::unique_ptr<BoundOp>> bind_rotary_table(const BindArgs& args) {
  const std::int32_t* positions = args.operands[0].as<std::int32_t>();
  const float* inv_freq = args.operands[1].as<float>();
  float* table = args.results[0].as<float>();
  const std::int64_t rows = args.operands[0].dim(0);
  const std::int64_t half = args.operands[1].dim(0);
  const float scale = static_cast<float>(args.node.attribute_or("scale", 1.0));
  const LaunchShape shape = row_shape(rows, half);
  return make_cuda_op("rotary_table", [=](cudaStream_t stream) {
    launch(rotary_table, shape, stream, positions, inv_freq, table, rows, half, scale);
  });
}

Result<std::unique_ptr<BoundOp>> bind_rotary(const BindArgs& args) {
  return dispatch_dtype(args.operands[0].dtype, "rotary", [&]<class T>() -> Result<std::unique_ptr<BoundOp>> {
    const std::int64_t dim = args.node.attribute_or("head_dim", std::int64_t{0});
    const Rotary<T> r{.x = args.operands[0].as<T>(),
                      .table = args.operands[1].as<float>(),
                      .y = args.results[0].as<T>(),
                      .rows = args.operands[0].dim(0),
                      .heads = static_cast<int>(args.operands[0].dim(1) / dim),
                      .head = {static_cast<int>(dim), static_cast<int>(args.operands[1].dim(1) / 2)}};
    if (args.node.attribute_or("interleaved", false)) {
      const LaunchShape shape = row_shape(r.rows, static_cast<std::int64_t>(r.heads) * ((dim + 1) / 2));
      return make_cuda_op("rotary", [=](cudaStream_t stream) { launch(rotary_interleaved<T>, shape, stream, r); });
    }
    if (fits_packs(r.head, kPackSize<T>)) return make_rotary<T, kPackSize<T>>(r);
    return make_rotary<T, 1>(r);
  });
}

}  // namespace

const KernelDef kRotaryTableCuda{.op = "rotary_table", .name = "cuda", .bind = bind_rotary_table};

const KernelDef kRotaryCuda{.op = "rotary", .name = "cuda", .bind = bind_rotary};

}  // namespace tessera
