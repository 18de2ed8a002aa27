// Tensors in Hugging Face's arrangement, made from those of a GGUF file while they are read.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "tessera/model/gguf/stored_blocks.h"
#include "tessera/model/weights/stored_tensor.h"

namespace tessera {

// An order of rows or columns. From `first` on, they are groups of a · b · unit: index (i, j, e) of a group, which
// counts a by b runs of `unit`, is stored at (j, i, e). The default is the order of the file.
struct StoredOrder {
  std::int64_t first = 0;
  std::int64_t a = 1;
  std::int64_t b = 1;
  std::int64_t unit = 1;

  bool is_same() const { return a == 1 || b == 1; }
  std::int64_t stored(std::int64_t index) const;
};

// What happens to a number that is read.
enum class NumberChange : std::uint8_t {
  kNone,
  kLessOne,
  kPlusOne,
  kLogOfNegative,          // log(−x)
  kNegativeOfExponential,  // −exp(x)
};

// The rows of one matrix, or of two in turn: a row of the first, a row of the second.
struct JoinedRows {
  std::vector<StoredBlocks> matrices;

  struct Row {
    const StoredBlocks* matrix;
    std::int64_t index;
  };
  Row at(std::int64_t row) const;
};

// Returns elements of F32: the rows, in another order of rows and columns.
struct RowArrangement {
  StoredOrder rows = {};
  StoredOrder cols = {};
  NumberChange change = NumberChange::kNone;
};
std::shared_ptr<const TensorElements> make_rows(JoinedRows rows, const RowArrangement& arrangement);

// Returns elements of F32: those of `base`, rows of `cols`, in another order and changed.
std::shared_ptr<const TensorElements> make_reordered(std::shared_ptr<const TensorElements> base, std::int64_t cols,
                                                     const RowArrangement& arrangement);

// Returns elements of F32 for a matrix that is stored as values and exponents, as make_mxfp4_values() and
// make_mxfp4_exponents() write them: its row r is row first + r · step of those.
struct Mxfp4Rows {
  const std::byte* values = nullptr;
  const std::byte* exponents = nullptr;
  std::int64_t cols = 0;
  std::int64_t first = 0;
  std::int64_t step = 1;
};
std::shared_ptr<const TensorElements> make_mxfp4_numbers(const Mxfp4Rows& rows);

// Returns elements of F32: those of `parts`, one after the other. Each part has `elements` of them.
std::shared_ptr<const TensorElements> make_stack(std::vector<std::shared_ptr<const TensorElements>> parts,
                                                 std::int64_t elements);
// Returns elements of F32: column `col` of a matrix, which need not end.
std::shared_ptr<const TensorElements> make_column(const StoredBlocks& matrix, std::int64_t col);
// Returns elements of F32 that are kept in memory.
std::shared_ptr<const TensorElements> make_numbers(std::vector<float> numbers);

// Return elements of U8 for rows of type MXFP4: the values, two in a byte, neighbours from the lower half up, and the
// exponents of the blocks of 32.
std::shared_ptr<const TensorElements> make_mxfp4_values(JoinedRows rows);
std::shared_ptr<const TensorElements> make_mxfp4_exponents(JoinedRows rows);

// Returns elements of F32: for each head the rows [key_rows, latent] of `keys`, which lie transposed there, [latent,
// key_rows], above the rows [value_rows, latent] of `values`.
struct LatentRowSizes {
  std::int64_t key_rows = 0;
  std::int64_t value_rows = 0;
  std::int64_t latent = 0;
};
std::shared_ptr<const TensorElements> make_latent_rows(const StoredBlocks& keys, const StoredBlocks& values,
                                                       const LatentRowSizes& sizes);

}  // namespace tessera
