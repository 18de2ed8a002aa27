// Embeddings that prompts bring in place of ids: rows in device memory at a fixed address, from which the forward's
// operator takes the row that each token names (ForwardBatch::embedding_rows). Addresses are set aside at the start and
// memory is taken by reserve(): a model that never gets embeddings pays nothing. Which rows are whose is the engine's
// affair (engine/schedule/row_ranges.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "tessera/base/status.h"
#include "tessera/device/device.h"
#include "tessera/ir/graph.h"
#include "tessera/ops/contract/forward_batch.h"
#include "tessera/piecewise/external_values.h"

namespace tessera {

class EmbeddingRows {
 public:
  // For the input of that name of `body`, X[rows, row values]. kInternal where there is none.
  static Result<EmbeddingRows> create(const ir::Graph& body, Device& device);

  // What so many rows take of the device's memory.
  static Result<std::int64_t> bytes_needed(const ir::Graph& body, std::int64_t rows);

  void add_to(ExternalValues& externals) const;
  // Memory for at least the first `rows` rows; never less than before. kResourceExhausted where the device, or what the
  // graph was built for, has no room for them.
  Status reserve(std::int64_t rows);
  std::int64_t rows() const { return rows_; }  // that have memory
  std::int64_t row_values() const { return static_cast<std::int64_t>(row_values_); }
  ir::DType dtype() const { return dtype_; }
  std::int64_t row_bytes() const { return row_values() * static_cast<std::int64_t>(ir::dtype_size(dtype_)); }
  // Of row 0; row r lies r · row_bytes() behind it.
  DeviceAddress base() const { return arena_->base(); }
  std::int64_t bytes() const { return static_cast<std::int64_t>(arena_->size()); }  // taken

  // Converted to the rows' type. Asynchronous on `stream`; the values have been read when it returns. Precondition: the
  // rows have memory, and the values are whole rows.
  Status write(const EmbeddingWrite& write, Stream& stream);

 private:
  explicit EmbeddingRows(const ir::Type& type);

  ir::DType dtype_;
  std::int64_t most_;       // rows
  std::size_t row_values_;  // the hidden size, and what image rows carry beside embeddings
  std::unique_ptr<Arena> arena_;
  std::int64_t rows_ = 0;
  std::vector<std::byte> converted_;  // a slice of what is written
};

}  // namespace tessera
