#include "tessera/ops/rows/view.h"

#include <numeric>

#include "tessera/ops/cuda/cuda_launch.cuh"
#include "tessera/ops/cuda/cuda_op.h"
#include "tessera/ops/rows/row_copy.cuh"

namespace tessera {
namespace {

using namespace cuda;

struct Part {
  std::byte* data;     // [rows, bytes]
  std::int64_t bytes;  // bytes of a row
};

// The parts of a split. They are passed by value and lie in constant memory while the kernel runs.
struct Parts {
  Part at[kMaxSplits];
};

// Copies x [rows, words] to the parts. A row of x consists of one row of each part, one after the other.
template <class Word>
__global__ void split(const Word* x, std::int64_t rows, std::int64_t words, const __grid_constant__ Parts parts) {
  const std::int64_t row = row_of_thread();
  if (row >= rows) return;
  for (std::int64_t i = item_of_thread(); i < words; i += item_step()) {
    int p = 0;
    std::int64_t column = i;  // column within part p
    std::int64_t part_words = parts.at[0].bytes / static_cast<std::int64_t>(sizeof(Word));
    while (column >= part_words) {
      column -= part_words;
      part_words = parts.at[++p].bytes / static_cast<std::int64_t>(sizeof(Word));
    }
    reinterpret_cast<Word*>(parts.at[p].data)[row * part_words + column] = x[row * words + i];
  }
}

Result<std::unique_ptr<BoundOp>> bind_split(const BindArgs& args) {
  const TensorView& x = args.operands[0];
  const std::int64_t element = static_cast<std::int64_t>(ir::dtype_size(x.dtype));
  Parts parts{};
  std::int64_t common = 0;  // the greatest number of bytes that divides the row length of every part
  for (std::size_t i = 0; i < args.results.size(); ++i) {
    parts.at[i] = {args.results[i].data.raw(), args.results[i].cols() * element};
    common = std::gcd(common, parts.at[i].bytes);
  }
  return dispatch_word(common, [&]<class Word>() -> std::unique_ptr<BoundOp> {
    const Word* from = x.as<Word>();
    const std::int64_t rows = x.rows();
    const std::int64_t words = x.cols() * element / static_cast<std::int64_t>(sizeof(Word));
    const LaunchShape shape = row_shape(rows, words);
    return make_cuda_op("split",
                        [=](cudaStream_t stream) { launch(split<Word>, shape, stream, from, rows, words, parts); });
  });
}

}  // namespace

const KernelDef kSplitCuda{.op = "split", .name = "cuda", .bind = bind_split};

}  // namespace tessera
