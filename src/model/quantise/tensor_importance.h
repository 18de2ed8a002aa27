// Prepares an importance matrix for the tensors of a GGUF file that will be written: chooses the entries that are used,
// and scales them.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tessera/base/status.h"
#include "tessera/model/gguf/importance_matrix.h"
#include "tessera/model/quantise/gguf_content.h"
#include "tessera/ops/quantised/block_types.h"

namespace tessera {

// The importances of one tensor's columns. A TensorImportance is empty if the tensor is rounded without importances. A
// tensor with the matrices of all experts has separate importances for each expert.
class TensorImportance {
 public:
  TensorImportance() = default;
  // Divides the sums of each matrix by their mean, and raises quotients below a thousandth to a thousandth, because
  // quantise() needs positive numbers. `rows` is the number of rows of one matrix. The number of sums must be a
  // multiple of `cols`.
  TensorImportance(const ImportanceEntry& entry, std::int64_t rows, std::int64_t cols);

  // Returns the importances of a row's columns, or null if the row is rounded without importances. Rows are counted
  // over all matrices of the tensor.
  const float* of_row(std::int64_t row) const;
  // Returns the number of matrices whose input was never seen, or was always zero.
  std::int64_t num_unseen() const;

 private:
  std::int64_t rows_ = 1;
  std::int64_t cols_ = 0;
  std::vector<float> numbers_{};  // [matrices, cols]: importance of each column
  std::vector<bool> seen_{};      // [matrices]: whether the matrix had any input other than zero
};

struct OutputImportance {
  std::vector<TensorImportance> tensors;  // [tensors of the content]
  std::vector<std::string> notes;
};

// Chooses the importances of the content's tensors, which are written as `types`. The result's notes say three things:
// which entries are not used because their tensor's type does not use importances; which tensors outside of the layers
// have no entry; how many matrices got no input from the text. Returns invalid_argument in four cases: an entry belongs
// to no tensor of the content; an entry has another size than its tensor; a matrix of the layers has no entry although
// its type uses importances; no tensor uses the importance matrix.
Result<OutputImportance> choose_importance(const GgufContent& content, std::span<const BlockType> types,
                                           const ImportanceMatrix& matrix);

}  // namespace tessera
