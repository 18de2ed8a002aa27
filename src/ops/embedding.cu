#include "tessera/ops/embedding.h"

#include "tessera/ops/cuda_launch.cuh"
#include "tessera/ops/cuda_op.h"
#include "tessera/ops/cuda_rows.cuh"

namespace tessera {
namespace {

using namespace cuda;

__global__ void resolve_ids(const std::int32_t* ids, const std::int32_t* rows, const std::int32_t* last_ids,
                            std::int32_t* out, std::int64_t count, std::int64_t last_rows) {
  const std::int64_t t = flat_item();
  if (t >= count) return;
  const std::int32_t row = rows[t];
  if (row < 0)
    out[t] = ids[t];
  else
    out[t] = row < last_rows ? last_ids[row] : -2;
}

Result<std::unique_ptr<BoundOp>> bind_embedding(const BindArgs& args) {
  const TensorView& table = args.operands[1];
  return make_row_copy("embedding",
                       {.table = table.data.raw(),
                        .rows = args.operands[0].as<std::int32_t>(),
                        .given = args.operands[3].data.raw(),
                        .given_rows = args.operands[2].as<std::int32_t>(),
                        .out = args.results[0].data.raw(),
                        .table_rows = table.dim(0),
                        .num_given = args.operands[3].dim(0),
                        .count = args.operands[0].dim(0),
                        .row_bytes = table.cols() * static_cast<std::int64_t>(ir::dtype_size(table.dtype))});
}

Result<std::unique_ptr<BoundOp>> bind_resolve_ids(const BindArgs& args) {
  const std::int32_t* ids = args.operands[0].as<std::int32_t>();
  const std::int32_t* rows = args.operands[1].as<std::int32_t>();
  const std::int32_t* last_ids = args.operands[2].as<std::int32_t>();
  std::int32_t* out = args.results[0].as<std::int32_t>();
  const std::int64_t count = args.operands[0].dim(0);
  const std::int64_t last_rows = args.operands[2].dim(0);
  const LaunchShape shape = flat_shape(count);
  return make_cuda_op("resolve_ids", [=](cudaStream_t stream) {
    launch(resolve_ids, shape, stream, ids, rows, last_ids, out, count, last_rows);
  });
}

}  // namespace

const KernelDef kEmbeddingCuda{.op = "embedding", .name = "cuda", .bind = bind_embedding};

const KernelDef kResolveIdsCuda{.op = "resolve_ids", .name = "cuda", .bind = bind_resolve_ids};

}  // namespace tessera
