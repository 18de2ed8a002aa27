// Joins several graphs into one graph that runs them one after another. For example, it joins the body, head and
// sampler of a decode step, which are captured together. If an input of a later graph has the name and type of an
// earlier graph's output, the input becomes that output. Inputs, weights and states with the same name become one
// value.
#pragma once

#include <span>
#include <string>

#include "tessera/base/status.h"
#include "tessera/ir/graph.h"

namespace tessera {

// Returns the joined graph. Its outputs are the outputs of all graphs, in order. Fails if two values with the same name
// differ in type.
Result<ir::Graph> chain(std::string name, std::span<const ir::Graph* const> graphs);

}  // namespace tessera
