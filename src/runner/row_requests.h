// Turns each request with drafts into requests of one row each, so that decode kernels can verify the drafts. This also
// works for a batch that contains prompts. A request of one row counts the earlier rows of the same sequence as cached
// tokens. They are in the cache in time, because in each layer the forward writes the keys and values of all rows
// before the layer's attention reads them.
#pragma once

#include <cstddef>

#include "tessera/ops/contract/forward_batch.h"

namespace tessera {

class RowRequests {
 public:
  // Returns a batch in which each row of a decoding request with drafts is a request of its own. The other requests of
  // `batch` are unchanged. The result has the lengths, page tables and wanted rows that plans read. It is valid until
  // the next call, and no longer than the page tables of `batch`. Precondition: batch.has_drafts().
  const ForwardBatch& of(const ForwardBatch& batch);

 private:
  ForwardBatch rows_;
};

}  // namespace tessera
