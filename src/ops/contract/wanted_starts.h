// Which rows of a batch an operator of wanted rows alone computes: of each request those from the first wanted one on.
// That is one number a request. Mostly the last row of a prompt is wanted, or all rows.
#pragma once

#include <cstdint>
#include <span>

#include "tessera/ops/contract/forward_batch.h"

namespace tessera {

// starts[b]: the rows of request b before its first wanted one; all of its rows where none is wanted. Takes time in
// proportion to requests and wanted rows where these are in order.
// Preconditions: batch.check() passes, as many starts as requests.
void find_wanted_starts(const ForwardBatch& batch, std::span<std::int32_t> starts);

}  // namespace tessera
