// Turns requests with drafts into requests of one row each, so that kernels for decodes check drafts, beside prompts
// too. A draft's earlier rows are then tokens that the cache already holds: the forward writes the keys and values of
// all rows of a layer before its attention reads them.
#pragma once

#include <cstddef>

#include "tessera/ops/contract/forward_batch.h"

namespace tessera {

class RowRequests {
 public:
  // Returns a batch that has a request for each row of a decode with drafts, and the other requests of `batch` as they
  // are, with the lengths, page tables and wanted rows that plans read. Valid until the next call, and no longer than
  // the page tables of `batch`. Precondition: batch.has_drafts().
  const ForwardBatch& of(const ForwardBatch& batch);

 private:
  ForwardBatch rows_;
};

}  // namespace tessera
