// Makes Hugging Face's tensors from the tensors of a GGUF file. Elements are computed while they are read.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "tessera/model/gguf/stored_blocks.h"
#include "tessera/model/weights/stored_tensor.h"

namespace tessera {

// A permutation of rows or columns. The first `first` rows or columns keep their places. The remaining rows or columns
// form groups, each of a · b · unit rows or columns. Each group is stored transposed: element (i, j, e) of the group
// [a, b, unit] is stored at (j, i, e) of [b, a, unit]. The default changes nothing.
struct StoredOrder {
  std::int64_t first = 0;
  std::int64_t a = 1;
  std::int64_t b = 1;
  std::int64_t unit = 1;

  bool is_same() const { return a == 1 || b == 1; }
  std::int64_t stored(std::int64_t index) const;
};

// The function applied to each number that is read.
enum class NumberChange : std::uint8_t {
  kNone,
  kLessOne,
  kPlusOne,
  kLogOfNegative,          // log(−x)
  kNegativeOfExponential,  // −exp(x)
};

// The rows of one matrix, or the interleaved rows of two matrices: row 0 of the first, row 0 of the second, row 1 of
// the first, and so on.
struct JoinedRows {
  std::vector<StoredBlocks> matrices;

  struct Row {
    const StoredBlocks* matrix;
    std::int64_t index;
  };
  Row at(std::int64_t row) const;
};

// How elements are changed while they are read: permutations of rows and columns, and a function for each number.
struct RowArrangement {
  StoredOrder rows = {};
  StoredOrder cols = {};
  NumberChange change = NumberChange::kNone;
};
// Returns the elements of `rows` as F32, with rows and columns permuted and each number changed.
std::shared_ptr<const TensorElements> make_rows(JoinedRows rows, const RowArrangement& arrangement);

// Returns the elements of `base` as F32, with rows and columns permuted and each number changed. A row of `base` has
// `cols` elements.
std::shared_ptr<const TensorElements> make_reordered(std::shared_ptr<const TensorElements> base, std::int64_t cols,
                                                     const RowArrangement& arrangement);

// A selection of rows of an MXFP4 matrix. `values` and `exponents` are stored as make_mxfp4_values() and
// make_mxfp4_exponents() write them. Row r of the selection is row first + r · step of the matrix.
struct Mxfp4Rows {
  const std::byte* values = nullptr;
  const std::byte* exponents = nullptr;
  std::int64_t cols = 0;
  std::int64_t first = 0;
  std::int64_t step = 1;
};
// Returns the selected rows as F32 elements.
std::shared_ptr<const TensorElements> make_mxfp4_numbers(const Mxfp4Rows& rows);

// Returns the F32 elements of all `parts`, one part after the other. Each part has `elements` elements.
std::shared_ptr<const TensorElements> make_stack(std::vector<std::shared_ptr<const TensorElements>> parts,
                                                 std::int64_t elements);
// Returns column `col` of a matrix as F32 elements. The number of rows need not be known.
std::shared_ptr<const TensorElements> make_column(const StoredBlocks& matrix, std::int64_t col);
// Returns F32 elements that are kept in memory.
std::shared_ptr<const TensorElements> make_numbers(std::vector<float> numbers);

// The next two functions return U8 elements for rows of type MXFP4. The first function returns the values, two
// neighbours in each byte, with the first neighbour in the lower half. The second function returns the exponents, one
// for each block of 32 values.
std::shared_ptr<const TensorElements> make_mxfp4_values(JoinedRows rows);
std::shared_ptr<const TensorElements> make_mxfp4_exponents(JoinedRows rows);

// The sizes of one head in the matrices that project latent vectors to keys and to values (multi-head latent
// attention).
struct LatentRowSizes {
  std::int64_t key_rows = 0;
  std::int64_t value_rows = 0;
  std::int64_t latent = 0;
};
// Returns F32 elements: for each head, the key rows [key_rows, latent], then the value rows [value_rows, latent]. In
// `keys` the key rows of a head are transposed: [latent, key_rows].
std::shared_ptr<const TensorElements> make_latent_rows(const StoredBlocks& keys, const StoredBlocks& values,
                                                       const LatentRowSizes& sizes);

}  // namespace tessera
