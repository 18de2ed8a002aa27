// Computes from the graphs how much data a rank exchanges with other ranks in its largest forwards
// (comm/exchange_memory.h).
#pragma once

#include "tessera/base/status.h"
#include "tessera/comm/exchange_memory.h"
#include "tessera/ir/graph.h"

namespace tessera {

// Raises each element of `sizes` to at least the number of bytes that one run of the graph exchanges in this bucket.
Status add_exchanges(const ir::Graph& graph, const ir::Bucket& bucket, ExchangeSizes& sizes);

}  // namespace tessera
