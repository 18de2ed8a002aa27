// Lets data-parallel ranks, which have different tokens (ModelGraphs::dp_size), agree on one graph for a forward.
#pragma once

#include "tessera/base/status.h"
#include "tessera/comm/communicator.h"
#include "tessera/runner/dispatch/dispatch.h"

namespace tessera {

// Returns the smallest batch shape that covers every rank's batch. The shape has the maximum number of tokens and the
// maximum number of requests of all ranks. It is a decode only if every rank's batch is a decode. A rank without tokens
// passes an empty shape, {}. Blocks until every rank of the communicator has called it, and returns the same shape on
// all of them. Returns errors of all_gather(), and kInternal if no rank has tokens.
Result<BatchShape> agree_on_shape(Communicator& communicator, const BatchShape& own);

}  // namespace tessera
