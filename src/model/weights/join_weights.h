// The weights of a model's graphs as one list.
#pragma once

#include <string>
#include <vector>

#include "tessera/base/status.h"
#include "tessera/model/weights/weight_spec.h"

namespace tessera {

// Puts the weights of one more graph, which messages call `graph`, behind `weights`. Graphs have a weight of one name
// in common, as a tied head has the embedding: it is loaded once. internal_error where it is not the same in both, of
// another type or from other rows of the checkpoint: one of the graphs would compute with the other's.
Status join_weights(const std::string& graph, std::vector<WeightSpec> more, std::vector<WeightSpec>& weights);

}  // namespace tessera
