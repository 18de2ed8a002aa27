// Reads elements of a matrix that a checkpoint stores in another form: transposed, as part of a stacked tensor, or
// quantised with scales.
//
// In every function, `runs` says which elements of the matrix to read. It is the result of slice_runs() for the shape
// [rows, cols] of the matrix, not for the shape of the stored tensor. Except in read_packed(), the elements are
// converted to `dtype` (F32, F16 or BF16). They are written densely to `dst`. Every function returns invalid_argument
// if shapes or sizes disagree, and uses OpenMP threads if the build has them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "tessera/base/status.h"
#include "tessera/model/weights/stored_tensor.h"
#include "tessera/model/weights/tensor_copy.h"

namespace tessera {

// Reads a matrix that is stored transposed. `stored` is [cols, rows].
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
  // Checks the matrix and returns its rows. Returns invalid_argument if the matrix exceeds the tensor; unimplemented
  // for types that are not numbers.
  static Result<StridedRows> of(const StoredTensor& stored, const StridedMatrix& matrix);

  // Fills `floats` with the elements of row `row` from column `col` on. Precondition: the row has that many elements.
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
  const TensorElements* made_;  // null if `data_` contains the elements
  std::int64_t element_bytes_;
  StridedMatrix matrix_;
};

// Reads bytes without conversion. The elements of `stored` must be bytes, and `dst` must have the size of the runs.
Status read_packed(const StoredTensor& stored, const StridedMatrix& matrix, const SliceRuns& runs,
                   std::span<std::byte> dst);

// A part of one row of the matrix: elements (row, col) … (row, col + count - 1). `at` is the index of the first of them
// in the result.
struct RowPiece {
  std::int64_t row;
  std::int64_t col;
  std::int64_t count;
  std::int64_t at;
};

// Splits runs at the ends of rows of `cols` elements. Precondition: all runs begin in the same column. The runs that
// slice_runs() returns meet this condition.
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

// Scales in row-major order, one for each block of block_rows by block_cols elements. Blocks at the matrix's edges may
// be smaller.
struct BlockScales {
  const StoredTensor& tensor;
  std::int64_t block_rows = 1;
  std::int64_t block_cols = 1;
};

// Reads a matrix with scales. `stored` is [rows, cols]. Each element is multiplied by the scale of its block, in
// float32.
Status read_scaled(const StoredTensor& stored, const BlockScales& scales, const SliceRuns& runs, StoredDtype dtype,
                   std::span<std::byte> dst);

}  // namespace tessera
