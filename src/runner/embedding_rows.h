// Holds the embeddings that prompts supply in place of token ids, as rows of device memory at a fixed address. For each
// token with an embedding, ForwardBatch::embedding_rows gives the row that the embedding operator of a forward reads.
// create() only reserves the address range, and reserve() commits memory, so a model that never gets embeddings pays
// nothing. The engine decides which rows belong to which request (engine/schedule/row_ranges.h).
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
  // Creates the rows for the body's input of embeddings. The input's shape is [rows, values of a row]. Returns
  // kInternal if the graph has no such input.
  static Result<EmbeddingRows> create(const ir::Graph& body, Device& device);

  // Returns the device memory that reserve(rows) takes, in bytes. If the device's arenas cannot grow, this is the
  // memory of all rows for which the graph was built.
  static Result<std::int64_t> bytes_needed(const ir::Graph& body, std::int64_t rows, const Device& device);

  void add_to(ExternalValues& externals) const;
  // Commits memory for at least the first `rows` rows. Committed memory is never released. Returns kResourceExhausted
  // if the device has no memory for them or if the graph was built for fewer rows.
  Status reserve(std::int64_t rows);
  std::int64_t rows() const { return rows_; }  // number of rows with committed memory
  std::int64_t row_values() const { return static_cast<std::int64_t>(row_values_); }
  ir::DType dtype() const { return dtype_; }
  std::int64_t row_bytes() const { return row_values() * static_cast<std::int64_t>(ir::dtype_size(dtype_)); }
  // Returns the address of row 0. Row r begins r · row_bytes() bytes after it.
  DeviceAddress base() const { return arena_->base(); }
  std::int64_t bytes() const { return static_cast<std::int64_t>(arena_->size()); }  // committed bytes

  // Converts the values to the type of the rows and writes them. Asynchronous on `stream`. The caller may reuse the
  // memory of the values when write() returns. Precondition: the rows have committed memory, and the values fill whole
  // rows.
  Status write(const EmbeddingWrite& write, Stream& stream);

 private:
  explicit EmbeddingRows(const ir::Type& type);

  ir::DType dtype_;
  std::int64_t most_;       // the number of rows that the graph was built for
  std::size_t row_values_;  // hidden size, plus the additional values of image rows
  std::unique_ptr<Arena> arena_;
  std::int64_t rows_ = 0;
  std::vector<std::byte> converted_;  // buffer for the conversion of a slice of values
};

}  // namespace tessera
