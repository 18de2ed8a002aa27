#include "tessera/ops/rows/weighted_rows.h"

#include "tessera/ops/cuda/cuda_launch.cuh"
#include "tessera/ops/cuda/cuda_math.cuh"
#include "tessera/ops/cuda/cuda_op.h"

namespace tessera {
namespace {

using namespace cuda;

template <class T>
struct WeightedRows {
  const T* table;            // [table_rows, n]
  const std::int32_t* rows;  // [count, terms]
  const float* weights;      // [count, terms]
  T* out;                    // [count, n]
  std::int64_t table_rows;
  std::int64_t count;
  std::int64_t n;
  int terms;
};

template <class T>
__global__ void weighted_rows(const WeightedRows<T> p) {
  const std::int64_t at = row_of_thread();
  if (at >= p.count) return;
  for (std::int64_t i = item_of_thread(); i < p.n; i += item_step()) {
    float sum = 0;
    for (int k = 0; k < p.terms; ++k) {
      const std::int64_t row = p.rows[at * p.terms + k];
      if (row < 0 || row >= p.table_rows) continue;
      sum += rounded<T>(to_float(p.table[row * p.n + i]) * rounded<T>(p.weights[at * p.terms + k]));
    }
    p.out[at * p.n + i] = from_float<T>(sum);
  }
}

Result<std::unique_ptr<BoundOp>> bind_weighted_rows(const BindArgs& args) {
  return dispatch_dtype(args.operands[0].dtype, "weighted_rows", [&]<class T>() -> Result<std::unique_ptr<BoundOp>> {
    const WeightedRows<T> p{.table = args.operands[0].as<T>(),
                            .rows = args.operands[1].as<std::int32_t>(),
                            .weights = args.operands[2].as<float>(),
                            .out = args.results[0].as<T>(),
                            .table_rows = args.operands[0].dim(0),
                            .count = args.operands[1].dim(0),
                            .n = args.operands[0].dim(1),
                            .terms = static_cast<int>(args.operands[1].dim(1))};
    const LaunchShape shape = row_shape(p.count, p.n);
    return make_cuda_op("weighted_rows", [=](cudaStream_t stream) { launch(weighted_rows<T>, shape, stream, p); });
  });
}

}  // namespace

const KernelDef kWeightedRowsCuda{.op = "weighted_rows", .name = "cuda", .bind = bind_weighted_rows};

}  // namespace tessera
