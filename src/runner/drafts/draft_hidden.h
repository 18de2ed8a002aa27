// Holds "draft_hidden", a static input with the hidden states from which a next-token layer (model/layers/draft.h)
// drafts. Each row of the layer reads one row of this input. A forward of the model writes the hidden states of all its
// tokens here, in order. A run of the layer (LocalDrafts::read) then computes hidden states for the rows from which the
// head drafts (wanted_rows), and writes them over the first rows. A draft model reads no hidden states of the model, so
// only its own runs write here.
#pragma once

#include <cstdint>
#include <memory>

#include "tessera/base/status.h"
#include "tessera/device/device.h"
#include "tessera/ir/graph.h"
#include "tessera/piecewise/external_values.h"

namespace tessera {

class DraftHidden {
 public:
  static Result<std::int64_t> bytes_needed(const ir::Graph& draft);
  // Allocates as many rows as the input "draft_hidden" of the graph has.
  static Result<DraftHidden> create(const ir::Graph& draft, Device& device);

  void add_to(ExternalValues& externals) const;
  std::int64_t rows() const { return rows_; }
  std::int64_t bytes() const { return static_cast<std::int64_t>(memory_->size()); }

  // Copies the first `count` rows of `from` [rows, hidden] to the first rows here. Asynchronous on `stream`. Returns
  // kInternal if there is no room for `count` rows.
  Status keep(DeviceAddress from, std::int64_t count, Stream& stream);
  // Copies the first `count` rows to `to`. Asynchronous on `stream`. Precondition: `count` rows exist.
  Status copy_to(DeviceAddress to, std::int64_t count, Stream& stream) const {
    return stream.copy(to, memory_->data(), static_cast<std::size_t>(count) * row_bytes_);
  }

 private:
  DraftHidden(std::int64_t rows, std::size_t row_bytes) : rows_(rows), row_bytes_(row_bytes) {}

  std::int64_t rows_;
  std::size_t row_bytes_;
  std::unique_ptr<Allocation> memory_;
};

}  // namespace tessera
