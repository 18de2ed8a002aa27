// Joins the weights of a model's graphs to one list.
#pragma once

#include <string>
#include <vector>

#include "tessera/base/status.h"
#include "tessera/model/weights/weight_spec.h"

namespace tessera {

// Appends the weights of one more graph, which messages call `graph`, to `weights`. Graphs may share a weight by name,
// as a tied head shares the embedding; it is loaded once. internal_error if the shared weight differs in type or in its
// rows of the checkpoint, because one of the graphs would then compute with the other's weight.
Status join_weights(const std::string& graph, std::vector<WeightSpec> more, std::vector<WeightSpec>& weights);

}  // namespace tessera
