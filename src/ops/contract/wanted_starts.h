// The rows of a batch that an operator of wanted rows computes: of each request, the rows from the first wanted one on,
// which needs one number a request. Usually the last row of a prompt is wanted, or all rows.
#pragma once

#include <cstdint>
#include <span>

#include "tessera/ops/contract/forward_batch.h"

namespace tessera {

// starts[b] = the number of rows of request b before its first wanted one, or the number of all its rows if none is
// wanted. Takes time in proportion to requests and wanted rows if these are in order. Preconditions: batch.check()
// passes, and `starts` has one element a request.
void find_wanted_starts(const ForwardBatch& batch, std::span<std::int32_t> starts);

}  // namespace tessera
