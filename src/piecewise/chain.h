// Graphs run one after another as one: body, head and sampler of a decode step, which are captured
// together. An input of a later graph that has the name and type of an earlier graph's output is
// that value; inputs, weights and states of the same name are the same.
#pragma once

#include <span>
#include <string>

#include "tessera/base/status.h"
#include "tessera/ir/graph.h"

namespace tessera {

// Outputs: those of every graph, in order. Fails where two values of one name differ in type.
Result<ir::Graph> chain(std::string name, std::span<const ir::Graph* const> graphs);

}  // namespace tessera
