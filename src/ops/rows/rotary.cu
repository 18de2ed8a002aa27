#include "tessera/ops/rows/rotary.h"

#include "tessera/ops/cuda/cuda_launch.cuh"
#include "tessera/ops/cuda/cuda_op.h"
#include "tessera/ops/cuda/cuda_rotary.cuh"
#include "tessera/ops/rows/rope_growth.h"
#include "tessera/ops/rows/rope_sections.h"

namespace tessera {
namespace {

using namespace cuda;

struct TableArgs {
  const std::int32_t* positions;  // [rows]; with sections [3, rows]
  const float* inv_freq;          // [half]
  float* table;                   // [rows, 2, half]
  std::int64_t rows;
  std::int64_t half;
  RowScale scale;
};

// Writes the cosine and the sine of an angle. It computes them in double, because float32's own range reduction is slow
// far from zero. The cost is small: all layers use one table, which is computed once in a forward.
__device__ void write_angle(const TableArgs& args, std::int64_t row, std::int64_t i, float position, float scale) {
  double sine;
  double cosine;
  sincos(static_cast<double>(position * args.inv_freq[i]), &sine, &cosine);
  args.table[2 * row * args.half + i] = static_cast<float>(cosine) * scale;
  args.table[(2 * row + 1) * args.half + i] = static_cast<float>(sine) * scale;
}

__global__ void rotary_table(const TableArgs args) {
  const std::int64_t row = row_of_thread();
  if (row >= args.rows) return;
  const float position = static_cast<float>(args.positions[row]);
  const float scale = args.scale.at(args.positions[row]);
  for (std::int64_t i = item_of_thread(); i < args.half; i += item_step()) write_angle(args, row, i, position, scale);
}

__global__ void rotary_table_of_sections(const TableArgs args, const RopeSections sections) {
  const std::int64_t row = row_of_thread();
  if (row >= args.rows) return;
  for (std::int64_t i = item_of_thread(); i < args.half; i += item_step())
    write_angle(args, row, i, static_cast<float>(args.positions[sections.axis_of(i) * args.rows + row]),
                args.scale.scale);
}

template <class T>
struct Rotary {
  const T* x;          // [rows, heads, head.dim]
  const float* table;  // [rows, 2, head.half]
  T* y;                // same shape as x
  std::int64_t rows;
  int heads;
  HeadShape head;
};

// Rotates heads. Each thread rotates or copies slots, which are parts of a head (cuda_rotary.cuh).
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

// Rotates heads in the interleaved form. A thread rotates pairs of neighbouring values (2i, 2i + 1). Past the rotated
// part it copies pairs or single values.
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
  const TableArgs table{.positions = args.operands[0].as<std::int32_t>(),
                        .inv_freq = args.operands[1].as<float>(),
                        .table = args.results[0].as<float>(),
                        .rows = args.operands[0].cols(),
                        .half = args.operands[1].dim(0),
                        .scale = row_scale(args.node)};
  const LaunchShape shape = row_shape(table.rows, table.half);
  if (args.node.find_attribute("sections") != nullptr) {
    const RopeSections sections = rope_sections(args.node);
    return make_cuda_op("rotary_table",
                        [=](cudaStream_t stream) { launch(rotary_table_of_sections, shape, stream, table, sections); });
  }
  return make_cuda_op("rotary_table", [=](cudaStream_t stream) { launch(rotary_table, shape, stream, table); });
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
