// Multiplies blocks of rows by oneDNN on the calling thread, for operators that divide their work among threads
// themselves. The products are prepared once when the operator is bound, and run for any number of rows up to a limit.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "tessera/base/status.h"
#include "tessera/ir/type.h"

namespace tessera {

class OneDnnBlocks {
 public:
  // y[rows, columns] = x[rows, depth] · w[columns, depth]ᵀ + bias[columns]. All have one dtype, which onednn_takes()
  // accepts, except that y may be float32 (float_sums).
  struct Shape {
    std::int64_t columns = 0;
    std::int64_t depth = 0;
    ir::DType dtype = ir::DType::kFloat32;
    bool bias = false;
    bool float_sums = false;  // y is float32 for every dtype
  };
  struct Operands {
    const std::byte* x;
    const std::byte* w;
    const std::byte* bias;  // null without a bias
    std::byte* y;
    std::byte* scratch;  // scratch memory of scratch_bytes() bytes; each calling thread needs its own
  };

  static constexpr std::int64_t kMostRows = 240;  // maximum number of rows of one run()
  // Returns the number of rows that run() really computes if it is asked for `rows` rows: `rows`, rounded up to a
  // number for which there is a primitive. x and y must have memory for all of these rows. The content of the
  // additional rows does not affect other rows. `rows` is 1 to kMostRows.
  static std::int64_t computed_rows(std::int64_t rows);

  // Prepares products of up to `most_rows` rows. Returns kInternal if oneDNN has no such product.
  static Result<std::unique_ptr<OneDnnBlocks>> create(const Shape& shape, std::int64_t most_rows);
  static Result<std::size_t> scratch_bytes(const Shape& shape, std::int64_t most_rows);
  ~OneDnnBlocks();

  // Runs one product. Any number of threads may call run() at once.
  Status run(std::int64_t rows, const Operands& operands) const;

 private:
  struct Primitives;
  explicit OneDnnBlocks(std::unique_ptr<Primitives> primitives);
  std::unique_ptr<Primitives> primitives_;
};

}  // namespace tessera
