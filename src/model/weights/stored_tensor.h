// A tensor of a checkpoint, in whatever file it lies.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tessera/base/status.h"
#include "tessera/model/weights/stored_dtype.h"
#include "tessera/ops/quantised/block_types.h"

namespace tessera {

// Makes the elements of a tensor that its file stores in another form. Const functions are thread-safe.
class TensorElements {
 public:
  virtual ~TensorElements() = default;
  // Writes elements [first, first + count) of the tensor, counted row-major, to `to`, in the tensor's dtype.
  // Precondition: they lie within the tensor.
  virtual void read(std::int64_t first, std::int64_t count, std::byte* to) const = 0;
  // Returns the blocks (StoredTensor::blocks) whose numbers are row `row` of the tensor as a matrix; null if a row is
  // not stored as blocks of its own. All rows of a tensor are alike in this. Borrowed from the file. Precondition: the
  // row lies within the tensor.
  virtual const std::byte* row_blocks(std::int64_t /*row*/) const { return nullptr; }
};

// Row-major, dense, little-endian. The elements are either `data`, which may have any alignment, or are made while they
// are read.
struct StoredTensor {
  std::string name;
  StoredDtype dtype = StoredDtype::kF32;
  std::vector<std::int64_t> shape;                       // {} for a scalar
  std::span<const std::byte> data;                       // borrowed: lives as long as the file or buffer it came from
  std::shared_ptr<const TensorElements> made = nullptr;  // not null: `data` is empty
  std::optional<BlockType> blocks = std::nullopt;        // the type of the blocks from which the elements are made

  std::int64_t num_elements() const;
};

// Returns "[2, 3]".
std::string shape_text(std::span<const std::int64_t> shape);
// Returns the product times the element size; nothing for a negative dimension or an overflow of 63 bits.
std::optional<std::int64_t> tensor_bytes(std::span<const std::int64_t> shape, StoredDtype dtype);
// Returns invalid_argument unless the elements of the whole shape are there.
Status expect_all_elements(const StoredTensor& tensor);

}  // namespace tessera
