// Runs several graphs one after another as one graph: for example body, head and sampler of a decode step, which are
// captured together. An input of a later graph and an output of an earlier graph are one value if they have the same
// name and type. Inputs, weights and states with the same name are the same value.
#pragma once

#include <span>
#include <string>

#include "tessera/base/status.h"
#include "tessera/ir/graph.h"

namespace tessera {

// The outputs are those of every graph, in order. Fails if two values with the same name differ in type.
Result<ir::Graph> chain(std::string name, std::span<const ir::Graph* const> graphs);

}  // namespace tessera
