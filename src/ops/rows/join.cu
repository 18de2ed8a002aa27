#include "tessera/ops/rows/join.h"

#include <numeric>

#include "tessera/ops/cuda/cuda_launch.cuh"
#include "tessera/ops/cuda/cuda_op.h"
#include "tessera/ops/rows/row_copy.cuh"

namespace tessera {
namespace {

using namespace cuda;

struct Part {
  const std::byte* data;  // [rows, bytes]
  std::int64_t bytes;     // bytes of a row
};

// The parts of a join. They are passed by value and lie in constant memory while the kernel runs.
struct Parts {
  Part at[kMaxJoined];
};

// Joins the parts into out [rows, words]. A row of `out` consists of one row of each part, one after the other.
template <class Word>
__global__ void join(const __grid_constant__ Parts parts, Word* out, std::int64_t rows, std::int64_t words) {
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
    out[row * words + i] = reinterpret_cast<const Word*>(parts.at[p].data)[row * part_words + column];
  }
}

Result<std::unique_ptr<BoundOp>> bind_join(const BindArgs& args) {
  const TensorView& out = args.results[0];
  const auto element = static_cast<std::int64_t>(ir::dtype_size(out.dtype));
  Parts parts{};
  std::int64_t common = 0;  // the greatest number of bytes that divides the row length of every part
  for (std::size_t i = 0; i < args.operands.size(); ++i) {
    parts.at[i] = {args.operands[i].data.raw(), args.operands[i].cols() * element};
    common = std::gcd(common, parts.at[i].bytes);
  }
  return dispatch_word(common, [&]<class Word>() -> std::unique_ptr<BoundOp> {
    Word* const to = out.as<Word>();
    const std::int64_t rows = out.rows();
    const std::int64_t words = out.cols() * element / static_cast<std::int64_t>(sizeof(Word));
    const LaunchShape shape = row_shape(rows, words);
    return make_cuda_op("join",
                        [=](cudaStream_t stream) { launch(join<Word>, shape, stream, parts, to, rows, words); });
  });
}

}  // namespace

const KernelDef kJoinCuda{.op = "join", .name = "cuda", .bind = bind_join};

}  // namespace tessera
