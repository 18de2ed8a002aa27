// Describes one tensor of a checkpoint in any file format.
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

// Computes the elements of a tensor that the file stores in another form. Const functions are thread-safe.
class TensorElements {
 public:
  virtual ~TensorElements() = default;
  // Writes elements [first, first + count) of the tensor, in row-major order and in the tensor's dtype, to `to`.
  // Precondition: these elements lie within the tensor.
  virtual void read(std::int64_t first, std::int64_t count, std::byte* to) const = 0;
  // Returns whether the rows of the tensor consist of whole blocks of the file (StoredTensor::blocks). All dimensions
  // of the tensor except the last form the rows.
  virtual bool has_blocks() const { return false; }
  // Copies `count` blocks of row `row`, which begin with the row's block `first`, to `to`. Preconditions: has_blocks(),
  // and the blocks lie within the tensor.
  virtual void copy_blocks(std::int64_t /*row*/, std::int64_t /*first*/, std::int64_t /*count*/,
                           std::byte* /*to*/) const {}
};

// A tensor in row-major order, dense and little-endian. Its elements are either in `data`, which may have any
// alignment, or are computed by `made` while they are read.
struct StoredTensor {
  std::string name;
  StoredDtype dtype = StoredDtype::kF32;
  std::vector<std::int64_t> shape;                       // {} for a scalar
  std::span<const std::byte> data;                       // borrowed; the file or buffer must outlive the tensor
  std::shared_ptr<const TensorElements> made = nullptr;  // if not null, `data` is empty
  std::string source = {};  // the tensor of a GGUF file from which this one is made; "" for other files
  std::optional<BlockType> blocks = std::nullopt;  // type of the blocks from which `made` computes the elements

  std::int64_t num_elements() const;
};

// Returns the shape as text, for example "[2, 3]".
std::string shape_text(std::span<const std::int64_t> shape);
// Returns the size of a tensor in bytes. Returns nothing for a negative dimension, or if the size exceeds 63 bits.
std::optional<std::int64_t> tensor_bytes(std::span<const std::int64_t> shape, StoredDtype dtype);
// Returns invalid_argument if the tensor's data do not contain all elements of its shape.
Status expect_all_elements(const StoredTensor& tensor);

}  // namespace tessera
