// How ranks that each have tokens of their own (ModelOptions::dp_size) choose the graph of a forward: alike.
#pragma once

#include "tessera/base/status.h"
#include "tessera/ops/comm/collective.h"
#include "tessera/runner/dispatch/dispatch.h"

namespace tessera {

// The batch that takes in every rank's: as many tokens and requests as any has, a decode where all are. A rank without
// tokens of its own gives {}. Blocks until every rank of the communicator has called it; the result is the same on all.
// Errors are all_gather()'s; kInternal where no rank has tokens.
Result<BatchShape> agree_on_shape(Communicator& communicator, const BatchShape& own);

}  // namespace tessera
