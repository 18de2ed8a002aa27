// Turns each request with drafts into requests of one row each, so that decode kernels can verify the drafts. The batch
// may also contain prompts. A request of one row treats the earlier rows of the same sequence as cached tokens. This is
// correct because in each layer the forward writes the keys and values of all rows to the cache before attention reads
// them.
#pragma once

#include <cstddef>

#include "tessera/ops/contract/forward_batch.h"

namespace tessera {

class RowRequests {
 public:
  // Returns a batch in which each row of a decoding request with drafts is a request of its own. The other requests of
  // `batch` are unchanged. The result has the lengths, page tables and wanted rows that plans read. It is valid until
  // the next call, but only while the page tables of `batch` exist. Precondition: batch.has_drafts().
  const ForwardBatch& of(const ForwardBatch& batch);

 private:
  ForwardBatch rows_;
};

}  // namespace tessera
