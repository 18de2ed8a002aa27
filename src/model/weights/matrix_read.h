// Reads elements of a matrix that a checkpoint stores in another form: transposed, within a stack, or quantised with
// scales.
//
// `runs` counts the elements of the matrix [rows, cols], row-major, as slice_runs() of that shape returns them. They
// are written densely to `dst`, converted to `dtype` (F32, F16 or BF16). invalid_argument if shapes or sizes disagree.
// Uses OpenMP's threads if the build has it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "tessera/base/status.h"
#include "tessera/model/weights/stored_tensor.h"
#include "tessera/model/weights/tensor_copy.h"

namespace tessera {

// Reads a transposed matrix: `stored` is [cols, rows].
Status read_transposed(const StoredTensor& stored, const SliceRuns& runs, StoredDtype dtype, std::span<std::byte> dst);

// A matrix of `rows` by `cols` whose element (r, c) is stored[offset + r · row_stride + c · col_stride].
struct StridedMatrix {
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::int64_t offset = 0;
  std::int64_t row_stride = 0;
  std::int64_t col_stride = 1;
};

Status read_strided(const StoredTensor& stored, const StridedMatrix& matrix, const SliceRuns& runs, StoredDtype dtype,
                    std::span<std::byte> dst);

// The rows of a StridedMatrix as float32. Borrows the tensor's data. Thread-safe.
class StridedRows {
 public:
  // Checks the matrix. invalid_argument if it leaves the tensor; unimplemented for types that are not numbers.
  static Result<StridedRows> of(const StoredTensor& stored, const StridedMatrix& matrix);

  // Writes elements (row, col) … to `floats`. Precondition: they lie in the matrix's row.
  void read(std::int64_t row, std::int64_t col, std::span<float> floats) const;
  // Returns the index of element (row, col) in the tensor.
  std::int64_t index(std::int64_t row, std::int64_t col) const {
    return matrix_.offset + row * matrix_.row_stride + col * matrix_.col_stride;
  }

 private:
  // Decodes `count` elements that are `stride` elements apart.
  using Decode = void (*)(const std::byte* src, std::int64_t stride, float* dst, std::int64_t count);
  StridedRows(Decode decode, const StoredTensor& stored, const StridedMatrix& matrix)
      : decode_(decode),
        data_(stored.data.data()),
        made_(stored.made.get()),
        element_bytes_(stored_dtype_bytes(stored.dtype)),
        matrix_(matrix) {}

  Decode decode_;
  const std::byte* data_;
  const TensorElements* made_;  // null: the elements are data_
  std::int64_t element_bytes_;
  StridedMatrix matrix_;
};

// Reads bytes that stay as they are: the elements of `stored` are bytes, and `dst` is as long as the runs.
Status read_packed(const StoredTensor& stored, const StridedMatrix& matrix, const SliceRuns& runs,
                   std::span<std::byte> dst);

// A piece of a row of the matrix: elements (row, col) … (row, col + count - 1), which go to index `at` of the result.
struct RowPiece {
  std::int64_t row;
  std::int64_t col;
  std::int64_t count;
  std::int64_t at;
};

// Cuts the runs at the ends of rows of `cols` elements. Precondition: every run begins in the same column, or there is
// only one run (slice_runs()).
class RowPieces {
 public:
  RowPieces(const SliceRuns& runs, std::int64_t cols)
      : runs_(runs), cols_(cols), per_run_((runs.start % cols + runs.run + cols - 1) / cols) {}

  std::int64_t size() const { return runs_.num_runs * per_run_; }
  RowPiece operator[](std::int64_t i) const;

 private:
  SliceRuns runs_;
  std::int64_t cols_;
  std::int64_t per_run_;
};

// Scales in row-major order, one for each block of block_rows by block_cols elements; blocks at the edges may be
// smaller.
struct BlockScales {
  const StoredTensor& tensor;
  std::int64_t block_rows = 1;
  std::int64_t block_cols = 1;
};

// Reads a matrix with scales: `stored` is [rows, cols]; each element is multiplied by its block's scale, in float32.
Status read_scaled(const StoredTensor& stored, const BlockScales& scales, const SliceRuns& runs, StoredDtype dtype,
                   std::span<std::byte> dst);

}  // namespace tessera
