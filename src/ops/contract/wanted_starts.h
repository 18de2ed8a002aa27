// Finds each request's first wanted row: the first row whose logits are wanted. An operator that may leave out unwanted
// rows computes this row and all later rows of the request, so that one number describes a request's work. Usually
// either only the last row of a prompt is wanted, or all its rows are.
#pragma once

#include <cstdint>
#include <span>

#include "tessera/ops/contract/forward_batch.h"

namespace tessera {

// Sets starts[b] to the number of rows of request b before its first wanted row, or to the number of all its rows if
// none is wanted. If the wanted rows are in order, the time is proportional to the number of requests plus the number
// of wanted rows. Preconditions: batch.check() passes, and `starts` has one element per request.
void find_wanted_starts(const ForwardBatch& batch, std::span<std::int32_t> starts);

}  // namespace tessera
