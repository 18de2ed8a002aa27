#include "tessera/ops/rows/gather.h"

#include "tessera/ops/cuda/cuda_launch.cuh"
#include "tessera/ops/cuda/cuda_op.h"
#include "tessera/ops/rows/row_copy.cuh"

namespace tessera {
namespace cuda {
namespace {

template <class Word>
__global__ void copy_rows(const RowCopy copy, std::int64_t words) {
  const std::int64_t i = row_of_thread();
  if (i >= copy.count) return;
  const std::int64_t given = copy.given_rows == nullptr ? -1 : copy.given_rows[i];
  const std::int64_t row = given >= 0 ? given : copy.rows[i] - copy.first_row;
  const std::byte* const table = given >= 0 ? copy.given : copy.table;
  const std::int64_t stride = given >= 0 ? copy.given_row_bytes : copy.row_bytes;
  const bool inside = row >= 0 && row < (given >= 0 ? copy.num_given : copy.table_rows);
  // If `from` is null, the row of `out` becomes zeros.
  const Word* const from = inside ? reinterpret_cast<const Word*>(table + row * stride) : nullptr;
  Word* const to = reinterpret_cast<Word*>(copy.out) + i * words;
  for (std::int64_t j = item_of_thread(); j < words; j += item_step()) to[j] = from != nullptr ? from[j] : Word{};
}

}  // namespace

std::unique_ptr<BoundOp> make_row_copy(const char* name, const RowCopy& copy) {
  return dispatch_word(copy.row_bytes, [&]<class Word>() -> std::unique_ptr<BoundOp> {
    const std::int64_t words = copy.row_bytes / static_cast<std::int64_t>(sizeof(Word));
    const LaunchShape shape = row_shape(copy.count, words);
    return make_cuda_op(
        name, [copy, words, shape](cudaStream_t stream) { launch(copy_rows<Word>, shape, stream, copy, words); });
  });
}

}  // namespace cuda

namespace {

Result<std::unique_ptr<BoundOp>> bind_gather_rows(const BindArgs& args) {
  const TensorView& x = args.operands[0];
  return cuda::make_row_copy("gather_rows",
                             {.table = x.data.raw(),
                              .rows = args.operands[1].as<std::int32_t>(),
                              .out = args.results[0].data.raw(),
                              .table_rows = x.dim(0),
                              .count = args.operands[1].dim(0),
                              .row_bytes = x.cols() * static_cast<std::int64_t>(ir::dtype_size(x.dtype))});
}

}  // namespace

const KernelDef kGatherRowsCuda{.op = "gather_rows", .name = "cuda", .bind = bind_gather_rows};

}  // namespace tessera
